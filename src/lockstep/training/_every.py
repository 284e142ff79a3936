"""A function as a callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras

from lockstep.errors import ArgumentError
from lockstep.training._training import Training


class Every(keras.callbacks.Callback):
    """Calls a function after every so many steps of `Program.fit`.

    Steps in between run without being looked at, several in one dispatch if they are short.

    Args:
        steps: After how many, counted from the beginning of training; at least 1.
        function: `(training, logs)`: a `Training`, which knows step, epoch and state, and the logs of the last step.
        chief_only: Whether only the chief calls it (default), as is right for what prints or writes. A function that
            stops training must be called by all.

    Raises:
        ArgumentError: If an argument is not as described.

    Examples:
        >>> Every(100, lambda training, logs: print(training.step, logs["loss"]))
    """

    def __init__(
        self, steps: int, function: Callable[[Training, Mapping[str, Any]], Any], *, chief_only: bool = True
    ) -> None:
        super().__init__()
        if type(steps) is not int or steps < 1 or not callable(function):
            raise ArgumentError(
                f"Every needs a number of steps, at least 1, and a function (training, logs). Received: {steps!r} and "
                f"{function!r:.60}."
            )
        self.every_n_steps = steps
        self._function = function
        self.chief_only = chief_only

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Calls it."""
        del batch
        training: Any = self.model
        self._function(training, logs or {})
