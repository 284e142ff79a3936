"""What a hook sees of a run: the session and its fetches."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import keras
import numpy as np

from lockstep._model_fn.records import SummaryOp
from lockstep._model_fn.text import Words
from lockstep._model_fn.variables import GLOBAL_STEP
from lockstep._step.outputs import Outputs
from lockstep.errors import ArgumentError
from lockstep.estimator._job import Job
from lockstep.estimator._state import VariableState


class Signals(Protocol):
    """How the tasks tell each other words; a feed does it."""

    def ask(self, word: str) -> None:
        """Has all tasks be told a word, after the same one of the next steps."""
        ...

    def told(self, word: str) -> bool:
        """Whether all tasks have been told a word, which is then forgotten."""
        ...


class AloneSignals:
    """The words of a task that no others hear."""

    def __init__(self) -> None:
        self._words: set[str] = set()

    def ask(self, word: str) -> None:
        """Tells it at once."""
        self._words.add(word)

    def told(self, word: str) -> bool:
        """Whether it was asked for."""
        is_told = word in self._words
        self._words.discard(word)
        return is_told


class Session:
    """One run of a model_fn, as hooks see it.

    Source: what tf.estimator's hooks use of tf.compat.v1.Session.

    Args:
        job: What runs.
        state: Its variables.
        step: The global step at the start.
        is_chief: Whether this task writes.
        signals: How decisions of one task reach all.
        save: Writes a checkpoint: `(directory, basename, step, together) -> path`.
        flush: Waits until checkpoints are on the disk.

    Attributes:
        global_step: How many steps there are.
        batches: How many batches this run has used.
        is_chief: Whether this task writes.
        is_stopping: Whether the run ends after this step.
    """

    def __init__(
        self,
        job: Job,
        state: VariableState,
        step: int,
        is_chief: bool,
        signals: Signals,
        save: Callable[[str, str, int, bool], str] | None = None,
        flush: Callable[[], None] | None = None,
    ) -> None:
        self._job = job
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
        """Whether steps increment the global step."""
        return self._job.mode == "train"

    @property
    def increment(self) -> int:
        """By how much a step increments the global step."""
        return self._job.increment if self.counts else 0

    def run(self, fetches: Any, feed_dict: Any = None) -> Any:
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
        return self.fetched(fetches, raw=False)

    def fetched(self, fetches: Any, raw: bool) -> Any:
        """Returns what hooks ask for: on the host, or arrays as the dispatch has returned them, of all its steps."""
        if isinstance(fetches, dict):
            return {k: self.fetched(v, raw) for k, v in fetches.items()}
        if isinstance(fetches, (list, tuple)):
            parts = [self.fetched(v, raw) for v in fetches]
            if hasattr(fetches, "_fields"):
                return type(fetches)(*parts)
            return parts if isinstance(fetches, list) else tuple(parts)
        return self._one(fetches, raw)

    def assign(self, values: Mapping[str, Any]) -> None:
        """Sets variables, by name: for `Scaffold(init_fn=...)`, which runs before training begins.

        Raises:
            ArgumentError: If there is no such variable, or its shape is another.
        """
        for name, value in values.items():
            entry = self._job.variables.entries.get(name)
            if entry is None or entry.shape != np.shape(value):
                raise ArgumentError(
                    f"A value must fit a variable of the model_fn. Received: {name!r} with shape {np.shape(value)}; "
                    f"there is {entry or 'none of that name'}."
                )
            self._state.assign(name, np.asarray(value).astype(entry.dtype))

    def should_stop(self) -> bool:
        """Whether the run ends after this step."""
        return self.is_stopping

    def save(self, directory: str, basename: str = "model.ckpt") -> str:
        """Writes a checkpoint of this step; returns its path, without a suffix.

        With several workers it does not hold the position in the data, of which each has a part.

        Raises:
            ArgumentError: If this run does not train.
        """
        return self._saved(directory, basename, together=False)

    def save_together(self, directory: str, basename: str = "model.ckpt") -> str:
        """Writes a checkpoint likewise, with the position in the data; all tasks call it after the same step."""
        return self._saved(directory, basename, together=True)

    def _saved(self, directory: str, basename: str, together: bool) -> str:
        if self._save is None:
            raise ArgumentError(
                "Checkpoints are written by training. Received: save in another run. Use a hook of train."
            )
        return self._save(directory, basename, self.global_step, together)

    def flush(self) -> None:
        """Waits until the checkpoints that were saved are on the disk."""
        if self._flush is not None:
            self._flush()

    def ask(self, word: str) -> None:
        """Has all tasks be told a word, after the same one of the next steps."""
        self._signals.ask(word)

    def told(self, word: str) -> bool:
        """Whether all tasks have been told a word, which is then forgotten."""
        return self._signals.told(word)

    def stepped(self, outputs: Outputs, steps: int) -> None:
        """Takes what so many steps handed out."""
        self._outputs = outputs
        self.batches += steps
        self.global_step += steps * self.increment

    def values(self) -> dict[str, np.ndarray]:
        """The variables that checkpoints hold, on the host."""
        return {key: self._state.value(key) for key in self._job.variables.checkpoint_keys()}

    def _one(self, fetch: Any, raw: bool) -> Any:
        if isinstance(fetch, str):
            return self._named(fetch.removesuffix(":0"), raw)
        if isinstance(fetch, keras.Variable):
            return self._state.value(self._job.first.scope.key_of(fetch))
        place = self._job.places.get(id(fetch))
        if place is None:
            raise ArgumentError(
                "A hook may ask for names, for variables, and for values of the model_fn that it holds as attributes. "
                f"Received: {fetch!r}. Give the value a name: lockstep.train.record(name, value), or "
                "tf.identity(value, name=name)."
            )
        return self._output(place, raw)

    def _named(self, name: str, raw: bool) -> Any:
        if name == GLOBAL_STEP:
            return np.int64(self.global_step)
        if name == "summaries":
            return self._summaries(raw)
        if name == "loss":
            return self._output(("loss",), raw)
        if name in self._job.names:
            return self._output(("values", name), raw)
        if name in self._state:
            return self._state.value(name)
        known = ["loss", GLOBAL_STEP, *self._job.names, *self._job.variables.entries]
        close = difflib.get_close_matches(name, known, 3) or known[:8]
        raise ArgumentError(
            f"A hook asks for values by the names that the model_fn has given. Received: {name!r}; there are "
            f"{', '.join(close)}."
        )

    def _summaries(self, raw: bool) -> list[tuple[SummaryOp, Any]]:
        """The loss, and what the model_fn adds."""
        values = self._output(("summaries",), raw=True)
        own = [(op, self._on_host(v, raw)) for op, v in zip(self._job.summaries, values, strict=True)]
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

    def _on_host(self, value: Any, raw: bool) -> Any:
        if raw:
            return value
        found = value.on_host() if isinstance(value, Words) else np.asarray(value)
        places = self._outputs.places if self._outputs is not None else None
        return found if places is None else found[places[-1]]
