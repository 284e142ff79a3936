"""The evaluator task: a process that evaluates the checkpoints of a training."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from lockstep import checkpoint
from lockstep._engine.runtime.limits import Limits
from lockstep._types import JSON
from lockstep.errors import CheckpointError, PeerError, Preempted
from lockstep.estimator._estimator import Estimator, core_of
from lockstep.estimator._evaluation.checkpoints import Evaluations, Result, as_json
from lockstep.estimator._status import Status, StatusFile, StatusWatch
from lockstep.summary import scalars

if TYPE_CHECKING:
    from lockstep.estimator._train_and_evaluate import EvalSpec

_log = logging.getLogger("lockstep")
# Seconds between looks at the trainer's status.
_POLL_SECONDS = 0.5
# Seconds between warnings; TensorFlow's evaluator warns as often.
_WARN_SECONDS = 600.0


class Evaluator:
    """The loop of an evaluator: evaluates new checkpoints until the training has ended.

    Each round takes all checkpoints that are new, where TensorFlow's takes the latest; rounds begin at least
    `throttle_secs` after each other. TensorFlow's loop ends by `max_steps` alone, and never without.

    Source: _TrainingExecutor.run_evaluator.
    """

    def __init__(self, estimator: Estimator, spec: EvalSpec, max_steps: int | None) -> None:
        self._estimator = estimator
        self._spec = spec
        self._max_steps = max_steps
        self._evaluations = Evaluations(estimator, spec, max_steps, estimator.config.eval_distribute, exports=True)
        self._trainer = StatusWatch(estimator.model_dir, "trainer")
        self._file = StatusFile(estimator.model_dir, "evaluator")
        # By "follows" and "after" the trainer tells which of its runs this process evaluates.
        self._status: Status = {"is_final": False, "follows": None, "after": self._trainer.first.get("run")}
        self._status["evaluating"] = self._file.former.get("evaluating")
        self._started = time.monotonic()
        self._done: set[str] = set()
        self._warned = -float("inf")
        self._limits = Limits.from_environment()

    def run(self) -> Result:
        """Evaluates until the training ends; returns the last result.

        Raises:
            PeerError: If the trainer has failed, or none of this run is alive.
        """
        self._publish()
        with self._file.renew_in_background(), core_of(self._estimator).cache_programs():
            try:
                # A trainer that is alive shows it within a renewal. An evaluator that ends before it has seen one could
                # not say whom it has followed, and the next trainer would take this end for one of its own run.
                self._trainer.wait_for_renewal()
                seconds = self._spec.start_delay_secs
                if seconds:
                    _log.info("Waiting %f secs before starting eval.", seconds)
                    self._wait(self._started + seconds)
                # Event files are written before the exports are made: an evaluation that was interrupted in an earlier
                # process is repeated.
                interrupted = self._file.former.get("evaluating")
                steps = set(scalars(self._estimator.eval_dir(self._spec.name))) - {interrupted}
                paths = checkpoint.all_checkpoints(self._estimator.model_dir)
                self._done = {path for path in paths if checkpoint.step_of(path) in steps}
                while not self._run_round():
                    left = self._round_began + self._spec.throttle_secs - time.monotonic()
                    if left > 0:
                        _log.info("Waiting %f secs before starting next eval run.", left)
                    self._wait(self._round_began + max(self._spec.throttle_secs, _POLL_SECONDS))
            except BaseException as error:
                # The chief waits for the last evaluation unless it learns that there will be none.
                self._publish(error=f"{type(error).__name__}: {error}", is_restarted=_is_restarted(error))
                raise
        return self._evaluations.result

    def _publish(self, **changes: JSON) -> None:
        self._status.update(changes)
        self._file.publish(self._status)

    def _run_round(self) -> bool:
        """Evaluates new checkpoints; returns whether the training is over and evaluated."""
        self._round_began = time.monotonic()
        # Before the list of checkpoints: a trainer that has ended by now has written its last one.
        trainer = self._trainer_status()
        new = self._new_checkpoints()
        if not new and not _has_ended(trainer):
            self._warn()
        for path in new:
            self._evaluate(path)
        step = self._evaluations.step
        if self._max_steps is not None and step is not None and step >= self._max_steps:
            _log.info("Exiting evaluation, global_step=%s >= train max_steps=%s", step, self._max_steps)
        elif not _has_ended(trainer) or self._new_checkpoints():
            return False
        self._evaluations.finish()
        self._report(is_final=True)
        return True

    def _new_checkpoints(self) -> list[str]:
        """Returns checkpoints to evaluate, in order; the latest one also if an earlier process has evaluated it."""
        paths = checkpoint.all_checkpoints(self._estimator.model_dir)
        # Without one there is no result to return, and no end to recognize by `max_steps`.
        is_known = self._evaluations.step is not None
        return [p for i, p in enumerate(paths) if p not in self._done or (i == len(paths) - 1 and not is_known)]

    def _evaluate(self, path: str) -> None:
        # A process that is killed before the exports are made leaves this to the next one.
        self._publish(evaluating=checkpoint.step_of(path))
        try:
            # Pinned: the training deletes old checkpoints meanwhile.
            with checkpoint.pinned(path):
                self._evaluations.run(path)
        except CheckpointError:
            if checkpoint.checkpoint_exists(path):
                raise
            _log.info("%s has been deleted before it could be evaluated.", path)
        else:
            self._report()
        # Also a deleted one: training keeps the newest few, and may be faster than evaluation.
        self._done.add(path)

    def _report(self, is_final: bool = False) -> None:
        """Publishes the last result for the trainer."""
        result = as_json(self._evaluations.result)
        self._publish(is_final=is_final, step=self._evaluations.step, result=result, evaluating=None)

    def _trainer_status(self) -> Status:
        """Returns the trainer's status; an empty one while there is none of this run.

        Raises:
            PeerError: If it has failed, or is silent for too long.
        """
        state = self._trainer.look() or self._end_without_trainer()
        self._status["follows"] = state.get("run")
        if state.get("state") == "failed":
            raise PeerError(
                f"The training has failed, so the evaluation ends, after step {self._evaluations.step}. "
                f"{state['error']}"
            )
        # A trainer that has ended well is silent, too.
        if self._trainer.silent_seconds > self._limits.peer and not _has_ended(state):
            raise PeerError(self._describe_silence(state))
        return state

    def _end_without_trainer(self) -> Status:
        """Returns the status of a training that ended before this process started, if that is the one to evaluate."""
        # Its trainer has gone, so it may as well be an earlier run, with another one to come. It is not if an evaluator
        # has come to its end already. Else it counts when a new trainer would have arrived.
        status, former = self._trainer.latest, self._file.former
        is_evaluated = former.get("is_final") and former.get("follows") == status.get("run")
        waited = time.monotonic() - self._started
        if not _has_ended(status) or not self._trainer.may_be_of_this_run or is_evaluated:
            return {}
        if waited < self._limits.join:
            return {}
        if self._status["follows"] != status.get("run"):
            _log.warning(
                "No trainer has started in %s within %.0f s (LOCKSTEP_JOIN_TIMEOUT): the training that ended there at "
                "step %s before this evaluator started is the one that it evaluates.",
                self._estimator.model_dir,
                waited,
                status.get("step"),
            )
        return status

    def _describe_silence(self, state: Status) -> str:
        """Returns the error message for a trainer without a sign of life."""
        seconds, directory = self._trainer.silent_seconds, self._estimator.model_dir
        if state:
            return (
                f"The trainer has given no sign of life in {directory} for {seconds:.0f} s (LOCKSTEP_PEER_TIMEOUT). "
                "Look why chief and workers ended or hang, and start them again with the same model_dir."
            )
        status = self._trainer.latest
        earlier = f" The status there is of an earlier run: {_describe(status)}." if status else ""
        return (
            f"No trainer of this run has been alive in {directory} for {seconds:.0f} s "
            f"(LOCKSTEP_PEER_TIMEOUT).{earlier} Start chief and workers with the same model_dir, and the same "
            "LOCKSTEP_RUN_ID if it is set."
        )

    def _wait(self, until: float) -> None:
        """Waits, but not beyond the end of training."""
        while time.monotonic() < until and not _has_ended(self._trainer_status()):
            time.sleep(min(_POLL_SECONDS, max(0.0, until - time.monotonic())))

    def _warn(self) -> None:
        if time.monotonic() - self._warned < _WARN_SECONDS:
            return
        self._warned = time.monotonic()
        if self._evaluations.step is None:
            _log.warning("Estimator is not trained yet. Will start an evaluation when a checkpoint is ready.")
        else:
            _log.warning(
                "No new checkpoint ready for evaluation. Skip the current evaluation pass as evaluation results are "
                "expected to be same for the same checkpoint."
            )


def _has_ended(status: Status) -> bool:
    return status.get("state") == "ended"


def _describe(status: Status) -> str:
    """Returns a trainer's status for a message."""
    facts = {"id": status.get("run_id"), "step": status.get("step"), "error": status.get("error")}
    known = [f"{name} {value}" for name, value in facts.items() if value is not None]
    return ", ".join([str(status.get("state")), *known])


def _is_restarted(error: BaseException) -> bool:
    """Returns whether the launcher will start another process after this one."""
    # Other supervisors start a process again that was asked to end, and may give up on one that has failed.
    was_asked = isinstance(error, Preempted)
    left = os.environ.get("LOCKSTEP_PREEMPTIONS_LEFT" if was_asked else "LOCKSTEP_RESTARTS_LEFT")
    return was_asked if left is None else left != "0"
