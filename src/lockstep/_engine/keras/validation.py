"""The validation data of a `fit`, and where they stand."""

from __future__ import annotations

from typing import Any

from keras.src.trainers.data_adapters import data_adapter_utils

from lockstep._types import Model


class ValidationData:
    """The validation data of a `fit`, which each epoch that asks for it reads again.

    Attributes:
        data: (x, y, sample_weight), or `None`.
        position: Where the data stand: to begin with, and before an evaluation that is under way.
    """

    def __init__(self, model: Model, data: Any, batch_size: int | None, steps: int | None, frequency: Any) -> None:
        self._model = model
        self.data: Any = None if data is None else data_adapter_utils.unpack_x_y_sample_weight(data)
        self.batch_size = batch_size
        self.steps = steps
        self.frequency = frequency
        self.position: Any = None
        self._is_under_way = False
        self.close()

    def run(self, epoch: int, callbacks: Any) -> dict[str, Any]:
        """Evaluates if this epoch asks for it; returns the logs, each named "val_..."."""
        if self.data is None or not self._model._should_eval(epoch, self.frequency):
            return {}
        x, y, sample_weight = self.data
        self.position, self._is_under_way = self.saved_position(), True
        logs = self._model.evaluate(
            x=x,
            y=y,
            sample_weight=sample_weight,
            batch_size=self.batch_size,
            steps=self.steps,
            callbacks=callbacks,
            return_dict=True,
            _use_cached_eval_dataset=True,
            _position=self.position,
        )
        self._is_under_way = False
        return {f"val_{name}": value for name, value in logs.items()}

    def saved_position(self) -> Any:
        """Returns the position of the data, or `None` before the first read; a collective call."""
        feed = self._model._eval_epoch_iterator
        return self.position if self._is_under_way or feed is None else feed.position()

    def close(self) -> None:
        """Drops the feed."""
        self._model._eval_epoch_iterator = None
