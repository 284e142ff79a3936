"""The evaluator: a process of its own, which follows the checkpoints of a training."""

from __future__ import annotations

import logging
import time
from typing import Any

from lockstep import checkpoint
from lockstep._runtime.generation import generation
from lockstep._runtime.limits import Limits
from lockstep.errors import CheckpointError, PeerError
from lockstep.estimator._estimator import Estimator, engine_of
from lockstep.estimator._evaluating import Evaluations, Result, as_json
from lockstep.estimator._signs import Sign
from lockstep.summary import scalars

_log = logging.getLogger("lockstep")
_POLL_SECONDS = 0.5
_WARN_SECONDS = 600.0
# A trainer's end that is so much older than this process is the end of an earlier run.
_STALE_SECONDS = 60.0


class Evaluator:
    """Evaluates every checkpoint that it can, until the training has ended.

    Each round takes all checkpoints that are new; rounds begin at least `throttle_secs` after each other.

    Args:
        estimator: Whose.
        spec: An `EvalSpec`.
        max_steps: Of the training, or `None`.
    """

    def __init__(self, estimator: Estimator, spec: Any, max_steps: int | None) -> None:
        self._estimator = estimator
        self._spec = spec
        self._max_steps = max_steps
        self._evaluations = Evaluations(estimator, spec, max_steps, estimator.config.eval_distribute, exports=True)
        self._trainer = Sign(estimator.model_dir, "trainer")
        self._own = Sign(estimator.model_dir, "evaluator")
        self._started = time.monotonic()
        self._old_run = self._trainer.read().get("run") if self._trainer.age() > _STALE_SECONDS else None
        # Started together with this process; what an earlier one came to is not its trainer's end.
        self._generation = generation()
        self._done: set[str] = set()
        self._warned = -float("inf")
        self._silence = Limits.from_environment().peer

    def run(self) -> Result:
        """Evaluates until the training ends; returns the last result.

        Raises:
            PeerError: If the trainer has failed, or gives no sign of life.
        """
        self._own.write({"is_final": False})
        with self._own.renewed(), engine_of(self._estimator).keeping_programs():
            try:
                self._follow()
            except BaseException as error:
                self._own.write({"is_final": False, "error": f"{type(error).__name__}: {error}"})
                raise
        return self._evaluations.result

    def _follow(self) -> None:
        self._delay()
        self._done = self._evaluated_before()
        while not self._round():
            self._pause()

    def _delay(self) -> None:
        seconds = self._spec.start_delay_secs
        if seconds:
            _log.info("Waiting %f secs before starting eval.", seconds)
            self._wait(self._started + seconds)

    def _round(self) -> bool:
        """Evaluates what is new; returns whether that was all there will be."""
        self._round_began = time.monotonic()
        state = self._state()
        new = self._new()
        if not new and not self._has_ended(state):
            self._warn()
        for path in new:
            self._evaluate(path)
        return self._is_over(state)

    def _new(self) -> list[str]:
        """Checkpoints that were not evaluated, in order; the latest one also if an earlier process has done so."""
        paths = checkpoint.all_checkpoints(self._estimator.model_dir)
        is_known = self._evaluations.step is not None
        return [p for i, p in enumerate(paths) if p not in self._done or (i == len(paths) - 1 and not is_known)]

    def _evaluate(self, path: str) -> None:
        try:
            with checkpoint.pinned(path):
                self._evaluations.run(path)
        except CheckpointError:
            if checkpoint.checkpoint_exists(path):
                raise
            _log.info("%s has been deleted before it could be evaluated.", path)
        else:
            self._report()
        self._done.add(path)

    def _report(self, is_final: bool = False) -> None:
        """Leaves the last result for the trainer."""
        result = as_json(self._evaluations.result)
        self._own.write({"is_final": is_final, "step": self._evaluations.step, "result": result})

    def _is_over(self, state: dict[str, Any]) -> bool:
        step = self._evaluations.step
        if self._max_steps is not None and step is not None and step >= self._max_steps:
            _log.info("Exiting evaluation, global_step=%s >= train max_steps=%s", step, self._max_steps)
        elif not self._has_ended(state) or self._new():
            return False
        self._evaluations.finish()
        self._report(is_final=True)
        return True

    def _state(self) -> dict[str, Any]:
        """What the trainer says of itself; nothing if that is of an earlier run.

        Raises:
            PeerError: If it has failed, or is silent for too long.
        """
        state = self._trainer.read()
        if state.get("run") == self._old_run or state.get("generation", self._generation) < self._generation:
            state = {}
        if state.get("state") == "failed":
            raise PeerError(
                f"The training has failed, so the evaluation ends, after step {self._evaluations.step}. "
                f"{state['error']}"
            )
        silent = min(self._trainer.age(), time.monotonic() - self._started)
        if silent > self._silence and not self._has_ended(state):
            raise PeerError(
                f"The trainer has given no sign of life in {self._estimator.model_dir} for {silent:.0f} s "
                "(LOCKSTEP_PEER_TIMEOUT). Start chief and workers with the same model_dir, or look why they ended."
            )
        return state

    def _has_ended(self, state: dict[str, Any]) -> bool:
        return state.get("state") == "ended"

    def _pause(self) -> None:
        left = self._round_began + self._spec.throttle_secs - time.monotonic()
        if left > 0:
            _log.info("Waiting %f secs before starting next eval run.", left)
        self._wait(self._round_began + max(self._spec.throttle_secs, _POLL_SECONDS))

    def _wait(self, until: float) -> None:
        """Waits, but not beyond the end of training."""
        while time.monotonic() < until and not self._has_ended(self._state()):
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

    def _evaluated_before(self) -> set[str]:
        """The checkpoints that an earlier process of this evaluator has written results of."""
        steps = scalars(self._estimator.eval_dir(self._spec.name))
        paths = checkpoint.all_checkpoints(self._estimator.model_dir)
        return {path for path in paths if checkpoint.step_of(path) in steps}
