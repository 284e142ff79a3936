"""A `fit` that can be interrupted and goes on exactly: what has to be saved, and how it is restored.

A callback that keeps training (`lockstep.training.callbacks.BackupAndRestore`) decides when, and holds the files; here
is what goes into them. All tasks take part in saving and restoring, because a position in the data may be in parts;
only the chief has the files.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import jax
import numpy as np

from lockstep._engine.input import random_state, sending
from lockstep._engine.input.feed import Feed
from lockstep._engine.keras import callback_states, packing
from lockstep._engine.keras.agreement import Shared
from lockstep._engine.runtime import failure, progress_file
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.protocol import Program
from lockstep._engine.step.steps_per_execution import Outputs
from lockstep.errors import ArgumentError, CheckpointError

_log = logging.getLogger("lockstep")

_VERSION = 1
_RESIDUALS = "residuals/"
_SAVE_FAILED = "a backup could not be written"
_CHANGING = ("metrics_variables/", "non_trainable_variables/")
_STATES = ("trainable_variables/", "non_trainable_variables/", "optimizer_variables/", "metrics_variables/", "state/")

Arrays = dict[str, Any]


class Held(Shared, Protocol):
    """What is trained, as arrays by name."""

    def arrays(self, starts: tuple[str, ...] = ("",)) -> Arrays:
        """Returns this process' copies; their names begin with one of `_STATES`, and with one of `starts`."""
        ...

    def assign(self, arrays: Mapping[str, Any]) -> None:
        """Takes over what `arrays` has returned."""
        ...


class Keeper(Protocol):
    """A callback that keeps backups of a training. What it says must be the same on all tasks, but for `load`."""

    def attach_run(self, run: Recovery) -> None:
        """A training that can be saved is about to begin."""
        ...

    def facts(self) -> Any:
        """Returns what must be equal on all tasks, as JSON."""
        ...

    def load(self) -> tuple[Arrays, dict[str, Any]] | None:
        """Returns the arrays and the JSON of the newest backup; called on the chief."""
        ...

    def room(self, batches: int) -> int | None:
        """Returns after how many more batches to save, counted from the beginning of training; or `None`."""
        ...

    def on_batches(self, before: int, batches: int) -> None:
        """Training has come from so many batches to so many."""
        ...

    def on_epoch(self) -> None:
        """An epoch has ended, and all callbacks know."""
        ...

    def check(self) -> None:
        """Raises what a save in the background has failed with; called on the chief."""
        ...

    def finish(self, is_done: bool) -> None:
        """The training has ended, well if `is_done`."""
        ...


@dataclass
class Progress:
    """How far a training has come.

    Attributes:
        epoch: The epoch that is under way, or that comes next.
        begun: Whether callbacks were told that it begins.
        batches: How many batches of it were trained on.
        trained: Whether those are all of its batches; what follows is the evaluation.
        total: How many batches in all, since training began.
        stopped: Whether training ends here, because a callback said so.
        logs: What the last step handed out: `Outputs`, or a structure of arrays.
    """

    epoch: int = 0
    begun: bool = False
    batches: int = 0
    trained: bool = False
    total: int = 0
    stopped: bool = False
    logs: Any = field(default_factory=dict)


