"""Hooks that end training: at a step, on a NaN loss, or because they would wait for other workers."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import jax
import numpy as np

from lockstep._types import Array, Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator._hooks._base import (
    GLOBAL_STEP,
    GLOBAL_STEP_ARGS,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from lockstep.estimator._types import Session

_log = logging.getLogger("lockstep")
# Losses are read up to 8 steps late: waiting for one would keep Python from dispatching steps ahead of the device.
_UNREAD = 8
_MESSAGE = "Model diverged with loss = NaN."


class NanLossDuringTrainingError(RuntimeError):
    """The loss is NaN.

    Source: tf.estimator.NanLossDuringTrainingError.
    """

    def __str__(self) -> str:
        return "NaN loss during training."


class NanTensorHook(SessionRunHook):
    """Stops training when the loss is NaN, at most a few steps later; all workers stop after the same step.

    No checkpoint is written in between: saving calls `settle` first.

    Args:
        loss_tensor: The loss: its name, or a value of the model_fn.
        fail_on_nan_loss: Whether to raise `NanLossDuringTrainingError`, or else to request stop.

    Source: tf.estimator.NanTensorHook.
    """

    def __init__(self, loss_tensor: Tensor, fail_on_nan_loss: bool = True) -> None:
        self._loss_tensor = loss_tensor
        self._fail = fail_on_nan_loss
        # (step, loss) pairs.
        self._unread: deque[tuple[int, Any]] = deque()
        self._diverged = False
        self._is_alone = True

    def begin(self) -> None:
        """Clears losses of an earlier session."""
        self._unread.clear()
        self._diverged = False
        # Not before `begin`: a hook may be made before a strategy joins the cluster.
        self._is_alone = jax.process_count() == 1

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Requests the loss and its step."""
        return SessionRunArgs({"loss": self._loss_tensor, "step": GLOBAL_STEP}, raw=True)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Checks the losses that are computed by now; with several workers, those that all have."""
        results = run_values.results
        self._unread.append((int(results["step"]), results["loss"]))
        # TensorFlow's hook waits for the loss of each step. With several workers not even `is_ready` counts: it differs
        # between them, and all must stop after the same step.
        while self._unread and (len(self._unread) > _UNREAD or (self._is_alone and _is_ready(self._unread[0][1]))):
            self._read()
        if self._diverged:
            run_context.request_stop()

    def settle(self) -> None:
        """Waits for all losses and checks them.

        Raises:
            NanLossDuringTrainingError: If one is NaN, and the hook is to fail.
        """
        # Saving a checkpoint calls it, so that NaN weights do not replace good ones.
        while self._unread:
            self._read()

    def end(self, session: Session) -> None:
        """Checks the last losses."""
        self.settle()

    def next_step(self, step: int) -> int:
        """Returns `step`: the losses of all steps are checked, whenever the hook is called."""
        return step

    def _read(self) -> None:
        """Checks the oldest loss."""
        step, loss = self._unread.popleft()
        if not np.isnan(np.asarray(loss)).any():
            return
        self._unread.clear()
        if self._fail:
            _log.error(_MESSAGE)
            error = NanLossDuringTrainingError()
            # A note, as programs compare the text with TensorFlow's.
            error.add_note(f"It is the loss of global step {step}. The newest checkpoint is of a step before it.")
            raise error
        _log.warning(_MESSAGE)
        self._diverged = True


def _is_ready(value: Array) -> bool:
    return value.is_ready() if hasattr(value, "is_ready") else True


class StopAtStepHook(SessionRunHook):
    """Requests stop after a number of steps, or at a step.

    Args:
        num_steps: Number of steps.
        last_step: The global step at which to stop; one of the two must be given.

    Source: tf.estimator.StopAtStepHook.

    Raises:
        ArgumentError: If none or both are given.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ArgumentError("One of num_steps or last_step must be specified. Received: neither; give one.")
        if num_steps is not None and last_step is not None:
            raise ArgumentError(
                "Only one of num_steps or last_step can be specified. Received: "
                f"num_steps={num_steps!r} and last_step={last_step!r}; leave one out."
            )
        self._num_steps = num_steps
        self._last_step = last_step

    @property
    def last_step(self) -> int | None:
        """Returns the global step at which to stop; None before the session exists."""
        return self._last_step

    def after_create_session(self, session: Session, coord: object) -> None:
        """Computes the last step, if steps are to be counted from here."""
        if self._last_step is None:
            self._last_step = int(session.run(GLOBAL_STEP)) + (self._num_steps or 0)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Asks for the global step."""
        return GLOBAL_STEP_ARGS

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Requests stop, if the last step is done."""
        if self._last_step is not None and int(run_values.results) >= self._last_step:
            run_context.request_stop()

    def next_step(self, step: int) -> int:
        """Returns the last step."""
        # Past it, each step: the increment of the global step may be above 1, or a restart may begin beyond it.
        return step + 1 if self._last_step is None else max(step + 1, self._last_step)


class GlobalStepWaiterHook(SessionRunHook):
    """Starts if training has come to a step already.

    In TensorFlow it starts workers, which each train at a speed of their own, one after another. Here all workers make
    each step together: none can wait for the others to make some.

    Args:
        wait_until_step: The global step.

    Source: tf.estimator.GlobalStepWaiterHook.
    """

    def __init__(self, wait_until_step: int) -> None:
        self._wait_until_step = wait_until_step
        self._is_started = False

    def begin(self) -> None:
        """Starts anew."""
        self._is_started = False

    def before_run(self, run_context: SessionRunContext) -> None:
        """Looks at the global step.

        Raises:
            ArgumentError: If it would have to wait.
        """
        # Asked once, as in TensorFlow: a later step is never below.
        if self._is_started:
            return
        step = 0 if self._wait_until_step <= 0 else int(run_context.session.run(GLOBAL_STEP))
        if step < self._wait_until_step:
            raise ArgumentError(
                "All workers make each step together, so none can wait for a step of the others: received "
                f"GlobalStepWaiterHook(wait_until_step={self._wait_until_step!r}) at global step {step}. Leave the "
                "hook out."
            )
        self._is_started = True

    def next_step(self, step: int) -> int | None:
        """Returns the next step, until it has started."""
        return None if self._is_started else step + 1
