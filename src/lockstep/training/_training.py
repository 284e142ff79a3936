"""Shows callbacks of `Program.fit` its progress, and makes a callback of a function as such a callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import keras

from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep._engine.runtime.runtime import Runtime
    from lockstep.training._program_state import ProgramState


class Training:
    """A training under way; the `model` of callbacks of `Program.fit`.

    Attributes:
        epoch: The epoch, from 0 on.
        stop_training: Set it to end training, on every worker alike.
    """

    def __init__(self, state: ProgramState, runtime: Runtime) -> None:
        self._state = state
        self._runtime = runtime
        self.epoch = 0
        self.stop_training = False
        self.history: Any = None

    @property
    def step(self) -> int:
        """Returns how many steps have been made, over epochs and restarts."""
        return self._state.global_step

    @property
    def state(self) -> Any:
        """Returns a copy of the state, as arrays of this process."""
        return self._state.local()

    @property
    def runtime(self) -> Runtime:
        """Returns this process among the others; for callbacks of lockstep."""
        return self._runtime

    # Keras' callbacks expect a model, and fail here with what to do instead.
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            "A callback of Program.fit finds state, step, epoch and stop_training in its model, which is no Keras "
            f"model. It has no {name!r}. For checkpoints, give fit a checkpoint_dir."
        )


class Every(keras.callbacks.Callback):
    """Calls a function after every so many steps of `Program.fit`.

    Steps in between run without being looked at, several in one dispatch if they are short.

    Args:
        steps: After how many, counted from the beginning of training; at least 1.
        function: `(training, logs)`: a `Training`, which knows step, epoch and state, and the logs of the last step.
        chief_only: Whether only the chief calls it (default), as is right for what prints or writes. If it stops
            training there, all workers stop after the same step, within about a second.

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
        """Calls the function."""
        del batch
        training: Any = self.model
        self._function(training, logs or {})
