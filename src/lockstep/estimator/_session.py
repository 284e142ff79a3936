"""The session that hooks see, and its fetches."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import keras
import numpy as np

from lockstep._engine.step.steps_per_execution import Outputs
from lockstep._text import Words
from lockstep._types import PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._compiled_model_fn import CompiledModelFn
from lockstep.estimator._model_fn.records import SummaryOp
from lockstep.estimator._model_fn.variables import GLOBAL_STEP
from lockstep.estimator._state import VariableState


class Signals(Protocol):
    """Signals between workers, received by all after the same step; a feed transports them."""

    def broadcast(self, signal: str) -> None:
        """Broadcasts a signal that all workers receive after the same step."""
        ...

    def has_received(self, signal: str) -> bool:
        """Returns whether all workers have received a signal, and forgets it."""
        ...


class AloneSignals:
    """Signals of a single process."""

    def __init__(self) -> None:
        self._pending: set[str] = set()

    def broadcast(self, signal: str) -> None:
        """Broadcasts a signal that all workers receive after the same step."""
        self._pending.add(signal)

    def has_received(self, signal: str) -> bool:
        """Returns whether all workers have received a signal, and forgets it."""
        is_told = signal in self._pending
        self._pending.discard(signal)
        return is_told


class Session:
    """The session of one run, for hooks.

    Source: the methods of tf.compat.v1.Session that tf.estimator's hooks use.

    Args:
        compiled: The compiled model_fn.
        state: The variables.
        step: The global step at the start.
        is_chief: Whether this process writes.
        signals: Signals between workers.
        save: Writes a checkpoint: `(directory, basename, step, together) -> path`.
        flush: Waits until checkpoints are written.

    Attributes:
        global_step: The number of steps done.
        batches: The number of batches this run has used.
        is_chief: Whether this process writes.
        is_stopping: Whether the run ends after this step.
    """

    def __init__(
        self,
        compiled: CompiledModelFn,
        state: VariableState,
        step: int,
        is_chief: bool,
        signals: Signals,
        save: Callable[[str, str, int, bool], str] | None = None,
        flush: Callable[[], None] | None = None,
    ) -> None:
        self._compiled = compiled
        self._state = state
        self._signals = signals
        self._save = save
        self._flush = flush
        self._outputs: Outputs | None = None
        self.global_step = step
        self.batches = 0
        self.is_chief = is_chief
        self.is_stopping = False

    @property
    def counts(self) -> bool:
        """Returns whether steps increment the global step."""
        return self._compiled.mode == "train"

    @property
    def increment(self) -> int:
        """Returns the global step's increment per step."""
        return self._compiled.increment if self.counts else 0

    def run(self, fetches: PyTree, feed_dict: Mapping[str, Any] | None = None) -> Any:
        """Returns values of the state at hand, and of the last step, in the structure of `fetches`.

        Args:
            fetches: "global_step", "loss", names of variables and of values that the model_fn has named, variables and
                values of the model_fn themselves, in dicts, lists and tuples.
            feed_dict: Must be empty: data come from the input_fn.

        Raises:
            ArgumentError: If there is no such thing.
        """
        if feed_dict:
            raise ArgumentError("Nothing can be fed into a step. Received: feed_dict. Let the input_fn yield the data.")
        return self.fetch(fetches, raw=False)

    def fetch(self, fetches: PyTree, raw: bool) -> Any:
        """Fetches values, on the host, or raw: as the device arrays of all steps of the dispatch."""
        if isinstance(fetches, dict):
            return {k: self.fetch(v, raw) for k, v in fetches.items()}
        if isinstance(fetches, (list, tuple)):
            parts = [self.fetch(v, raw) for v in fetches]
            if hasattr(fetches, "_fields"):
                return type(fetches)(*parts)
            return parts if isinstance(fetches, list) else tuple(parts)
        return self._fetch_one(fetches, raw)

    def assign(self, values: Mapping[str, Any]) -> None:
        """Sets variables, by name: for `Scaffold(init_fn=...)`, which runs before training begins.

        Raises:
            ArgumentError: If there is no such variable, or its shape is another.
        """
        for name, value in values.items():
            entry = self._compiled.variables.entries.get(name)
            if entry is None or entry.shape != np.shape(value):
                raise ArgumentError(
                    f"A value must fit a variable of the model_fn. Received: {name!r} with shape {np.shape(value)}; "
                    f"there is {entry or 'none of that name'}."
                )
            self._state.assign(name, np.asarray(value).astype(entry.dtype))

    def should_stop(self) -> bool:
        """Returns whether the run ends after this step."""
        return self.is_stopping

    def save(self, directory: str, basename: str = "model.ckpt") -> str:
        """Writes a checkpoint of this step; returns its path, without a suffix.

        With several workers it does not hold the position in the data, of which each has a part.

        Raises:
            ArgumentError: If this run does not train.
        """
        return self._save_checkpoint(directory, basename, together=False)

    def save_together(self, directory: str, basename: str = "model.ckpt") -> str:
        """Writes a checkpoint likewise, with the position in the data; all tasks call it after the same step."""
        return self._save_checkpoint(directory, basename, together=True)

    def _save_checkpoint(self, directory: str, basename: str, together: bool) -> str:
        if self._save is None:
            raise ArgumentError(
                "Checkpoints are written by training. Received: save in another run. Use a hook of train."
            )
        return self._save(directory, basename, self.global_step, together)

    def flush(self) -> None:
        """Waits until the checkpoints that were saved are on the disk."""
        if self._flush is not None:
            self._flush()

    def broadcast(self, signal: str) -> None:
        """Broadcasts a signal that all workers receive after the same step."""
        self._signals.broadcast(signal)

    def has_received(self, signal: str) -> bool:
        """Returns whether all workers have received a signal, and forgets it."""
        return self._signals.has_received(signal)

    def record_outputs(self, outputs: Outputs, steps: int) -> None:
        """Records the outputs of steps."""
        # Device arrays: fetching them to the host here would wait for the step, and most hooks read few of them.
        self._outputs = outputs
        self.batches += steps
        self.global_step += steps * self.increment

    def values(self) -> dict[str, np.ndarray]:
        """Returns the variables of checkpoints, on the host."""
        return {key: self._state.value(key) for key in self._compiled.variables.checkpoint_keys()}

    def _fetch_one(self, fetch: PyTree, raw: bool) -> Any:
        if isinstance(fetch, str):
            return self._fetch_named(fetch.removesuffix(":0"), raw)
        if isinstance(fetch, keras.Variable):
            return self._state.value(self._compiled.first_call.scope.key_of(fetch))
        place = self._compiled.output_paths.get(id(fetch))
        if place is None:
            raise ArgumentError(
                "A hook may ask for names, for variables, and for values of the model_fn that it holds as attributes. "
                f"Received: {fetch!r}. Give the value a name: lockstep.estimator.train.record(name, value), or "
                "tf.identity(value, name=name)."
            )
        return self._output(place, raw)

    def _fetch_named(self, name: str, raw: bool) -> Any:
        if name == GLOBAL_STEP:
            return np.int64(self.global_step)
        if name == "summaries":
            return self._summaries(raw)
        if name == "loss":
            return self._output(("loss",), raw)
        if name in self._compiled.names:
            return self._output(("values", name), raw)
        if name in self._state:
            return self._state.value(name)
        known = ["loss", GLOBAL_STEP, *self._compiled.names, *self._compiled.variables.entries]
        close = difflib.get_close_matches(name, known, 3) or known[:8]
        raise ArgumentError(
            f"A hook asks for values by the names that the model_fn has given. Received: {name!r}; there are "
            f"{', '.join(close)}."
        )

    def _summaries(self, raw: bool) -> list[tuple[SummaryOp, Any]]:
        """Fetches the loss and the model_fn's summaries."""
        values = self._output(("summaries",), raw=True)
        own = [(op, self._on_host(v, raw)) for op, v in zip(self._compiled.summaries, values, strict=True)]
        return [(SummaryOp("scalar", "loss", None), self._output(("loss",), raw)), *own]

    def _output(self, place: tuple[Any, ...], raw: bool) -> Any:
        if self._outputs is None:
            raise ArgumentError("Values of a step can be asked for after it. Received: a fetch before the first step.")
        value: Any = self._outputs.all
        for part in place:
            if part not in value and not isinstance(part, int):
                raise ArgumentError(
                    f"A value by name must be known before the first step. Received: {part!r}, which no hook held as "
                    "text when the run began. Keep its name in an attribute of the hook."
                )
            value = value[part]
        return value if place == ("summaries",) else self._on_host(value, raw)

    def _on_host(self, value: PyTree, raw: bool) -> Any:
        # Raw values stay on devices: a hook that reads them later does not wait for the step.
        if raw:
            return value
        array = value.on_host() if isinstance(value, Words) else np.asarray(value)
        places = self._outputs.slots if self._outputs is not None else None
        return array if places is None else array[places[-1]]