class Recovery:
    """What one call of `fit` needs to be saved and to go on.

    Args:
        model: The model.
        state: Its variables.
        feed: The data.
        program: The step program.
        callbacks: A `keras.callbacks.CallbackList`.
        runtime: Who takes part.

    Raises:
        ArgumentError: If there are several callbacks that keep backups.
    """

    def __init__(self, model: Any, state: Held, feed: Feed, program: Program, callbacks: Any, runtime: Runtime) -> None:
        self._model = model
        self._state = state
        self._feed = feed
        self._program = program
        self._callbacks = callbacks
        self._runtime = runtime
        self._keeper = _keeper_of(callbacks)
        self._found: tuple[Arrays, dict[str, Any]] | None = None
        self._resumed: dict[str, Any] | None = None
        self._callback_arrays: sending.Arrays = {}
        self._sent: np.ndarray[Any, Any] | None = None
        self._applies_again = False
        self._failure: CheckpointError | None = None
        # Where the data stood when training was interrupted; and what there was when the steps of an epoch were done,
        # before the evaluation and the callbacks that follow have changed it.
        self._interrupted: dict[str, Any] | None = None
        self._trained: tuple[Arrays, dict[str, Any]] | None = None
        self.progress = Progress()
        self.validation: Any = None

    @property
    def is_chief(self) -> bool:
        """Whether this task has the files."""
        return self._runtime.is_chief

    @property
    def is_restored(self) -> bool:
        """Whether nothing of a backup that was found is still to be restored."""
        return not self._applies_again

    def facts(self) -> Any:
        """What must be equal on all tasks."""
        return None if self._keeper is None else self._keeper.facts()

    # Beginning.

    @contextlib.contextmanager
    def beginning(self) -> Generator[None]:
        """Comes around `on_train_begin`: reads the backup before callbacks begin files of theirs anew."""
        if self._keeper is not None:
            self._keeper.attach_run(self)
            self._found = self._keeper.load() if self.is_chief else None
            if self._found is not None:
                progress_file.mark("restored")
            _check_version(self._found)
        with callback_states.files_kept(self._callbacks.callbacks if self._found else ()):
            yield

    def word(self) -> int | None:
        """Returns what the chief tells the others first: how many bytes it will send; or `None` if all is new."""
        if self._found is None:
            return None
        self._sent = sending.to_bytes(self._found[1], _others(self._found[0]))
        return len(self._sent)

    def resume(self, epoch: int, size: int | None) -> Progress:
        """Restores what the chief has found; all tasks call it after they have heard its word.

        Returns:
            Where training goes on: at the beginning of `epoch` if nothing was found.

        Raises:
            CheckpointError: If it does not fit the model or the data.
        """
        self.progress = Progress(epoch)
        if size is None:
            return self.progress
        extra, self._callback_arrays = sending.from_chief(self._program, self.is_chief, self._sent, size)
        self._resumed = extra
        self.progress = Progress(**packing.unpacked(extra["progress"], self._callback_arrays))
        self._applies_again = self.progress.begun
        self._apply(with_data=not self.progress.begun)
        if self.is_chief:
            _log.info("Training goes on in epoch %d, after %d of its batches.", *self._where())
        return self.progress

    def resume_epoch(self) -> None:
        """Restores once more what callbacks did when they were told that an epoch begins which had begun before."""
        if self._applies_again:
            self._apply(with_data=True)
        self._resumed, self._found, self._applies_again = None, None, False

    def _where(self) -> tuple[int, int]:
        return self.progress.epoch + 1, self.progress.batches

    def _apply(self, with_data: bool) -> None:
        extra = self._resumed
        assert extra is not None
        if self._found is not None:
            self._state.assign({k: v for k, v in self._found[0].items() if k.startswith(_STATES)})
        if not self._runtime.is_alone:
            self._state.follow_chief(everything=True)
        arrays = self._found[0] if self._found is not None else {}
        residuals = {k.removeprefix(_RESIDUALS): v for k, v in arrays.items() if k.startswith(_RESIDUALS)}
        self._program.restore_extra_state(residuals)
        saved = packing.unpacked(extra["callbacks"], self._callback_arrays)
        callback_states.restore(self._callbacks.callbacks, saved, self.is_chief)
        random_state.restore(extra["random"])
        if with_data:
            self._resume_data(extra)

    def _resume_data(self, extra: dict[str, Any]) -> None:
        try:
            self._feed.resume(extra["data"])
        except ArgumentError as error:
            raise CheckpointError(
                f"The backup is of a training with other data: {error} Or begin anew in another directory."
            ) from error
        if self.validation is not None:
            self.validation.position = extra["validation"]

    # While it runs.

    def begin_epoch(self, epoch: int) -> Progress:
        """An epoch begins; returns where."""
        if self.progress.epoch != epoch or not self.progress.begun:
            self.progress = Progress(epoch, begun=True, total=self.progress.total)
        return self.progress

    def room(self, step: int) -> int | None:
        """Returns how many steps may run, from `step` of this epoch on, before there is something to save."""
        if self._keeper is None:
            return None
        return self._keeper.room(self.progress.total + step - self.progress.batches)

    def check(self) -> None:
        """Raises what a save has failed with: on all tasks after the same step, if they hear of each other's input.

        With arrays in memory they do not; then the chief fails, and the others because of it.
        """
        if self._keeper is None:
            return
        try:
            if self.is_chief:
                self._keeper.check()
        except CheckpointError as error:
            if self._runtime.is_alone or self._feed.source.in_memory:
                raise
            self._failure = error
            self._feed.ask(_SAVE_FAILED)
        if not self._runtime.is_alone and self._feed.told(_SAVE_FAILED):
            self.demand_saved(None)

    def passed(self, batches: int, logs: Any) -> None:
        """Notes how many batches of this epoch were trained on, and what the last step handed out."""
        before = self.progress
        self.progress = replace(before, batches=batches, total=before.total + batches - before.batches, logs=logs)

    def on_batches(self, before: int) -> None:
        """All callbacks have been told of the batches from `before` of this epoch on."""
        if self._keeper is not None:
            passed = self.progress.batches - before
            self._keeper.on_batches(self.progress.total - passed, self.progress.total)

    def on_epoch(self, epoch: int, stopped: bool) -> None:
        """An epoch has ended, and all callbacks know; `stopped` if training ends with it."""
        self._trained = None
        self.progress = Progress(epoch + 1, total=self.progress.total, stopped=stopped)
        if self._keeper is not None:
            self.demand_saved(None)
            self._keeper.on_epoch()

    def interrupted(self) -> None:
        """Training is about to end between two steps: notes where the data stand, as long as they are open."""
        if self._keeper is not None:
            self._interrupted = self._feed.position(self.progress.batches)

    def trained(self, logs: Any) -> None:
        """The steps of an epoch are done: if what follows is interrupted, this is what is saved."""
        self.progress = replace(self.progress, trained=True, logs=logs)
        if self._keeper is not None:
            arrays: Arrays = {k: np.array(v) for k, v in self._state.arrays(_CHANGING).items()}
            self._trained = arrays, self._of_process(arrays)

    def finish(self, is_done: bool) -> None:
        """The training has ended."""
        if self._keeper is not None:
            self._keeper.finish(is_done)

    # Saving.

    def is_sound(self) -> bool:
        """Whether all steps so far count; all tasks call it.

        After one that was not finite, and for which training is about to end, steps have been undone without being
        told of: the data stand after them, and the weights before.
        """
        reports: Any = getattr(self._program, "reports", None)
        if reports is None:
            return True
        reports.settle()
        return reports.ended is None

    def snapshot(self) -> tuple[int, Arrays, dict[str, Any]]:
        """Returns all that training depends on: the number of batches so far, arrays, and JSON; all tasks call it.

        The arrays may be changed by the next step.
        """
        # A process that was stopped, and given up by the others, must not write over what they have saved since.
        self._runtime.demand_current()
        arrays: Arrays = dict(self._state.arrays())
        arrays.update({f"{_RESIDUALS}{k}": v for k, v in self._program.extra_state().items()})
        if self._trained is None:
            process = self._of_process(arrays)
        else:
            before, process = self._trained
            arrays.update(before)
        extra = {
            "version": _VERSION,
            "progress": self._packed_progress(arrays),
            "data": self._interrupted or self._feed.position(self.progress.batches),
            "validation": None if self.validation is None else self.validation.saved(),
            **process,
        }
        return self.progress.total, arrays, extra

    def _packed_progress(self, arrays: Arrays) -> Any:
        logs = self.progress.logs
        logs = jax.tree.map(np.asarray, logs.last if isinstance(logs, Outputs) else logs)
        return packing.packed({**vars(self.progress), "logs": logs}, "progress", arrays)

    def _of_process(self, arrays: Arrays) -> dict[str, Any]:
        """What is neither in variables nor in the data."""
        states = callback_states.states(self._callbacks.callbacks)
        return {"callbacks": packing.packed(states, "callbacks", arrays), "random": random_state.snapshot()}

    def agree(self, topic: str, value: Any) -> list[Any]:
        """Exchanges JSON between the tasks."""
        return self._runtime.agree(topic, value)

    def demand_saved(self, error: CheckpointError | None) -> None:
        """Raises the chief's error, if it has one, on all tasks; all call it."""
        error = error or self._failure
        told = self.agree("the backup", str(error) if error is not None else None)[0]
        if told is not None:
            raise failure.mark_agreed(error or CheckpointError(f"{self._runtime.tasks[0]}: {told}"))


def _keeper_of(callbacks: Any) -> Any:
    found = [c for c in callbacks.callbacks if hasattr(c, "attach_run")]
    if len(found) > 1:
        raise ArgumentError(
            f"One callback keeps the backups of a training. Received: {len(found)} of them. Keep one BackupAndRestore; "
            "for more copies of the model there is ModelCheckpoint."
        )
    return found[0] if found else None


def _others(arrays: Arrays) -> Arrays:
    """What is sent as it is: all but variables and residuals, which have ways of their own."""
    return {k: v for k, v in arrays.items() if not k.startswith((*_STATES, _RESIDUALS))}


def _check_version(found: tuple[Arrays, dict[str, Any]] | None) -> None:
    if found is not None and found[1].get("version") != _VERSION:
        raise CheckpointError(
            f"A backup must have been written by BackupAndRestore (version {_VERSION}). Received: a checkpoint that "
            "holds something else. Give BackupAndRestore a directory of its own."
        )
