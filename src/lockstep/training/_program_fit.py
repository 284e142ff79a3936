"""`Program.fit` on the engine's epochs: its arguments, its callbacks of steps, and its checkpoints."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import keras
import numpy as np

from lockstep._engine.input.feed import Feed
from lockstep._engine.keras.callbacks import callback_list, log_directory, looks_at_batches, only_chief_prints
from lockstep._engine.keras.fit import EpochDriver
from lockstep._engine.keras.recovery import Progress, Recovery
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import Outputs
from lockstep._engine.step.program import StepProgram
from lockstep._types import JSON, ArrayLike, PyTree
from lockstep.errors import ArgumentError
from lockstep.training._program_state import ProgramState
from lockstep.training._training import Training
from lockstep.training.callbacks._backup_and_restore import BackupAndRestore

_UNLIMITED = 1 << 30
# Keras' own bar is drawn at most every 0.05 s. Here each time waits for the devices, too.
_BAR_SECONDS = 0.1


@dataclass(frozen=True)
class Plan:
    """The length of a training, and its checkpoints; the arguments of `Program.fit`."""

    epochs: int | None
    steps_per_epoch: int | None
    steps: int | None
    checkpoint_dir: str | os.PathLike[str] | None
    save_every: Any
    keep_max: int

    def __post_init__(self) -> None:
        """Raises `ArgumentError` for what is no number, or too small."""
        for name in ("epochs", "steps_per_epoch", "steps"):
            value = getattr(self, name)
            # By type: True is an int to Python.
            if value is not None and (type(value) is not int or value < 1):
                raise ArgumentError(f"{name} is a number, at least 1, or None. Received: {value!r}.")
        if self.save_every not in ("epoch", None) and (type(self.save_every) is not int or self.save_every < 1):
            raise ArgumentError(
                f'save_every is a number of steps, at least 1, "epoch", or None. Received: {self.save_every!r}.'
            )
        if type(self.keep_max) is not int or self.keep_max < 1:
            raise ArgumentError(f"keep_max is a number of checkpoints, at least 1. Received: {self.keep_max!r}.")
        if self.epochs is not None and self.steps is not None:
            raise ArgumentError(
                f"Training ends with a number of epochs, or of steps. Received: epochs={self.epochs} and "
                f"steps={self.steps}. Leave one of them out; steps_per_epoch says when an epoch ends."
            )

    @property
    def last_epoch(self) -> int | None:
        """Returns after how many epochs training ends, unless it counts steps."""
        return self.epochs or (1 if self.steps is None else None)


class Checkpoints(BackupAndRestore):
    """Keeps checkpoints from which a training goes on, always one of its end.

    Args:
        directory: Their directory.
        save_every: After how many steps, or "epoch", or `None` for the end only.
        keep_max: How many are kept.
    """

    basename = "ckpt"

    def __init__(self, directory: Any, save_every: Any, keep_max: int) -> None:
        frequency = False if save_every is None else save_every
        # They stay, unlike backups: the same call, made again, returns the state of the end, or goes on to more epochs.
        super().__init__(directory, frequency, delete_checkpoint=False, keep=keep_max)

    def note_restored(self) -> None:
        """Notes that training begins with a checkpoint, which need not be saved again."""
        self._saved = self._now()

    def finish(self, is_done: bool) -> None:
        """Saves the end, if that is not done."""
        # Whoever calls fit again gets the state of the end, and no step is made.
        if is_done and self._saved != self._now():
            self._save()
        super().finish(is_done)


class ProgramFit:
    """One call of `Program.fit`, as a `lockstep._engine.keras.train_call.TrainCall`."""

    name = "Program.fit"
    validation = None
    initial_epoch = 0

    def __init__(
        self,
        state: ProgramState,
        program: StepProgram,
        feed: Feed,
        plan: Plan,
        callbacks: Sequence[Any] | None,
        verbose: Any,
        runtime: Runtime,
    ) -> None:
        for callback in callbacks or ():
            if not isinstance(callback, keras.callbacks.Callback):
                raise ArgumentError(
                    f"Callbacks of Program.fit are Keras' callbacks. Received: {callback!r:.60}. A function becomes "
                    "one with lockstep.training.Every(100, function)."
                )
        self.model = Training(state, runtime)
        self.data = feed
        self._state = state
        self._program = program
        self._plan = plan
        self._runtime = runtime
        self._checkpoints: list[Checkpoints] = []
        if plan.checkpoint_dir is not None:
            self._checkpoints.append(Checkpoints(plan.checkpoint_dir, plan.save_every, plan.keep_max))
        # Checkpoints last: what other callbacks change at a step is part of the checkpoint of that step.
        self._callbacks = callback_list(
            [*(callbacks or ()), *self._checkpoints],
            self.model,
            runtime,
            verbose,
            add_history=True,
            epochs=plan.last_epoch or 0,
            steps=feed.num_batches,
        )
        self._driver = EpochDriver(self, state, program, feed, self._callbacks, runtime, log_directory(callbacks))

    def run(self) -> dict[str, list[Any]]:
        """Trains; returns the logs of each epoch."""
        with only_chief_prints(self._runtime):
            self._driver.run()
        return self.model.history.history

    def facts(self, backups: JSON) -> dict[str, Any]:
        return {"epochs": self._plan.epochs, "total steps": self._plan.steps, "checkpoints": backups}

    def about(self) -> dict[str, Any]:
        return {
            "epochs": self._plan.epochs or "",
            "steps in all": self._plan.steps or "",
            "steps of an epoch": self.data.num_batches,
            "tasks": len(self._runtime.tasks),
        }

    def begin(self, progress: Progress, is_restored: bool) -> None:
        # Steps count over restarts, which `Every` and limits of steps depend on.
        self._state.global_step = progress.total
        if not is_restored:
            # Error feedback that an earlier training with the same program has left is not of this one.
            self._program.restore_extra_state({})
        else:
            for checkpoints in self._checkpoints:
                checkpoints.note_restored()
            # A checkpoint of a training that a callback has ended ends this one.
            self.model.stop_training = progress.stopped

    def has_all_steps(self, progress: Progress) -> bool:
        return self._plan.steps is not None and progress.total >= self._plan.steps

    def is_over(self, epoch: int, progress: Progress) -> bool:
        return self.model.stop_training or self._is_planned_end(epoch, progress)

    def _is_planned_end(self, epoch: int, progress: Progress) -> bool:
        """Returns whether all epochs, or all steps, are done before `epoch`."""
        last = self._plan.last_epoch
        return self.has_all_steps(progress) or (last is not None and epoch >= last)

    def begin_epoch(self, epoch: int) -> None:
        self.model.epoch = epoch

    def listener(self, epoch: int, recovery: Recovery) -> StepListener:
        del epoch
        return StepListener(self.model, self._state, self._callbacks, self._runtime, recovery, self._plan.steps)

    def flush_mode(self, epoch: int, progress: Progress) -> bool | None:
        # Until training ends, rounds of local SGD go on over epochs. Where a callback asks to stop, workers may not all
        # know it yet, and flushing is collective: the end of the epoch does that, once they have agreed.
        return True if self._is_planned_end(epoch + 1, progress) else None

    def epoch_logs(self, epoch: int, logs: PyTree) -> dict[str, Any]:
        del epoch
        return by_name(logs)

    def close(self, is_complete: bool) -> None:
        """Leaves everything as it is."""


class StepListener:
    """Calls each callback of steps as often as it asks for.

    Args:
        training: The `model` of callbacks.
        runtime: The workers; all dispatch alike, as often as the callbacks of any of them ask for.
        recovery: Knows how far training is, and saves.
        last: With how many steps training ends, or `None`.
    """

    def __init__(
        self,
        training: Training,
        state: ProgramState,
        callbacks: Any,
        runtime: Runtime,
        recovery: Recovery,
        last: int | None,
    ) -> None:
        self._training = training
        self._state = state
        self._runtime = runtime
        self._recovery = recovery
        self._last = last
        # With after how many steps each is called.
        called = [(c, getattr(c, "every_n_steps", 1)) for c in callbacks.callbacks if looks_at_batches(c, "train")]
        self._called = [(c, n) for c, n in called if runtime.is_chief or not getattr(c, "chief_only", False)]
        # Bars are updated now and then: what they show has to be waited for.
        self._bars = [c for c in callbacks.callbacks if isinstance(c, keras.callbacks.ProgbarLogger) and c.verbose == 1]
        self._shown = 0.0
        mine = sorted({n for _, n in called})
        self._intervals = {
            n for theirs in runtime.all_gather_object("how often callbacks look at steps", mine) for n in theirs
        }
        # The loop counts from 0 where an interrupted epoch goes on.
        self._first = recovery.progress.batches
        self.logs: Any = recovery.progress.logs

    def max_steps(self, step: int) -> int:
        """Returns how many steps may run before a callback is due, or a save."""
        total = self._recovery.progress.total
        # Dispatches end where any worker's callback is due, so that all workers dispatch alike.
        limits = [n - total % n for n in self._intervals]
        if self._last is not None:
            limits.append(self._last - total)
        until_save = self._recovery.max_steps(step + self._first)
        if until_save is not None:
            limits.append(until_save)
        return max(1, min(limits, default=_UNLIMITED))

    def before(self, step: int, steps: int) -> None:
        """Calls `on_train_batch_begin` of callbacks that will be called after these steps."""
        total = self._recovery.progress.total + steps
        for callback, every in self._called:
            if total % every == 0:
                callback.on_train_batch_begin(self._first + step + steps - 1)
        self._sync_point(total)

    def after(self, step: int, outputs: Outputs) -> bool:
        """Calls callbacks that are due, and saves after them; returns whether to stop."""
        recovery, training = self._recovery, self._training
        # `advance` puts another object in its place: this one keeps the count from before these steps.
        before = recovery.progress
        batches = step + self._first + 1
        recovery.check()
        recovery.advance(batches, outputs)
        self.logs = outputs
        total = self._state.global_step = recovery.progress.total
        due = [callback for callback, every in self._called if total % every == 0]
        # Reading logs waits for the step, so only if a callback is due.
        logs = by_name(outputs) if due else {}
        for callback in due:
            callback.on_train_batch_end(batches - 1, logs)
        # All workers come here after the same steps: those without a callback wait for those that read.
        self._sync_point(total)
        if self._bars and time.monotonic() - self._shown > _BAR_SECONDS:
            self._shown = time.monotonic()
            for bar in self._bars:
                bar.on_train_batch_end(batches - 1, by_name(outputs))
        # After the callbacks, whose state is part of a checkpoint.
        recovery.on_batches(before.batches)
        # The same on all tasks, so nothing is agreed on; what follows may be the wish of one of them.
        if self._last is not None and total >= self._last:
            return True
        if not self._runtime.stops_here(bool(training.stop_training)):
            return False
        training.stop_training = True
        return True

    def end(self) -> None:
        """Does nothing: each dispatch is a stride."""

    def _sync_point(self, total: int) -> None:
        """Waits for callbacks of other workers that may read the state, if any worker has some for this step."""
        if any(total % every == 0 for every in self._intervals):
            self._state.sync_point()


def by_name(logs: PyTree) -> dict[str, Any]:
    """Returns logs of any structure by name: a dict's own names, "loss" for a number alone, else paths."""
    if isinstance(logs, Outputs):
        logs = logs.last
    if not isinstance(logs, Mapping) and jax.tree.structure(logs) == jax.tree.structure(0):
        return {"loss": _number(logs)}
    leaves = jax.tree_util.tree_flatten_with_path(logs)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): _number(leaf) for path, leaf in leaves}


def _number(value: ArrayLike) -> Any:
    """Returns an array of no dimensions as a number."""
    array = np.asarray(value)
    return array if array.ndim else array.item()
