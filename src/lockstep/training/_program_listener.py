"""Callbacks of `Program.fit` as the loop's listener: each is told as often as it wants, and no more."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import jax
import keras
import numpy as np

from lockstep._engine.keras.listening import looks
from lockstep._engine.keras.recovery import Recovery
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.steps_per_execution import Outputs
from lockstep.training._training import Training

_UNLIMITED = 1 << 30
_BAR_SECONDS = 0.1


class StepListener:
    """Tells callbacks about steps.

    Args:
        training: What they see.
        callbacks: A `keras.callbacks.CallbackList`.
        runtime: Who takes part; all dispatch alike, as often as any task's callbacks want.
        recovery: Knows how far training is, and saves.
        last: With how many steps training ends, or `None`.
        epoch: Which epoch.
    """

    def __init__(
        self, training: Training, callbacks: Any, runtime: Runtime, recovery: Recovery, last: int | None, epoch: int
    ) -> None:
        self._training = training
        self._runtime = runtime
        self._recovery = recovery
        self._last = last
        self._epoch = epoch
        looking = [(c, every) for c in callbacks.callbacks if (every := _every(c)) is not None]
        self._looking = [(c, n) for c, n in looking if runtime.is_chief or not getattr(c, "chief_only", False)]
        # Bars are told now and then: what they show has to be waited for.
        self._bars = [c for c in callbacks.callbacks if isinstance(c, keras.callbacks.ProgbarLogger) and c.verbose == 1]
        self._shown = 0.0
        mine = sorted({every for _, every in looking})
        self._rhythms = {n for found in runtime.agree("how often callbacks look at steps", mine) for n in found}
        self._first = recovery.progress.batches
        self.logs: Any = recovery.progress.logs

    def room(self, step: int) -> int:
        """Returns how many steps may run before a callback has to be told, or something is to be saved."""
        total = self._recovery.progress.total
        rooms = [n - total % n for n in self._rhythms]
        if self._last is not None:
            rooms.append(self._last - total)
        saving = self._recovery.room(step + self._first)
        if saving is not None:
            rooms.append(saving)
        return max(1, min(rooms, default=_UNLIMITED))

    def before(self, step: int, steps: int) -> None:
        """Tells those callbacks that a step begins of whose end they will be told."""
        total = self._recovery.progress.total + steps
        for callback, every in self._looking:
            if total % every == 0:
                callback.on_train_batch_begin(self._first + step + steps - 1)
        self._told(total)

    def _told(self, total: int) -> None:
        """Callbacks have been told on this task, if any task has some for this step; others may still read."""
        if any(total % every == 0 for every in self._rhythms):
            self._training.sync_point()

    def after(self, step: int, outputs: Outputs) -> bool:
        """Tells callbacks of steps, and saves if it is time; returns whether to stop."""
        recovery = self._recovery
        before = recovery.progress
        batches = step + self._first + 1
        recovery.check()
        recovery.passed(batches, outputs)
        self.logs = outputs
        total = self._training.advance(recovery.progress.total)
        due = [c for c, every in self._looking if total % every == 0]
        if due:
            logs = self.told()
            for callback in due:
                callback.on_train_batch_end(batches - 1, logs)
        self._told(total)
        if self._bars and time.monotonic() - self._shown > _BAR_SECONDS:
            self._shown = time.monotonic()
            for bar in self._bars:
                bar.on_train_batch_end(batches - 1, self.told())
        recovery.on_batches(before.batches)
        return self._stops(total)

    def told(self) -> dict[str, Any]:
        """What callbacks see of the last step's logs: a dict, with numbers for what has no shape."""
        logs = self.logs.last if isinstance(self.logs, Outputs) else self.logs
        return as_dict(logs)

    def _stops(self, total: int) -> bool:
        if self._last is not None and total >= self._last:
            return True
        if not self._runtime.stops_here(bool(self._training.stop_training)):
            return False
        self._training.stop_training = True
        return True


def as_dict(logs: Any) -> dict[str, Any]:
    """Returns logs of any structure by name: a dict's own names, "loss" for a number alone, else paths."""
    if not isinstance(logs, Mapping) and jax.tree.structure(logs) == jax.tree.structure(0):
        return {"loss": _shown(logs)}
    found = jax.tree_util.tree_flatten_with_path(logs)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): _shown(leaf) for path, leaf in found}


def _shown(value: Any) -> Any:
    array = np.asarray(value)
    return array if array.ndim else array.item()


def _every(callback: Any) -> int | None:
    """After how many steps a callback wants to be told; `None` for any number."""
    return getattr(callback, "every_n_steps", 1) if looks(callback, "train") else None
