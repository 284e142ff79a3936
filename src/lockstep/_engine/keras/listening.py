"""Keras' callbacks for batches as the loop's listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.steps_per_execution import Outputs

# Callbacks of Keras that look at batches only to show or sum up how far a run is: they may miss some.
_MAY_MISS: tuple[type, ...] = tuple(
    getattr(keras.callbacks, name) for name in ("ProgbarLogger", "History") if hasattr(keras.callbacks, name)
)
_BY_FREQUENCY: tuple[type, ...] = (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore)
_UNLIMITED = 1 << 30


class BatchListener:
    """Tells callbacks about batches: about each if one of them looks, or as `steps_per_execution` says.

    Args:
        kind: "train", "test" or "predict".
        model: Whose callbacks.
        callbacks: A `keras.callbacks.CallbackList`.
        runtime: Who takes part; all look at batches if one does, so that all dispatch alike.
        told: Called when callbacks of batches have been told, if any task has some; by all tasks in the same places.
    """

    def __init__(
        self, kind: str, model: Any, callbacks: Any, runtime: Runtime, told: Callable[[], None] | None = None
    ) -> None:
        self.model = model
        # What the last step handed out, and before any step, logs.
        self._last: Any = {}
        self._begin = getattr(callbacks, f"on_{kind}_batch_begin")
        self._end = getattr(callbacks, f"on_{kind}_batch_end")
        self._stride = stride_of(model)
        wants = self._stride > 1 or any(looks(one, kind) for one in callbacks.callbacks)
        # Nobody is told what nobody hears: it would cost more than a small step.
        self._hears = type(callbacks) is not keras.callbacks.CallbackList or any(
            hears(one, kind) for one in callbacks.callbacks
        )
        self._looks = any(runtime.agree("whether callbacks look at batches", wants))
        self._when_told = told if self._looks else None
        # The first step of a stride that is under way.
        self._begun: int | None = None

    def room(self, step: int) -> int:
        """Returns how many steps may run before the callbacks have to be told."""
        return self._stride - step % self._stride if self._looks else _UNLIMITED

    def before(self, step: int, steps: int) -> None:
        """Tells the callbacks that a stride begins."""
        del steps
        if self._begun is None:
            self._begun = step
            if self._hears:
                self._begin(step)
            self._have_told()

    def after(self, step: int, outputs: Outputs) -> bool:
        """Tells the callbacks of the end of a stride; returns whether to stop."""
        self.note(outputs)
        if self._looks and (step + 1) % self._stride:
            return False
        return self._finish(step)

    def end(self) -> None:
        """Tells the callbacks of a stride that the data has cut short."""
        if self._begun is not None:
            self._finish(self._begun + self._stride - 1)

    def note(self, outputs: Outputs) -> None:
        """Takes what steps handed out."""
        self._last = outputs

    @property
    def logs(self) -> Any:
        """What the last step handed out."""
        return self._last.last if isinstance(self._last, Outputs) else self._last

    def told(self) -> Any:
        """What the callbacks get to see."""
        return self.logs

    def stops(self, step: int) -> bool:
        """Whether a callback has asked to stop."""
        raise AssertionError(step)

    def _finish(self, step: int) -> bool:
        self._begun = None
        if self._hears:
            self._end(step, self.told())
        self._have_told()
        return self.stops(step)

    def _have_told(self) -> None:
        if self._when_told is not None:
            self._when_told()


def stride_of(model: Any) -> int:
    """After how many steps callbacks are told: what `compile(steps_per_execution=...)` says, or each one."""
    found = getattr(model, "steps_per_execution", 1)
    return 1 if found in ("auto", None) else int(found)


def looks(callback: Any, kind: str) -> bool:
    """Whether a callback wants to know about each batch."""
    if type(callback) in _MAY_MISS or _is_by_epoch(callback):
        return False
    return hears(callback, kind)


def hears(callback: Any, kind: str) -> bool:
    """Whether a callback has a method that is told of batches."""
    names = [f"on_{kind}_batch_begin", f"on_{kind}_batch_end"]
    if kind == "train":  # Their names from before there was more than training; Keras forwards to them.
        names += ["on_batch_begin", "on_batch_end"]
    return any(_is_own(callback, name) for name in names)


def _is_by_epoch(callback: Any) -> bool:
    """Whether a callback that can look at batches was told to look at epochs."""
    saves = type(callback) in _BY_FREQUENCY and callback.save_freq == "epoch"
    return saves or not getattr(callback, "looks_at_batches", True)


def _is_own(callback: Any, name: str) -> bool:
    """Whether a callback, or its class, has a method of its own."""
    method = getattr(callback, name, None)
    return getattr(method, "__func__", method) is not getattr(keras.callbacks.Callback, name, None)
