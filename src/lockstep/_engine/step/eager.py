"""Steps that are not compiled, for debugging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lockstep._engine.step import chunks
from lockstep._engine.step.outputs import Outputs
from lockstep._engine.step.placement import (
    Placed,
    Split,
    as_arrays,
    cut_parts,
    from_chief,
    local_copy,
    place_parts,
    place_whole,
)
from lockstep._engine.step.portions import Part
from lockstep._engine.step.protocol import Step
from lockstep._engine.step.replicas import Device, Replicas
from lockstep._engine.step.same_program import A_STEP, Subject
from lockstep._engine.step.slots import Slots

# By so much, relatively, the same step may come to other numbers on another kind of processor.
_ROUNDING = 1e-3


class EagerProgram:
    """A step run as it is, for debugging: every process computes the whole batch on its first device.

    That follows the same trajectory as the compiled program, without any communication.
    """

    # Nothing is divided.
    slots: Slots | None = None

    def __init__(self, step: Step, replicas: Replicas, subject: Subject = A_STEP) -> None:
        self._step = step
        self._replicas = replicas
        self._subject = subject
        self.runtime = replicas.runtime
        self.pace = chunks.Pace()

    def __call__(self, state: Any, batch: Placed) -> tuple[Any, Any]:
        """Runs one step."""
        data = self._gather(batch.data, batch.counts) if batch.counts else batch.data
        outputs, after = self._step(state, data)
        self._demand_alike(outputs)
        return outputs, after

    def _demand_alike(self, outputs: Any) -> None:
        """Raises `MismatchError` if another task comes to other outputs: there is no record to compare."""
        if self.runtime.is_alone:
            return
        mine = [float(np.mean(np.abs(np.asarray(leaf, np.float64)))) for leaf in jax.tree.leaves(outputs)]
        values = self.runtime.all_gather_object(f"a step that is not compiled, {self._subject.name}", mine)
        first = values[0]  # Of all tasks the same: they must come to the same verdict.
        if not all(len(v) == len(first) and np.allclose(v, first, _ROUNDING, 1e-6, True) for v in values):
            self.runtime.check_equal(f"outputs of {self._subject.name}", values, self._subject.advice)

    @property
    def room(self) -> int:
        """One step."""
        return 1

    def run(self, state: Any, placed: Placed) -> tuple[Outputs, Any]:
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

    def places(self, batch: Any) -> int:
        """Each batch goes alone."""
        del batch
        return 0

    def place(self, batches: Sequence[Any]) -> Placed:
        """Puts a batch on this process' first device."""
        return self.place_batch(batches[0])

    def _gather(self, data: Any, counts: tuple[int, ...]) -> Any:
        """All rows of a batch that the processes put together, on this process' first device."""
        whole = jax.jit(cut_parts, static_argnums=1, out_shardings=self._replicas.whole)(data, counts)
        return jax.device_put(jax.tree.map(local_copy, whole), self._device)

    def place_batch(self, batch: Any) -> Placed:
        """Puts a global batch on this process' first device."""
        if isinstance(batch, Part):
            # Without `counts` the rows of a batch in equal parts would stay where they are.
            parts = place_parts(self._replicas, as_arrays(batch.data), batch.counts)
            return Placed(parts.data, parts.split, tuple(batch.counts))
        return Placed(jax.device_put(batch, self._device), Split.WHOLE)

    def place_state(self, value: jax.Array) -> jax.Array:
        """Puts an array on this process' first device."""
        return jax.device_put(value, self._device)

    def agree_on_state(self, state: list[jax.Array]) -> list[jax.Array]:
        """Makes the chief's content of the state everyone's."""
        shared = from_chief(self._replicas, [place_whole(self._replicas, v) for v in state])
        return [self.place_state(local_copy(v)) for v in shared]

    def local(self, value: Any) -> Any:
        """Returns `value`."""
        return value

    def settle(self, state: Any, ends: bool) -> Any:
        """The state holds all."""
        del ends
        return state

    def residuals(self) -> dict[str, np.ndarray]:
        """Nothing travels, so nothing is rounded."""
        return {}

    def restore_residuals(self, values: Mapping[str, Any]) -> None:
        """Nothing is rounded."""
        del values

    @property
    def _device(self) -> Device:
        return self._replicas.local[0][1]
