"""Input positions and random states in an Estimator's checkpoints, so that a restart trains on the next batch.

A call of `train` that has ended well is over: the next one begins with the beginning of its data, as in TensorFlow.
Only one that was interrupted is gone on with.
"""

from __future__ import annotations

import logging
from typing import Any

from lockstep import checkpoint
from lockstep._engine.input import broadcast, random_state
from lockstep._engine.input.feed import Feed
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.protocol import Program
from lockstep.errors import LockstepError

_log = logging.getLogger("lockstep")

_KEY = "training"
# Of the entry in a checkpoint; another one is not understood, and the data begin anew.
_VERSION = 1
_RESIDUALS = "lockstep/residuals/"


class RestoredPosition:
    """The input position in a checkpoint (on the chief, if there is one), on its way to all workers."""

    def __init__(self, program: Program, is_chief: bool, loaded: checkpoint.Checkpoint | None) -> None:
        self._program = program
        self._is_chief = is_chief
        self._message = None
        if loaded is not None:
            arrays = {k: v for k, v in loaded.arrays.items() if k.startswith(_RESIDUALS)}
            # Bytes, as only their number goes through the agreement at the start; the rest is broadcast.
            self._message = broadcast.to_bytes(loaded.extra.get(_KEY), arrays)
        self.training: dict[str, Any] | None = None
        self.residuals: dict[str, Any] = {}
        self.is_new = True

    def message_size(self) -> int | None:
        """Returns the size of the chief's message in bytes, or `None` without a checkpoint."""
        return None if self._message is None else len(self._message)

    def receive(self, size: int | None) -> None:
        """Receives the position from the chief; a collective call."""
        if size is None:
            return
        self.is_new = False
        self.training, arrays = broadcast.from_chief(self._program, self._is_chief, self._message, size)
        self.residuals = {k.removeprefix(_RESIDUALS): v for k, v in arrays.items()}


class InputState:
    """The state of one `train` call's input, and of compression, that checkpoints keep."""

    def __init__(self, runtime: Runtime, feed: Feed, program: Program) -> None:
        self._runtime = runtime
        self._feed = feed
        self._program = program
        self._has_warned = False

    def to_checkpoint(self, batches: int, together: bool, has_ended: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns arrays and JSON for a checkpoint after that many batches; `together`: all tasks call it at once."""
        # Random states, too: dropout and shuffles of the next steps are those of a run that was not interrupted.
        training: dict[str, Any] = {"version": _VERSION, "ended": has_ended, "random": random_state.snapshot()}
        # One worker alone knows its own position only; others' are unknown to it.
        is_complete = together or self._runtime.is_alone
        if is_complete and not has_ended:
            training["data"] = self._feed.position(batches)
        elif not is_complete and not self._has_warned:
            self._has_warned = True
            self._log_on_chief(
                "With several workers, a checkpoint that only one of them saves does not hold the position in the "
                "data. Give CheckpointSaverHook to all (hooks, not training_chief_hooks)."
            )
        residuals = self._program.extra_state() if is_complete else {}
        return {f"{_RESIDUALS}{k}": v for k, v in residuals.items()}, {_KEY: training}

    def restore(self, position: RestoredPosition) -> None:
        """Resumes an interrupted call of `train`; a collective call.

        Without a position in the checkpoint, or with other data, the input starts from its beginning.
        """
        if position.is_new:
            return
        # Error feedback of compressed gradients: without it, a restart would lose what the last steps held back.
        self._program.restore_extra_state(position.residuals)
        training = position.training or {}
        if training.get("version") != _VERSION:
            self._log_on_chief("The checkpoint does not say how far the data were used: they begin at their beginning.")
            return
        # A complete call: as in TensorFlow, the next one begins with the beginning of its data.
        if training["ended"]:
            return
        if training.get("data") is None:
            self._log_on_chief(
                "One worker alone saved the checkpoint, without the position in the data: they begin anew."
            )
            return
        random_state.restore(training["random"])
        data, why = {**training["data"], "taken": 0}, None
        try:
            self._feed.resume(data)
        except LockstepError as error:
            why = str(error)
        # If one worker's data are others than before, all begin anew: else replicas would be passes apart.
        answers = self._runtime.all_gather_object("the position in the data", why)
        if any(answers):
            self._feed.rewind()
            reason = next(filter(None, answers))
            self._log_on_chief(
                f"The data begin at their beginning, and not where training was interrupted. {reason}", True
            )
        elif self._runtime.is_chief:
            _log.info("The data go on after batch %d of their pass.", data["batches"])

    def _log_on_chief(self, message: str, is_warning: bool = False) -> None:
        if self._runtime.is_chief:
            _log.log(logging.WARNING if is_warning else logging.INFO, "%s", message)
