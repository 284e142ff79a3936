"""What callbacks of `Program.fit` see of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.training._program_state import ProgramState


class Training:
    """A training under way; the `model` of callbacks of `Program.fit`.

    Attributes:
        epoch: The epoch, from 0 on.
        stop_training: Set it to end training, on every worker alike.
    """

    def __init__(self, state: ProgramState) -> None:
        self._state = state
        self.epoch = 0
        self.stop_training = False
        self.history: Any = None

    @property
    def step(self) -> int:
        """How many steps have been made, over epochs and restarts."""
        return self._state.global_step

    @property
    def state(self) -> Any:
        """A copy of the state, as arrays of this process."""
        return self._state.local()

    def sync_point(self) -> None:
        """Waits for tasks whose callbacks may still read the state; all tasks call it in the same places."""
        self._state.sync_point()

    def advance(self, step: int) -> int:
        """Notes how many steps have been made; returns it."""
        self._state.global_step = step
        return step

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            "A callback of Program.fit finds state, step, epoch and stop_training in its model, which is no Keras "
            f"model. It has no {name!r}. For checkpoints, give fit a checkpoint_dir."
        )
