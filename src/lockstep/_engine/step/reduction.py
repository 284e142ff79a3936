"""Ways to add up gradients over the replicas, for the replica view.

Each takes the per-replica values of one pack and returns their sums, the same on every replica. The default is the
fastest known here: shared memory between CPU processes of one machine, else XLA's own (NCCL on GPUs, Gloo between CPU
processes). The others exist because a program asks for them by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._engine.step import backends

Algorithm = Literal["all_reduce", "ring", "hierarchical", "one_device"]
Wire = Literal["bfloat16"]

# A sum through shared memory costs about 0.2 ms whatever its size, and 1 ms for each 4 MB (2-core EPYC, 2 processes).
_SHARED_PACK_BYTES = 1 << 25


@dataclass(frozen=True)
class Reduction:
    """How to combine gradients.

    Attributes:
        algorithm: `all_reduce`: the fastest that the devices have. `ring`: chunks travel once around all replicas and
            once more to spread the sums. `hierarchical`: within groups of neighbouring replicas first, then between
            groups. `one_device`: all values are collected and added in the order of the replicas.
        packs: Into how many packs of about equal size the gradients are put; 0 to leave it open.
        pack_bytes: Start a new pack after this many bytes; 0 for no limit. With either, each pack is one collective,
            and begins when the one before it has ended. With neither, values go one by one, as far as XLA does not
            put them together, or, through shared memory, in packs of a few megabytes.
        wire: The type in which gradients travel, or `None` for their own: see `bf16_compression`. `sum` does not look
            at it, because other values must not be rounded.
        rank: How many columns the factors have as which large gradients travel; 0: they travel whole. See `powersgd`;
            `sum` does not look at it, either.
        whole_steps: For how many steps they travel whole at first.
    """

    algorithm: Algorithm = "all_reduce"
    packs: int = 0
    pack_bytes: int = 0
    wire: Wire | None = None
    rank: int = 0
    whole_steps: int = 0

    @property
    def compresses(self) -> bool:
        """Returns whether gradients travel in fewer bytes than they have, so that residuals are kept."""
        return self.wire is not None or self.rank > 0

    def sum(self, values: Sequence[jax.Array], axis: str, replicas: int) -> list[jax.Array]:
        """Returns each value summed over `axis`, which has `replicas` members; call it inside `shard_map`."""
        add = _ALGORITHMS[self.algorithm]
        sizes = [v.size * v.dtype.itemsize for v in values]
        summed: dict[int, jax.Array] = {}
        last: list[jax.Array] = []
        for pack in self._packs_for(sizes, axis, replicas):
            given = [values[i] for i in pack]
            if self.packs or self.pack_bytes:
                given = _after(last, given)
            last = add(given, axis, replicas)
            summed.update(zip(pack, last, strict=True))
        return [summed[i] for i in range(len(values))]

    def _packs_for(self, sizes: list[int], axis: str, replicas: int) -> list[list[int]]:
        if self.packs or self.pack_bytes or self.algorithm != "all_reduce" or not backends.all_reduce(axis, replicas):
            return self._pack(sizes)
        return self._backwards(sizes)

    def wire_packs(self, sizes: list[int]) -> list[list[int]]:
        """Groups values that travel in another type, of so many bytes there: each pack becomes one array."""
        return self._pack(sizes) if self.packs or self.pack_bytes else self._backwards(sizes)

    @staticmethod
    def _backwards(sizes: list[int]) -> list[list[int]]:
        """Packs from the last layer on, whose gradients are ready first: their sum begins while others are made."""
        packs = Reduction(pack_bytes=_SHARED_PACK_BYTES)._pack(sizes[::-1])
        return [[len(sizes) - 1 - i for i in pack] for pack in packs]

    def _pack(self, sizes: list[int]) -> list[list[int]]:
        """Groups consecutive values, so that the gradients of late layers, ready first, share a pack."""
        limit = self.pack_bytes or (max(1, math.ceil(sum(sizes) / self.packs)) if self.packs else 0)
        packs: list[list[int]] = []
        filled = 0
        for i, size in enumerate(sizes):
            # Under a limit an empty value joins the pack before it: alone it would be a collective on nothing.
            if not packs or not limit or (size and filled >= limit):
                packs.append([])
                filled = 0
            packs[-1].append(i)
            filled += size
        return packs


def _after(last: list[jax.Array], values: list[jax.Array]) -> list[jax.Array]:
    """Makes values depend on sums: XLA would make one collective of packs that do not depend on each other."""
    # XLA removes optimization barriers before its combiner runs, but does not fold this comparison of a population
    # count, which is never true.
    number = next((v for v in last if v.size and jnp.issubdtype(v.dtype, jnp.floating)), None)
    if number is None:
        return values
    bits = lax.bitcast_convert_type(number.reshape(-1)[0], jnp.dtype(f"uint{8 * number.dtype.itemsize}"))
    never = lax.population_count(bits) > 8 * number.dtype.itemsize
    return [jnp.where(never, jnp.zeros_like(v), v) for v in values]


def _all_reduce(pack: list[jax.Array], axis: str, replicas: int) -> list[jax.Array]:
    shared = backends.all_reduce(axis, replicas)
    return shared.sum(pack) if shared else list(lax.psum(tuple(pack), axis))


def _flat(add: Callable[[jax.Array, str, int], jax.Array]) -> Callable[[list[jax.Array], str, int], list[jax.Array]]:
    """Makes of a sum of one array one of packs: all values of a type go as one array."""

    def pack_sum(pack: list[jax.Array], axis: str, replicas: int) -> list[jax.Array]:
        found: dict[int, jax.Array] = {}
        for dtype in dict.fromkeys(v.dtype for v in pack):
            places = [i for i, v in enumerate(pack) if v.dtype == dtype]
            total = add(jnp.concatenate([pack[i].reshape(-1) for i in places]), axis, replicas)
            found.update(zip(places, cut(total, [pack[i] for i in places]), strict=True))
        return [found[i] for i in range(len(pack))]

    return pack_sum


def cut(flat: jax.Array, pack: Sequence[jax.Array]) -> list[jax.Array]:
    """Cuts a flat array into the shapes of a pack."""
    ends = np.cumsum([value.size for value in pack])
    return [flat[end - value.size : end].reshape(value.shape) for end, value in zip(ends, pack, strict=True)]


def _one_device(value: jax.Array, axis: str, replicas: int) -> jax.Array:
    # In one order everywhere, so that all have the same bits.
    everyone = lax.all_gather(value, axis)
    return reduce(jnp.add, [everyone[i] for i in range(replicas)])


def _ring(value: jax.Array, axis: str, replicas: int) -> jax.Array:
    chunk = math.ceil(value.size / replicas)
    flat = jnp.pad(value.reshape(-1), (0, chunk * replicas - value.size))
    chunks = flat.reshape(replicas, chunk)
    me = lax.axis_index(axis)
    onwards = [(i, (i + 1) % replicas) for i in range(replicas)]
    # A reduce-scatter, then an all-gather: twice the bytes of a value in all, whatever the number of replicas.
    # After `replicas - 1` hops the chunk that arrives here has visited everyone: chunk number me + 1.
    travelling = chunks[me]
    for hop in range(1, replicas):
        travelling = lax.ppermute(travelling, axis, onwards) + chunks[(me - hop) % replicas]
    done = jnp.zeros_like(chunks).at[(me + 1) % replicas].set(travelling)
    for hop in range(1, replicas):
        travelling = lax.ppermute(travelling, axis, onwards)
        done = done.at[(me + 1 - hop) % replicas].set(travelling)
    return done.reshape(-1)[: value.size].reshape(value.shape)


def _hierarchical(value: jax.Array, axis: str, replicas: int) -> jax.Array:
    group = _group_size(replicas)
    inside = [list(range(s, s + group)) for s in range(0, replicas, group)]
    between = [list(range(i, replicas, group)) for i in range(group)]
    return _sum_in_groups(_sum_in_groups(value, axis, inside), axis, between)


def _sum_in_groups(value: jax.Array, axis: str, groups: list[list[int]]) -> jax.Array:
    """Adds over the members of each group: values travel once around it, and are added in the members' order.

    In the order of their arrival, the sums of three or more would not be the same bits on all of them.
    """
    size = len(groups[0])
    onwards = [(g[i], g[(i + 1) % size]) for g in groups for i in range(size)]
    places = np.zeros(len(groups) * size, np.int32)
    for group in groups:
        places[group] = np.arange(size)
    mine = jnp.asarray(places)[lax.axis_index(axis)]
    members = jnp.zeros((size, *value.shape), value.dtype).at[mine].set(value)
    travelling = value
    for hop in range(1, size):
        travelling = lax.ppermute(travelling, axis, onwards)
        members = members.at[(mine - hop) % size].set(travelling)
    return reduce(jnp.add, [members[i] for i in range(size)])


def _group_size(replicas: int) -> int:
    """Returns the divisor of `replicas` nearest to its square root: groups and their number about equal."""
    return max(d for d in range(1, math.isqrt(replicas) + 1) if replicas % d == 0)


_ALGORITHMS: dict[str, Callable[[list[jax.Array], str, int], list[jax.Array]]] = {
    "all_reduce": _all_reduce,
    "ring": _flat(_ring),
    "hierarchical": _flat(_hierarchical),
    "one_device": _flat(_one_device),
}
