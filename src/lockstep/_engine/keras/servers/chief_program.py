"""The chief's training as the loop and the feed see it: a program whose steps others may compute, and its state."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.keras.servers.chief import ChiefTraining
from lockstep._engine.keras.servers.tables import Table
from lockstep._engine.keras.state import TRAIN, ModelState
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import DeviceBatch, Outputs, Split, StepsPerExecutionTuner, to_arrays
from lockstep._engine.step.zero1 import OptimizerSharding
from lockstep.errors import CheckpointError, UnsupportedError

_CUT = "state/servers"


class HostProgram:
    """Hands batches on as they are on the host: tasks compute shares of them, and only of some.

    Args:
        runtime: This process, for which other tasks of the job are none of its own program's.
    """

    optimizer_sharding: OptimizerSharding | None = None

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.tuner = StepsPerExecutionTuner()

    @property
    def max_steps(self) -> int:
        """The number 1: each batch is a ticket."""
        return 1

    def __call__(self, state: Any, batch: DeviceBatch) -> tuple[Any, Any]:
        """Runs one step."""
        outputs, after = self.run(state, batch)
        return outputs.value, after

    def run(self, state: Any, placed: DeviceBatch) -> tuple[Outputs, Any]:
        """Runs one step."""
        raise AssertionError("a worker computes the batches that it leases")

    def prepare(self, batch: Any) -> Any:
        """Returns a batch as arrays."""
        return jax.tree.map(np.asarray, to_arrays(batch))

    def decide(self, state: Any, batch: Any) -> None:
        """Each batch goes alone."""

    def compiled(self) -> list[str]:
        """Says nothing: each task compiles what it computes."""
        return []

    def decision(self) -> list[int] | None:
        """There is nothing to decide."""
        return None

    def follow(self, decision: list[int] | None) -> bool:
        """There is nothing to decide."""
        del decision
        return True

    def chunk_capacity(self, batch: Any) -> int:
        """Each batch goes alone."""
        del batch
        return 0

    def place(self, batches: Sequence[Any]) -> DeviceBatch:
        """Leaves a batch on the host."""
        return DeviceBatch(batches[0], Split.WHOLE)

    def place_batch(self, batch: Any) -> DeviceBatch:
        """Leaves a batch on the host."""
        return self.place([self.prepare(batch)])

    def place_state(self, value: jax.Array) -> jax.Array:
        """Returns `value`."""
        return value

    def agree_on_state(self, state: list[jax.Array]) -> list[jax.Array]:
        """Returns `state`, which servers hold."""
        return state

    def local(self, value: Any) -> Any:
        """Returns `value`."""
        return value

    def synchronize(self, state: Any, ends: bool) -> Any:
        """Returns `state`, which servers hold."""
        del ends
        return state

    def watch(self, most: int | None, where: Any = str) -> None:
        """Refuses to watch for steps that are not finite.

        Raises:
            UnsupportedError: Unless `most` is `None`.
        """
        del where
        if most is not None:
            raise UnsupportedError(
                "Steps that are not finite can be undone where one program makes them. Received: NonFinite with "
                "parameter servers, which have applied a gradient before the chief sees its loss. Use "
                "keras.callbacks.TerminateOnNaN, and BackupAndRestore to go back."
            )

    def extra_state(self) -> dict[str, np.ndarray]:
        """Nothing is kept on tasks."""
        return {}

    def restore_extra_state(self, values: Mapping[str, Any]) -> None:
        """Nothing is kept on tasks."""
        del values


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


class ChiefState(ModelState):
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

    def take(self) -> Any:
        """Returns nothing: the state is on the servers."""
        return ()

    def give(self, state: Any) -> None:
        """Takes nothing."""
        del state

    def flush(self, ends: bool) -> None:
        """Updates the variables that tasks hold."""
        del ends
        self.sync()

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
