"""Step programs: a step function compiled for the replicas, or run as it is.

*Global view*: the step is written for the whole batch, and XLA's partitioner divides the work. What one device would
compute is computed, whatever the step does with the batch: normalise over it, compare its examples, draw one mask.

*Replica view*: the step is written for one replica's share and reduces explicitly, for what has a meaning per replica.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
from jax.sharding import PartitionSpec

from lockstep._step.placement import (
    Placed,
    Split,
    as_arrays,
    cut_parts,
    from_chief,
    local_copy,
    place_batch,
    place_parts,
    place_whole,
)
from lockstep._step.portions import Part
from lockstep._step.replicas import AXIS, Device, Replicas

Step = Callable[[Any, Any], tuple[Any, Any]]


class Program(Protocol):
    """What the loop and the feed need of a step program."""

    def __call__(self, state: Any, batch: Placed) -> tuple[Any, Any]:
        """Runs one step; `state` is donated."""
        ...

    def place_batch(self, batch: Any) -> Placed:
        """Puts a global batch where the program wants it."""
        ...

    def place_state(self, value: jax.Array) -> jax.Array:
        """Puts one array of the state where the program wants it."""
        ...

    def agree_on_state(self, state: list[jax.Array]) -> list[jax.Array]:
        """Makes the chief's content of the state everyone's."""
        ...

    def local(self, value: Any) -> Any:
        """Returns an output or a part of the state as an array of this process."""
        ...


class CompiledProgram:
    """A step compiled for the replicas.

    Args:
        step: Pure function `(state, batch) -> (outputs, state)` of the whole batch.
        replicas: Where it runs.
        replica_step: The same for one replica's share, combining outputs and state over `replicas.AXIS` itself;
            if given, batches that divide evenly run in the replica view.
    """

    def __init__(self, step: Step, replicas: Replicas, replica_step: Step | None = None) -> None:
        self._replicas = replicas
        self._step = step
        self._replica_step = replica_step
        self._run = jax.jit(self._traced, static_argnums=(0, 1), donate_argnums=2, out_shardings=replicas.whole)

    def __call__(self, state: Any, batch: Placed) -> tuple[Any, Any]:
        """Runs one step; `state` is donated."""
        return self._run(batch.split, batch.counts, state, batch.data)

    def place_batch(self, batch: Any) -> Placed:
        """Puts a global batch on the devices."""
        return place_batch(self._replicas, batch)

    def place_state(self, value: jax.Array) -> jax.Array:
        """Puts a full copy on every device."""
        return place_whole(self._replicas, value)

    def agree_on_state(self, state: list[jax.Array]) -> list[jax.Array]:
        """Makes the chief's content of the state everyone's."""
        return from_chief(self._replicas, state)

    def local(self, value: Any) -> Any:
        """Returns this process' copy."""
        return jax.tree.map(local_copy, value)

    def _traced(self, split: Split, counts: tuple[int, ...], state: Any, data: Any) -> tuple[Any, Any]:
        if counts:
            sharding = self._replicas.by_example if split is Split.EVEN else self._replicas.whole
            data = jax.lax.with_sharding_constraint(cut_parts(data, counts), sharding)
        if split is Split.EVEN and self._replica_step is not None:
            return self._on_each_replica(state, data)
        if split is Split.UNEVEN:
            constrain = partial(jax.lax.with_sharding_constraint, shardings=self._replicas.by_example)
            data = jax.tree.map(lambda a: constrain(a) if a.ndim else a, data)
        return self._step(state, data)

    def _on_each_replica(self, state: Any, data: Any) -> tuple[Any, Any]:
        shares = jax.tree.map(lambda a: PartitionSpec(AXIS) if a.ndim else PartitionSpec(), data)
        whole = PartitionSpec()
        assert self._replica_step is not None
        return jax.shard_map(
            self._replica_step,
            mesh=self._replicas.mesh,
            in_specs=(whole, shares),
            out_specs=whole,
            check_vma=False,
        )(state, data)


class EagerProgram:
    """A step run as it is, for debugging: every process computes the whole batch on its first device.

    That follows the same trajectory as the compiled program, without any communication.
    """

    def __init__(self, step: Step, replicas: Replicas) -> None:
        self._step = step
        self._replicas = replicas

    def __call__(self, state: Any, batch: Placed) -> tuple[Any, Any]:
        """Runs one step."""
        data = self._gather(batch.data, batch.counts) if batch.counts else batch.data
        return self._step(state, data)

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

    @property
    def _device(self) -> Device:
        return self._replicas.local[0][1]
