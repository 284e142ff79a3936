"""The variables of a model_fn: learnt in its first call, the same in every other one."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lockstep._runtime import randomness
from lockstep.errors import ArgumentError

GLOBAL_STEP = "global_step"


@dataclass(frozen=True)
class Entry:
    """One variable.

    Attributes:
        key: Its name in checkpoints.
        shape: Its shape.
        dtype: The name of its type.
        trainable: Whether optimizers change it.
        local: Whether it starts anew in each run, and is in no checkpoint.
        aggregation: How replicas combine it, as `keras.Variable.aggregation` says.
        initial: Computes its first value from those of the variables before it.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool
    local: bool
    aggregation: str
    initial: Callable[[Mapping[str, Any]], Any]

    @property
    def is_seed(self) -> bool:
        """Whether it is the state of a random generator."""
        return self.key.rsplit("/", 1)[-1].startswith("seed_generator_state")

    def __str__(self) -> str:
        return f"{self.dtype}{self.shape}"


class Variables:
    """What is known of a model_fn's variables.

    Args:
        seed: Of the random numbers in each call, `None` for one drawn from Python's generator.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.entries: dict[str, Entry] = {}
        self.is_complete = False
        self.random_state = randomness.seeded(random.getrandbits(31) if seed is None else seed)
        # Kept alive, so that an id stays that variable's: those from outside of the model_fn, and those that the first
        # call has made, which layers from outside may hold on to.
        self._known: dict[int, tuple[Any, str]] = {}

    def key_of_known(self, variable: Any) -> str | None:
        """Returns the key of a variable that an earlier call has met, `None` if it is new."""
        found = self._known.get(id(variable))
        return found[1] if found else None

    def meet(self, variable: Any, entry: Entry) -> None:
        """Takes note of a variable; in later calls, compares.

        Raises:
            ArgumentError: If the first call has not met this one, or another kind of it.
        """
        known = self.entries.get(entry.key)
        if known is None and self.is_complete:
            raise impure(f"it made {entry.key} ({entry}), which the first call did not")
        if known is not None and str(known) != str(entry):
            raise impure(f"{entry.key} was {known} in the first call, now it is {entry}")
        if known is None:
            self.entries[entry.key] = entry
            self._known[id(variable)] = (variable, entry.key)

    def complete(self, met: Mapping[str, Any]) -> None:
        """Ends a call: the first one says what there is, later ones must have met the same.

        Args:
            met: The call's variables, by key. Only now is it known which of them a layer has frozen.

        Raises:
            ArgumentError: If a later call has met less, or others are trainable.
        """
        if not self.is_complete:
            self.entries.update({k: replace(self.entries[k], trainable=bool(v.trainable)) for k, v in met.items()})
            self.is_complete = True
        missing = [key for key in self.entries if key not in met and key != GLOBAL_STEP]
        if missing:
            raise impure(f"it left out {', '.join(missing[:5])}, which the first call made")
        for key, variable in met.items():
            if self.entries[key].trainable != bool(variable.trainable):
                raise impure(f"{key} is trainable, or was, and not both in the first call and now")

    def initial_values(self) -> dict[str, np.ndarray]:
        """Computes the first value of each."""
        values: dict[str, Any] = {}
        for key, entry in self.entries.items():
            values[key] = _checked(entry, entry.initial(values))
        return values

    def zeros(self) -> dict[str, np.ndarray]:
        """Values of the right shapes and types, for a task that gets the real ones from the chief."""
        return {key: np.zeros(e.shape, e.dtype) for key, e in self.entries.items()}

    def saved(self) -> list[str]:
        """The keys of those that are kept in checkpoints."""
        return [key for key, entry in self.entries.items() if not entry.local]

    def trainable(self) -> list[str]:
        """The keys of those that optimizers change."""
        return [key for key, entry in self.entries.items() if entry.trainable]


def _checked(entry: Entry, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.shape != entry.shape:
        raise ArgumentError(
            f"The initializer of {entry.key} must return the shape that the variable has, {entry.shape}. Received: "
            f"{array.shape}."
        )
    return array.astype(entry.dtype, copy=False)


def impure(what: str) -> ArgumentError:
    """The error for a model_fn that differs from call to call."""
    return ArgumentError(
        "A model_fn must be a pure function: it is called again for each batch size, and must make the same variables "
        f"each time. Received a call in which {what}. Make it depend on features, labels, mode, params and config "
        "only, not on counters, random choices or objects that it changes."
    )
