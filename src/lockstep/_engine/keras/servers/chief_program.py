"""The chief's training as the loop and the feed see it: a program whose steps others may compute, and its state."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.keras.servers.chief import ChiefTraining
from lockstep._engine.keras.servers.served_state import ServedState
from lockstep._engine.keras.servers.tables import Table
from lockstep._engine.keras.state import TRAIN
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.servers.host_program import HostProgram
from lockstep._engine.step.batches import DeviceBatch, Outputs
from lockstep.errors import CheckpointError

_CUT = "state/servers"


class ChiefProgram(HostProgram):
    """A step of which the chief's loop waits for the update.

    Args:
        training: The training.
    """

    def __init__(self, training: ChiefTraining, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._training = training

    def run(self, state: Any, placed: DeviceBatch) -> tuple[Outputs, Any]:
        """Returns when the update of the batch is applied, whoever has computed it."""
        return self._training.train(placed.data), state


class ChiefState(ServedState):
    """A model's variables, which servers hold while it trains.

    Args:
        training: The training.
    """

    def __init__(self, model: Any, owned: Ownership, program: ChiefProgram, training: ChiefTraining) -> None:
        super().__init__(model, owned, program, TRAIN)
        self._training = training

    @contextlib.contextmanager
    def attached(self) -> Generator[None]:
        """Has callbacks that touch the model find its variables up to date."""
        with self._training.attached():
            yield

    def sync(self) -> None:
        """Updates the variables that tasks hold."""
        self._training.sync()

    def arrays(self, starts: tuple[str, ...] = ("",)) -> dict[str, Any]:
        """Returns the values of all variables but tables, and the name of the cut in which servers wrote theirs."""
        self.sync()
        arrays: dict[str, Any] = {}
        for group, variables in self._groups.items():
            if f"{group}/".startswith(starts):
                whole = {i: v for i, v in enumerate(variables) if not isinstance(v, Table)}
                arrays |= {f"{group}/{i}/{v.path}": np.asarray(v) for i, v in whole.items()}
        if starts == ("",):
            path = self._training.cut()
            if path is not None:
                arrays[_CUT] = np.frombuffer(os.path.basename(path).encode(), np.uint8)
        return arrays

    def assign(self, arrays: Mapping[str, Any]) -> None:
        """Assigns the values that `arrays` returned, and has servers begin from their cut.

        Raises:
            CheckpointError: If they are of other variables.
        """
        for group, variables in self._groups.items():
            for number, variable in enumerate(variables):
                if isinstance(variable, Table):
                    continue
                saved = next((v for k, v in arrays.items() if k.startswith(f"{group}/{number}/")), None)
                if saved is None or tuple(np.shape(saved)) != tuple(variable.shape):
                    raise CheckpointError(
                        f"A backup is restored into the model and the optimizer that it was made of. {variable.path!r} "
                        f"({variable.dtype}{list(variable.shape)}) is "
                        f"{'missing' if saved is None else list(np.shape(saved))} in the backup. Make the same model "
                        "and compile it alike, or begin anew in another directory."
                    )
                variable.assign(saved)
        if _CUT in arrays and self._training.cut_directory is not None:
            name = np.asarray(arrays[_CUT], np.uint8).tobytes().decode()
            self._training.restore_from = os.path.join(self._training.cut_directory, name)

    def gather(self) -> None:
        """Does nothing: variables are fetched when they are read."""

    @property
    def global_step(self) -> int | None:
        """Returns the number of updates."""
        return self._training.ticket
