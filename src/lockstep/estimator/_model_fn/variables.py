"""Registry of a model_fn's variables: filled by its first call, compared with every later one."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lockstep._engine.runtime import randomness
from lockstep._types import Tensor, Variable
from lockstep.errors import ArgumentError

GLOBAL_STEP = "global_step"


@dataclass(frozen=True)
class Entry:
    """The registry's entry of a variable.

    Attributes:
        key: Name in checkpoints.
        shape: Shape.
        dtype: Name of the dtype.
        trainable: Whether optimizers update it.
        local: Whether it starts anew in each run and is in no checkpoint.
        aggregation: The replicas' aggregation, see `keras.Variable.aggregation`.
        initial: Computes the first value from those of earlier variables, by key.
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
        """Returns whether the variable is the state of a random generator."""
        return self.key.rsplit("/", 1)[-1].startswith("seed_generator_state")

    def __str__(self) -> str:
        return f"{self.dtype}{self.shape}"


class Variables:
    """The registry of a model_fn's variables.

    Args:
        seed: The seed of random numbers in each call; `None` for one drawn from Python's generator.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.entries: dict[str, Entry] = {}
        self.is_complete = False
        # One random state for all calls: initializers and dropout draw the same keys in each trace.
        self.random_state = randomness.seeded(random.getrandbits(31) if seed is None else seed)
        # Variables by id, kept alive so that no id is reused: those from outside of the model_fn, and those of the
        # first call, which layers from outside may hold.
        self._known: dict[int, tuple[Any, str]] = {}

    def registered_key(self, variable: Variable) -> str | None:
        """Returns the key of a variable that an earlier call has registered, `None` if it is new."""
        known = self._known.get(id(variable))
        return known[1] if known else None

    def register(self, variable: Variable, entry: Entry) -> None:
        """Registers a variable in the first call; compares it in later ones.

        Raises:
            ArgumentError: If the first call did not register it, or with another shape or dtype.
        """
        known = self.entries.get(entry.key)
        if known is None and self.is_complete:
            raise impurity_error(f"it made {entry.key} ({entry}), which the first call did not")
        if known is not None and str(known) != str(entry):
            raise impurity_error(f"{entry.key} was {known} in the first call, now it is {entry}")
        if known is None:
            self.entries[entry.key] = entry
            self._known[id(variable)] = (variable, entry.key)

    def complete(self, registered: Mapping[str, Any]) -> None:
        """Ends a call: the first one fixes the registry, later ones must have registered the same variables.

        Args:
            registered: The call's variables, by key.

        Raises:
            ArgumentError: If a later call lacks variables, or others are trainable.
        """
        if not self.is_complete:
            # A layer may be frozen after its variables are created, so this is read at the end of the call.
            self.entries.update(
                {k: replace(self.entries[k], trainable=bool(v.trainable)) for k, v in registered.items()}
            )
            self.is_complete = True
        missing = [key for key in self.entries if key not in registered and key != GLOBAL_STEP]
        if missing:
            raise impurity_error(f"it left out {', '.join(missing[:5])}, which the first call made")
        for key, variable in registered.items():
            if self.entries[key].trainable != bool(variable.trainable):
                raise impurity_error(f"{key} is trainable, or was, and not both in the first call and now")

    def initial_values(self) -> dict[str, np.ndarray]:
        """Computes the first value of each variable, in order."""
        values: dict[str, Any] = {}
        for key, entry in self.entries.items():
            values[key] = _check_first_value(entry, entry.initial(values))
        return values

    def zeros(self) -> dict[str, np.ndarray]:
        """Returns zeros for a process that receives the first values from the chief."""
        return {key: np.zeros(e.shape, e.dtype) for key, e in self.entries.items()}

    def checkpoint_keys(self) -> list[str]:
        """Returns the keys of variables that are saved in checkpoints."""
        return [key for key, entry in self.entries.items() if not entry.local]

    def trainable_keys(self) -> list[str]:
        """Returns the keys of variables that optimizers update."""
        return [key for key, entry in self.entries.items() if entry.trainable]


def _check_first_value(entry: Entry, value: Tensor) -> np.ndarray:
    array = np.asarray(value)
    if array.shape != entry.shape:
        raise ArgumentError(
            f"The initializer of {entry.key} must return the shape that the variable has, {entry.shape}. Received: "
            f"{array.shape}."
        )
    return array.astype(entry.dtype, copy=False)


def impurity_error(difference: str) -> ArgumentError:
    """Returns the error for a model_fn that differs from call to call."""
    return ArgumentError(
        "A model_fn must be a pure function: it is called again for each batch size, and must make the same variables "
        f"each time. Received a call in which {difference}. Make it depend on features, labels, mode, params and "
        "config only, not on counters, random choices or objects that it changes."
    )
