"""A program whose batches stay on the host: tasks of a job with servers compute what they lease."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import DeviceBatch, Outputs, Split, StepsPerExecutionTuner, to_arrays
from lockstep._engine.step.zero1 import OptimizerSharding
from lockstep.errors import UnsupportedError


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
