"""The hook that stops training when the loss is NaN."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import numpy as np

from lockstep._types import Array, Tensor
from lockstep.estimator._hooks._base import (
    GLOBAL_STEP,
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
        import jax

        self._unread.clear()
        self._diverged = False
        self._is_alone = jax.process_count() == 1

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Requests the loss and its step."""
        return SessionRunArgs({"loss": self._loss_tensor, "step": GLOBAL_STEP}, raw=True)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Checks the losses that are computed by now; with several workers, those that all have."""
        results = run_values.results
        self._unread.append((int(results["step"]), results["loss"]))
        # Not `is_ready` with several workers: readiness differs between them, and all must stop after the same step.
        while self._unread and (len(self._unread) > _UNREAD or (self._is_alone and _is_ready(self._unread[0][1]))):
            self._read()
        if self._diverged:
            run_context.request_stop()

    def settle(self) -> None:
        """Waits for all losses and checks them.

        Raises:
            NanLossDuringTrainingError: If one is NaN, and the hook is to fail.
        """
        while self._unread:
            self._read()

    def end(self, session: Session) -> None:
        """Checks the last losses."""
        self.settle()

    def next_step(self, step: int) -> int:
        """Returns `step`: the losses of all steps are checked, whenever the hook is called."""
        return step

    def _read(self) -> None:
        step, loss = self._unread.popleft()
        if not np.isnan(np.asarray(loss)).any():
            return
        self._unread.clear()
        if self._fail:
            _log.error(_MESSAGE)
            error = NanLossDuringTrainingError()
            error.add_note(f"It is the loss of global step {step}. The newest checkpoint is of a step before it.")
            raise error
        _log.warning(_MESSAGE)
        self._diverged = True


def _is_ready(value: Array) -> bool:
    return value.is_ready() if hasattr(value, "is_ready") else True
