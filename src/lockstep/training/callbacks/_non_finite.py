"""A callback for steps whose loss is not finite."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal

import keras

from lockstep.errors import ArgumentError, UnsupportedError

_log = logging.getLogger("lockstep")
_POLICIES = ("raise", "stop", "skip")


class NonFinite(keras.callbacks.Callback):
    """Undoes steps whose loss, or a gradient of it, is not finite (NaN or infinite).

    That happens inside of the compiled step, on all workers alike, before anything can be saved: no checkpoint holds
    what such a step would leave. A step that is undone leaves no trace: weights, the optimizer, metrics and seeds are
    those before it, as if its batch were not in the data. Python looks at a step some dispatches later, so that nothing
    waits; what is dispatched until then is undone too, and after that nothing more is computed in the epoch.

    The model must belong to a strategy, and be compiled (`run_eagerly=False`).

    Args:
        policy: What happens then. `"raise"`: all workers raise an error in the same step, which names the step, and the
            tasks in whose input something is not finite. `"stop"`: training ends as with
            `keras.callbacks.TerminateOnNaN`, without an error; the log has its text. `"skip"`: training goes on with
            the next batch; the log has a line for each.
        most_in_a_row: With `"skip"`, after how many such steps in a row all workers raise the error; at least 1.

    Raises:
        ArgumentError: If an argument is not as described.

    Source: `keras.callbacks.TerminateOnNaN`, which looks at the loss after the weights have been changed.
    """

    def __init__(self, policy: Literal["raise", "stop", "skip"] = "raise", most_in_a_row: int = 10) -> None:
        super().__init__()
        if policy not in _POLICIES:
            raise ArgumentError(f"policy is one of {', '.join(map(repr, _POLICIES))}: received {policy!r}.")
        if type(most_in_a_row) is not int or most_in_a_row < 1:
            raise ArgumentError(f"most_in_a_row is a number from 1 on: received {most_in_a_row!r}.")
        self.policy = policy
        self.most_in_a_row = most_in_a_row
        # Of each epoch: its number, and that of its first step since training began.
        self._epochs: list[tuple[int, int]] = []

    @property
    def undone(self) -> int:
        """Returns how many steps of the last training were undone, as far as is known; at its end, all."""
        reports = getattr(self._program(), "reports", None)
        return 0 if reports is None else reports.undone

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Watches the steps of this training."""
        program = self._program()
        if not hasattr(program, "watch"):
            raise UnsupportedError(
                "NonFinite undoes steps inside of the compiled step of a strategy. Received: a model that belongs to "
                "no strategy, or is not compiled. Create or compile it in a scope, such as "
                "lockstep.distribute.MirroredStrategy().scope(), with run_eagerly=False and jit_compile left alone; or "
                "use keras.callbacks.TerminateOnNaN."
            )
        self._epochs = []
        program.watch(self.most_in_a_row if self.policy == "skip" else 1, self._describe)

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Notes which step begins an epoch."""
        self._epochs.append((epoch, self._reports.dispatched))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Ends the training, if a step of the epoch was not finite."""
        self._reports.flush()
        ended = self._reports.ended
        if ended is None or self.model is None or self.model.stop_training:
            return
        if self.policy != "stop":
            raise ended.error
        _log.error("%s", ended.error)
        self.model.stop_training = True

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Reads the counters of the last steps."""
        self._reports.flush()

    def _describe(self, step: int) -> str:
        """Describes a step by epoch and batch, from 1 on as Keras shows them; batches since a restart in mid-epoch."""
        epoch, first = next((e for e in reversed(self._epochs) if e[1] <= step), (0, 0))
        return f"batch {step - first + 1} of epoch {epoch + 1}"

    def _program(self) -> Any:
        return getattr(self.model, "train_function", None)

    @property
    def _reports(self) -> Any:
        return self._program().reports
