"""Compiles what each replica does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec


def on_each(replicas: int, step: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles what each replica does; arguments and results have a first axis of replicas."""
    mesh = Mesh(np.asarray(jax.local_devices()[:replicas], dtype=object), ("replica",))
    spec = PartitionSpec("replica")

    def each(*arguments: Any) -> Any:
        return jax.tree.map(lambda v: v[None], step(*jax.tree.map(lambda v: v[0], arguments)))

    return jax.jit(jax.shard_map(each, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
