"""`tf.keras.utils.SidecarEvaluator`: a process of its own that evaluates the checkpoints of a training."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from lockstep._types import Model
from lockstep.checkpoint import load
from lockstep.compat.tensorflow._checkpoint import Checkpoint
from lockstep.compat.tensorflow._checkpoint_paths import VALUE
from lockstep.compat.tensorflow._types import PathLike
from lockstep.compat.tensorflow.keras._saves import is_of_keras, read_checkpoint
from lockstep.compat.tensorflow.train import checkpoints_iterator
from lockstep.errors import ArgumentError, CheckpointError

__all__ = ["SidecarEvaluator"]

_log = logging.getLogger("lockstep")
# Of an optimizer of Keras 3.
_ITERATIONS = f"optimizer/_iterations{VALUE}"


class SidecarEvaluator:
    """Evaluates a model again and again, each time there is a newer checkpoint of its training.

    It runs beside a training, as its evaluator task. Checkpoints are those that `tf.train.Checkpoint(model=model,
    optimizer=optimizer)` or a `tf.train.CheckpointManager` saves, and the weights that `ModelCheckpoint` saves under a
    prefix; those that come while one is evaluated are passed over for the newest.

    Args:
        model: A compiled model, built, like the one that is trained.
        data: As for `Model.evaluate`.
        checkpoint_dir: The directory of the checkpoints; it need not be there yet.
        steps: Number of batches of an evaluation. Default: until the data end.
        max_evaluations: The number of the checkpoint with which it ends: after `ckpt-10` for 10. Default: it goes on
            for as long as checkpoints come.
        callbacks: Callbacks of the evaluations.
        timeout: Seconds to wait for a newer checkpoint before it ends. Default: for ever, as TensorFlow's.

    Raises:
        ArgumentError: If `max_evaluations` or `timeout` is not above 0.

    Source: tf.keras.utils.SidecarEvaluator.
    """

    def __init__(
        self,
        model: Model,
        data: Any,
        checkpoint_dir: PathLike,
        steps: int | None = None,
        max_evaluations: int | None = None,
        callbacks: Sequence[Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        for name, value in (("max_evaluations", max_evaluations), ("timeout", timeout)):
            if value is not None and value <= 0:
                raise ArgumentError(f"{name} must be above 0, or None for no limit. Received: {value}. Correct it.")
        self.model = model
        self.data = data
        self.checkpoint_dir = checkpoint_dir
        self.steps = steps
        self.max_evaluations = max_evaluations
        self.callbacks = list(callbacks or ())
        self._timeout = timeout

    def start(self) -> None:
        """Evaluates until the last checkpoint.

        Raises:
            CheckpointError: If a checkpoint is of another model, or has no number.
        """
        checkpoint = Checkpoint(model=self.model)
        for path in checkpoints_iterator(self.checkpoint_dir, timeout=self._timeout):
            number = _number_of(path)
            if is_of_keras(path):
                read_checkpoint(self.model, path)
            else:
                checkpoint.restore(path)
                # TensorBoard's points lie at the step of the training, not at the count of evaluations.
                iterations = load(path).arrays.get(_ITERATIONS)
                if iterations is not None and np.shape(iterations) == ():
                    self.model.optimizer.iterations.assign(iterations)
            _log.info("Evaluation starts: model weights and optimizer at %s.", path)
            results = self.model.evaluate(
                self.data, steps=self.steps, callbacks=self.callbacks, verbose=2, return_dict=True
            )
            shown = " ".join(f"{name}={value}" for name, value in results.items())
            _log.info("End of evaluation. Metrics: %s", shown)
            if self.max_evaluations is not None and number >= self.max_evaluations:
                _log.info("Last checkpoint evaluated. SidecarEvaluator stops.")
                return


def _number_of(path: str) -> int:
    try:
        return int(path.rpartition("-")[2])
    except ValueError:
        raise CheckpointError(
            f"A SidecarEvaluator counts by the number at the end of a checkpoint's name, as in ckpt-7. Received: "
            f"{path}. Save with tf.train.CheckpointManager."
        ) from None
