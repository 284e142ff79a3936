"""What runs in a process with eight devices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from lockstep._engine.step.reduction import Algorithm, Reduction

_DTYPES = ["float32", "float16", "bfloat16", "int8", "int32", "uint32", "complex64"]


def _values(rng: np.random.Generator, replicas: int) -> list[Any]:
    """One array for each dtype, of whole numbers that add up exactly in all of them, with a first axis of replicas."""
    shapes = [tuple(int(n) for n in rng.integers(0, 6, rng.integers(0, 4))) for _ in _DTYPES]
    return [
        jnp.asarray(rng.integers(0, 8, (replicas, *shape)), jnp.dtype(dtype))
        for shape, dtype in zip(shapes, _DTYPES, strict=True)
    ]


def sums(strategy: Any, algorithm: Algorithm, replicas: int, seed: int) -> dict[str, np.ndarray]:
    """Adds up random arrays over some of the devices; returns what each replica has got, and what it should have."""
    rng = np.random.default_rng(seed)
    values = _values(rng, replicas)
    devices = rng.permutation(np.asarray(strategy._replicas.devices, dtype=object))[:replicas]
    reduction = Reduction(algorithm, packs=int(rng.integers(0, 4)), pack_bytes=int(rng.choice([0, 50])))

    def add(parts: list[jax.Array]) -> list[jax.Array]:
        return [t[None] for t in reduction.sum([p[0] for p in parts], "replica", replicas)]

    spec = PartitionSpec("replica")
    mesh = Mesh(devices, ("replica",))
    found = jax.jit(jax.shard_map(add, mesh=mesh, in_specs=(spec,), out_specs=spec, check_vma=False))(values)
    results: dict[str, np.ndarray] = {}
    for dtype, value, total in zip(_DTYPES, values, found, strict=True):
        assert total.dtype == dtype
        results[f"found {dtype}"] = np.asarray(total).astype(complex)
        results[f"expected {dtype}"] = np.broadcast_to(np.asarray(value).astype(complex).sum(0), value.shape)
    return results
