"""The memory that a compiled step takes on each device, by XLA's own account; nothing is run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
from jax.sharding import NamedSharding, PartitionSpec

from lockstep._engine.step.batches import Split
from lockstep._engine.step.compiler import PER_REPLICA, WHOLE, Adapter, Carried, JittedFunction
from lockstep._engine.step.replicas import Replicas
from lockstep._types import Batch, PyTree, State
from lockstep.errors import UnsupportedError


@dataclass(frozen=True)
class StepMemory:
    """Accounts for what a compiled step takes of each device's memory.

    Attributes:
        carried: Shapes, dtypes and shardings of what lies there between steps.
        batch: Those of a global batch.
        temporary: Bytes of what lives within a step: activations, gradients.
        outputs: Bytes of results that do not lie where arguments were.
    """

    carried: Carried
    batch: Batch
    temporary: int
    outputs: int


def measure(run: JittedFunction, replicas: Replicas, adapter: Adapter, state: State, batch: Batch) -> StepMemory:
    """Compiles a step for a state and a global batch of these shapes and dtypes, and returns what it takes.

    Args:
        run: The jitted step: of (split, rows of each process, function of the batch, what is carried, batch).
        replicas: Where it runs.
        adapter: What it carries.
        state: Shapes and dtypes of the state.
        batch: Those of the batch.

    Raises:
        UnsupportedError: If this platform's compiler gives no account of memory.
    """
    rows = next((leaf.shape[0] for leaf in jax.tree.leaves(batch) if leaf.shape), 0)
    split = Split.EVEN if rows and rows % replicas.count == 0 else Split.WHOLE
    carried = adapter.wrap_shapes(state, split, batch)
    specs = adapter.state_specs(carried[0]), PER_REPLICA

    def placed(spec: PartitionSpec, tree: PyTree) -> PyTree:
        sharding = NamedSharding(replicas.mesh, spec)
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), tree)

    carried = jax.tree.map(placed, specs, carried, is_leaf=lambda node: isinstance(node, PartitionSpec))
    # Scalars of a batch, such as a learning rate, go whole to every replica.
    batch = jax.tree.map(lambda a: placed(PER_REPLICA if a.shape and split is Split.EVEN else WHOLE, a), batch)
    analysis = run.lower(split, (), None, carried, batch).compile().memory_analysis()
    if analysis is None:
        raise UnsupportedError(
            "XLA gives an account of the memory that a program takes on CPUs, GPUs and TPUs. Received: none, for "
            f"devices of type {replicas.devices[0].platform!r}. Estimate on another machine."
        )
    # The state is donated: results that lie in its place take no memory of their own.
    new = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return StepMemory(carried, batch, int(analysis.temp_size_in_bytes), int(new))


def bytes_on_device(tree: PyTree) -> int:
    """Returns how many bytes arrays with a sharding take on one device."""
    leaves = jax.tree.leaves(tree)
    return sum(leaf.dtype.itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in leaves)
