"""Steps that are not compiled, for debugging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lockstep._engine.step.batches import (
    DeviceBatch,
    Outputs,
    RaggedShard,
    Split,
    StepsPerExecutionTuner,
    concat_ragged,
    to_arrays,
)
from lockstep._engine.step.placement import broadcast_from_chief, local_copy, place_ragged, replicate
from lockstep._engine.step.program_digest import A_STEP, Subject
from lockstep._engine.step.protocol import Step
from lockstep._engine.step.replicas import Device, Replicas
from lockstep._engine.step.zero1 import OptimizerSharding

# By so much, relatively, the same step may come to other numbers on another kind of processor.
_ROUNDING = 1e-3


class EagerProgram:
    """A step run as it is, for debugging: every process computes the whole batch on its first device.

    That follows the same trajectory as the compiled program, without any communication.
    """

    # Nothing is divided.
    optimizer_sharding: OptimizerSharding | None = None

    def __init__(self, step: Step, replicas: Replicas, subject: Subject = A_STEP) -> None:
        self._step = step
        self._replicas = replicas
        self._subject = subject
        self.runtime = replicas.runtime
        self.tuner = StepsPerExecutionTuner()

    def __call__(self, state: Any, batch: DeviceBatch) -> tuple[Any, Any]:
        """Runs one step."""
        data = self._gather(batch.data, batch.counts) if batch.counts else batch.data
        outputs, after = self._step(state, data)
        self._demand_alike(outputs)
        return outputs, after

    def _demand_alike(self, outputs: Any) -> None:
        """Raises `MismatchError` if another task comes to other outputs: there is no record to compare."""
        if self.runtime.is_alone:
            return
        # A number for each output: whole predictions would be a long message in every step.
        mine = [float(np.mean(np.abs(np.asarray(leaf, np.float64)))) for leaf in jax.tree.leaves(outputs)]
        values = self.runtime.all_gather_object(f"a step that is not compiled, {self._subject.name}", mine)
        # With a tolerance: processors of two kinds round differently.
        first = values[0]  # Of all tasks the same: they must come to the same verdict.
        # Equal if NaN: a loss that is not a number on all of them is one trajectory, too.
        if not all(len(v) == len(first) and np.allclose(v, first, _ROUNDING, 1e-6, True) for v in values):
            self.runtime.check_equal(f"outputs of {self._subject.name}", values, self._subject.advice)

    @property
    def max_steps(self) -> int:
        """The number 1: steps that are not compiled run one at a time."""
        return 1

    def run(self, state: Any, placed: DeviceBatch) -> tuple[Outputs, Any]:
        """Runs one step."""
        outputs, after = self(state, placed)
        return Outputs(outputs, None, self.local), after

    def prepare(self, batch: Any) -> Any:
        """Returns `batch`."""
        return batch

    def decide(self, state: Any, batch: Any) -> None:
        """Steps that are not compiled run one at a time."""

    def compiled(self) -> list[str]:
        """Says that nothing is."""
        return ["not compiled"]

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
        """Puts a batch on this process' first device."""
        return self.place_batch(batches[0])

    def _gather(self, data: Any, counts: tuple[int, ...]) -> Any:
        """All rows of a batch that the processes put together, on this process' first device."""
        whole = jax.jit(concat_ragged, static_argnums=1, out_shardings=self._replicas.whole)(data, counts)
        return jax.device_put(jax.tree.map(local_copy, whole), self._device)

    def place_batch(self, batch: Any) -> DeviceBatch:
        """Puts a global batch on this process' first device."""
        if isinstance(batch, RaggedShard):
            # Without `counts` the rows of a batch in equal parts would stay where they are.
            parts = place_ragged(self._replicas, to_arrays(batch.data), batch.counts)
            return DeviceBatch(parts.data, parts.split, tuple(batch.counts))
        return DeviceBatch(jax.device_put(batch, self._device), Split.WHOLE)

    def place_state(self, value: jax.Array) -> jax.Array:
        """Puts an array on this process' first device."""
        return jax.device_put(value, self._device)

    def agree_on_state(self, state: list[jax.Array]) -> list[jax.Array]:
        """Makes the chief's content of the state everyone's."""
        shared = broadcast_from_chief(self._replicas, [replicate(self._replicas, v) for v in state])
        return [self.place_state(local_copy(v)) for v in shared]

    def local(self, value: Any) -> Any:
        """Returns `value`."""
        return value

    def synchronize(self, state: Any, ends: bool) -> Any:
        """Returns `state`, which holds all."""
        del ends
        return state

    def extra_state(self) -> dict[str, np.ndarray]:
        """Nothing travels, so nothing is rounded."""
        return {}

    def restore_extra_state(self, values: Mapping[str, Any]) -> None:
        """Nothing is rounded."""
        del values

    @property
    def _device(self) -> Device:
        return self._replicas.local[0][1]
