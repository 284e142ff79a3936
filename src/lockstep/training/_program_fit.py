"""The loop of `Program.fit`: epochs, callbacks, checkpoints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras

from lockstep._engine.input.feed import Feed
from lockstep._engine.keras import agreement, running
from lockstep._engine.keras.callbacks import callback_list, only_chief_prints
from lockstep._engine.keras.recovery import Recovery
from lockstep._engine.loop import loop
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.program import StepProgram
from lockstep.errors import ArgumentError, Preempted
from lockstep.training._program_checkpoints import Checkpoints
from lockstep.training._program_listener import StepListener
from lockstep.training._program_state import ProgramState
from lockstep.training._training import Training


@dataclass(frozen=True)
class Plan:
    """For how long to train, and what is saved; the arguments of `Program.fit`."""

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
        """After how many epochs training ends, if it does."""
        return self.epochs or (1 if self.steps is None else None)

    def checkpoints(self) -> list[Checkpoints]:
        """What keeps them."""
        if self.checkpoint_dir is None:
            return []
        return [Checkpoints(self.checkpoint_dir, self.save_every, self.keep_max)]


class Fit:
    """One call of `Program.fit`.

    Args:
        state: What is trained.
        program: The step.
        feed: The data.
        plan: For how long.
        callbacks: The caller's.
        verbose: As in Keras.
        runtime: Who takes part.
    """

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
        self._state = state
        self._program = program
        self._feed = feed
        self._plan = plan
        self._runtime = runtime
        self._training = Training(state)
        self._keepers = plan.checkpoints()
        self._callbacks = callback_list(
            [*_checked(callbacks), *self._keepers],
            self._training,
            runtime,
            verbose,
            add_history=True,
            epochs=plan.last_epoch or 0,
            steps=feed.num_batches,
        )
        self._recovery = Recovery(self._training, state, feed, program, self._callbacks, runtime)

    @property
    def history(self) -> dict[str, list[Any]]:
        """The logs of each epoch."""
        return self._training.history.history

    def run(self) -> None:
        """Trains."""
        is_done = False
        try:
            with only_chief_prints(self._runtime):
                with self._recovery.beginning():
                    self._callbacks.on_train_begin()
                self._train(self._begin())
            is_done = True
        finally:
            self._recovery.finish(is_done)

    def _begin(self) -> int:
        """Starts everyone from the chief's state, or from its newest checkpoint; returns the epoch."""
        plan = self._plan
        facts = {"epochs": plan.epochs, "total steps": plan.steps}
        facts["checkpoints"] = self._recovery.facts()
        mine = [0, self._recovery.word()]
        first, word = agreement.begin_run(self._runtime, "Program.fit", self._state, facts, self._feed, mine)
        self._program.restore_extra_state({})  # What an earlier training has left is none of this one's.
        progress = self._recovery.resume(first, word)
        self._state.global_step = progress.total
        if word is not None:
            for keeper in self._keepers:
                keeper.note_restored()
            # What ended is over, unless it is to go on for longer now.
            self._training.stop_training = progress.stopped
        return progress.epoch

    def _train(self, epoch: int) -> None:
        logs: dict[str, Any] = {}
        try:
            while not self._is_over(epoch):
                logs = self._epoch(epoch)
                if self._has_all_steps:
                    break
                stops = running.stops(self._runtime, epoch, self._training)
                if stops:
                    self._settle()
                self._recovery.on_epoch(epoch, stops)
                epoch += 1
        except Preempted:
            running.preempted(self._callbacks)
            raise
        self._runtime.release(logs)
        self._callbacks.on_train_end(logs=logs)

    def _is_over(self, epoch: int) -> bool:
        last = self._plan.last_epoch
        return self._training.stop_training or self._has_all_steps or (last is not None and epoch >= last)

    @property
    def _has_all_steps(self) -> bool:
        return self._plan.steps is not None and self._recovery.progress.total >= self._plan.steps

    def _epoch(self, epoch: int) -> dict[str, Any]:
        training, recovery = self._training, self._recovery
        training.epoch = epoch
        progress = recovery.begin_epoch(epoch)
        self._callbacks.on_epoch_begin(epoch)
        recovery.resume_epoch()
        agreement.begin_epoch(self._runtime, epoch, self._state, self._feed)
        listener = StepListener(training, self._callbacks, self._runtime, recovery, self._plan.steps, epoch)
        if not progress.trained:
            steps = self._drive(listener)
            if steps + progress.batches == 0:
                running.run_dry(self._feed, epoch, self._training)
            recovery.trained(listener.logs)
        self._callbacks.on_epoch_end(epoch, listener.told())
        return listener.told()

    def _drive(self, listener: StepListener) -> int:
        """Runs the loop over the batches of an epoch that are left; returns how many."""
        with self._feed.epoch(self._state.shapes()) as batches:
            try:
                steps = loop.run(batches, self._program, self._state, listener)
            except Preempted:
                self._recovery.interrupted()
                raise
            if self._has_all_steps or self._is_over(self._recovery.progress.epoch + 1):
                self._settle()
            self._state.together()  # For callbacks of epochs, on any worker.
            if self._has_all_steps:
                self._recovery.interrupted()  # Whoever trains for longer later goes on in the middle of this epoch.
            return steps

    def _settle(self) -> None:
        """Training ends: has the state hold what replicas came to by themselves."""
        self._state.give(self._program.synchronize(self._state.take(), ends=True))


def _checked(callbacks: Sequence[Any] | None) -> list[Any]:
    found = list(callbacks or ())
    for callback in found:
        if not isinstance(callback, keras.callbacks.Callback):
            raise ArgumentError(
                f"Callbacks of Program.fit are Keras' callbacks. Received: {callback!r:.60}. A function becomes one "
                "with lockstep.training.Every(100, function)."
            )
    return found
