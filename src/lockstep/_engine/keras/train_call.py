"""The parts of a training in which `Model.fit` and `Program.fit` differ, as the driver of epochs sees them."""

from __future__ import annotations

from typing import Any, Protocol

from lockstep._engine.keras import agreement
from lockstep._engine.keras.recovery import Progress, Recovery, Validation
from lockstep._engine.loop import loop
from lockstep._types import JSON


class TrainCall(Protocol):
    """The parts of a training in which `Model.fit` and `Program.fit` differ.

    Attributes:
        name: The method, in messages.
        model: The `model` of callbacks, with `stop_training`.
    """

    name: str
    model: Any

    @property
    def validation(self) -> Validation | None:
        """Returns the validation data, whose position is part of a backup."""
        ...

    @property
    def data(self) -> agreement.Data:
        """Returns the data that workers compare before the first batch."""
        ...

    @property
    def initial_epoch(self) -> int:
        """Returns the first epoch without a backup; read after `on_train_begin`."""
        ...

    def facts(self, backups: JSON) -> dict[str, Any]:
        """Returns the arguments that must be equal on all workers."""
        ...

    def about(self) -> dict[str, Any]:
        """Returns what the report of the run tells about this call."""
        ...

    def begin(self, progress: Progress, is_restored: bool) -> None:
        """Begins at `progress`, from a backup if `is_restored`."""
        ...

    def has_all_steps(self, progress: Progress) -> bool:
        """Returns whether a limit of steps is reached, where training ends in the middle of an epoch."""
        ...

    def is_over(self, epoch: int, progress: Progress) -> bool:
        """Returns whether training ends before `epoch`."""
        ...

    def begin_epoch(self, epoch: int) -> None:
        """Begins an epoch, before its callbacks."""
        ...

    def listener(self, epoch: int, recovery: Recovery) -> EpochListener:
        """Returns the listener to the steps of an epoch that are left; a collective call."""
        ...

    def flush_mode(self, epoch: int, progress: Progress) -> bool | None:
        """Returns, after the steps of an epoch, the `ends` with which the state is flushed; `None` for not at all."""
        ...

    def epoch_logs(self, epoch: int, logs: Any) -> dict[str, Any]:
        """Returns the logs of an epoch, from its last outputs and the validation, which it runs."""
        ...

    def close(self, is_complete: bool) -> None:
        """Ends training, `is_complete` if without an error, before `on_train_end`."""
        ...


class EpochListener(loop.Listener, Protocol):
    """A listener to the steps of one epoch."""

    @property
    def logs(self) -> Any:
        """Returns the outputs of the last step."""
        ...

    def end(self) -> None:
        """Calls callbacks of a stride of steps that the data cut short."""
        ...


class EpochState(agreement.TrainState, loop.State, Protocol):
    """The state that a training changes; see `lockstep._engine.step.state.ReplicatedState`."""

    def attached(self) -> Any: ...

    def shapes(self) -> Any: ...

    def flush(self, ends: bool) -> None: ...

    def gather(self) -> None: ...
