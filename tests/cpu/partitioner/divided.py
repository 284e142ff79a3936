"""Runs a step as one device would, and divided over replicas."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from lockstep._cpu.partitioner import Partitioned, partition
from lockstep._engine.step.replicas import AXIS, Replicas

Step = Callable[[Any, Any], tuple[Any, Any]]


@contextlib.contextmanager
def float64() -> Iterator[None]:
    """Computes in float64, and compiles without XLA's costly optimizations: what is computed counts, not how fast."""
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        with jax.enable_x64(True):
            yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


def replicas(count: int) -> Replicas:
    """The first devices of this process."""
    runtime: Any = None
    return Replicas(runtime, jax.local_devices()[:count])


def divided(step: Step, state: Any, data: Any, count: int) -> Partitioned:
    """Returns the step divided over so many replicas."""
    found = partition(step, state, data, replicas(count))
    assert found is not None
    return found


def compiled(found: Partitioned, data: Any, count: int) -> Step:
    """Returns a divided step as a function of whole batches."""
    shares = jax.tree.map(lambda a: PartitionSpec(AXIS) if np.ndim(a) else PartitionSpec(), data)
    whole = PartitionSpec()
    mesh = replicas(count).mesh
    return jax.jit(jax.shard_map(found, mesh=mesh, in_specs=(whole, shares), out_specs=whole, check_vma=False))


def both(step: Step, state: Any, data: Any, count: int) -> tuple[Any, Any, Partitioned]:
    """What one device computes, what so many replicas compute, and how."""
    found = divided(step, state, data, count)
    return jax.jit(step)(state, data), compiled(found, data, count)(state, data), found


def assert_equal(found: Any, expected: Any, tolerance: float, name: str = "") -> None:
    """Compares two structures of arrays; NaN equals NaN."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    leaves = zip(jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True)
    for (path, one), other in leaves:
        place = name + jax.tree_util.keystr(path)
        assert one.dtype == other.dtype, place
        scale = np.maximum(1.0, np.abs(np.nan_to_num(np.asarray(other, float), posinf=0, neginf=0)).max(initial=0.0))
        np.testing.assert_allclose(
            np.asarray(one, float), np.asarray(other, float), rtol=0, atol=tolerance * scale, err_msg=place
        )
