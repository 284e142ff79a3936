"""The sum over all replicas, as a program that is being traced sees it."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._cpu.shared_memory import target
from lockstep._cpu.shared_memory.calls import SUMMABLE


class AllReduce:
    """Sums over all replicas, which are CPU devices of processes of one machine.

    Args:
        axis: Name of the mesh axis of all replicas.
        replicas: How many there are, in all processes.
    """

    def __init__(self, axis: str, replicas: int) -> None:
        self.axis = axis
        self.replicas = replicas
        self._sites: Counter[int] = Counter()

    def sum(self, values: Sequence[jax.Array]) -> list[jax.Array]:
        """Returns the sums of values over all replicas; call it inside `shard_map` over `axis`.

        The values make one call, which begins when the last of them is there. Boolean values, and those of types that
        numpy cannot add up, are left to XLA.
        """
        mine = [i for i, v in enumerate(values) if v.size and np.dtype(v.dtype) in SUMMABLE]
        sums = dict(zip(mine, self._call([values[i] for i in mine], as_float32=False), strict=True))
        return [sums[i] if i in sums else lax.psum(v, self.axis) for i, v in enumerate(values)]

    def sum_bfloat16(self, values: Sequence[jax.Array]) -> list[jax.Array]:
        """Returns the sums, of type float32, of values of type bfloat16, none of them empty; see `sum`."""
        return self._call(list(values), as_float32=True)

    def begin(self) -> None:
        """Says that a program is about to be traced: places in it are numbered from 1 on.

        Then a program that is traced once more is the same program, which need not be compiled again. Calls of
        different programs may have one number: all processes run their programs in the same order.
        """
        self._sites.clear()

    def _call(self, values: list[jax.Array], as_float32: bool) -> list[jax.Array]:
        if not values:
            return []
        call = jax.ffi.ffi_call(
            target.NAME,
            [jax.ShapeDtypeStruct(v.shape, jnp.float32 if as_float32 else v.dtype) for v in values],
            has_side_effect=True,  # Every process takes part, whether or not it needs the sums.
            vmap_method="broadcast_all",
            # Shared memory holds what was there: the sums can take its place, which saves a third of the writing.
            input_output_aliases=None if as_float32 else {i + 1: i for i in range(len(values))},
        )
        replica = lax.axis_index(self.axis).astype(jnp.int32)
        return list(call(replica, *values, site=np.int64(self._site(values))))

    def _site(self, values: Sequence[jax.Array]) -> int:
        """A number for this place in the program: the same on all processes, and in the next start."""
        described = ",".join(f"{v.dtype}{v.shape}" for v in values)
        kind = zlib.crc32(described.encode())
        self._sites[kind] += 1
        return kind << 24 | self._sites[kind]
