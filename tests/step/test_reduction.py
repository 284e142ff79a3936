"""Every way to add up gradients gives the sum, on any number of replicas."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jax.sharding import Mesh, PartitionSpec

from lockstep._comm import sharing
from lockstep._step.reduction import Algorithm, Reduction

SHAPES = [(), (1,), (5,), (3, 4), (2, 3, 7)]


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
@pytest.mark.parametrize("algorithm", ["all_reduce", "ring", "hierarchical", "one_device"])
@pytest.mark.parametrize("packs", [0, 2])
def test_sums(algorithm: Algorithm, replicas: int, packs: int) -> None:
    rng = np.random.default_rng(replicas)
    values = [rng.integers(-9, 9, (replicas, *shape)).astype("float32") for shape in SHAPES]
    mesh = Mesh(np.asarray(jax.local_devices()[:replicas], dtype=object), ("replica",))
    reduction = Reduction(algorithm, packs=packs)

    def add(parts: list[jax.Array]) -> list[jax.Array]:
        return [t[None] for t in reduction.sum([p[0] for p in parts], "replica", replicas)]

    spec = PartitionSpec("replica")
    sums = jax.jit(jax.shard_map(add, mesh=mesh, in_specs=(spec,), out_specs=spec, check_vma=False))(values)
    for total, value in zip(sums, values, strict=True):
        for replica in range(replicas):
            np.testing.assert_array_equal(total[replica], value.sum(0))


_sizes = st.lists(st.integers(0, 1000), min_size=1, max_size=30)


@given(sizes=_sizes, packs=st.integers(0, 6), pack_bytes=st.integers(0, 2000))
def test_packs_hold_everything_once_in_order(sizes: list[int], packs: int, pack_bytes: int) -> None:
    found = Reduction(packs=packs, pack_bytes=pack_bytes)._pack(sizes)
    assert [i for pack in found for i in pack] == list(range(len(sizes)))
    assert all(found)


@given(sizes=_sizes, pack_bytes=st.integers(1, 2000))
def test_a_pack_closes_once_it_is_full(sizes: list[int], pack_bytes: int) -> None:
    for pack in Reduction(pack_bytes=pack_bytes)._pack(sizes):
        filling = [sizes[i] for i in pack if sizes[i]]
        assert sum(filling[:-1]) < pack_bytes


@example(sizes=[0, 0], packs=1)
@example(sizes=[1, 0], packs=1)
@given(sizes=_sizes, packs=st.integers(1, 6))
def test_there_are_no_more_packs_than_asked_for(sizes: list[int], packs: int) -> None:
    assert len(Reduction(packs=packs)._pack(sizes)) <= packs


def test_without_packs_each_value_goes_alone() -> None:
    assert Reduction()._pack([3, 0, 5]) == [[0], [1], [2]]


@pytest.fixture
def shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if three replicas shared memory."""

    class Shared:
        axis, replicas = "replica", 3

    monkeypatch.setattr(sharing, "_shared", Shared())


@pytest.mark.usefixtures("shared_memory")
def test_packs_through_shared_memory_begin_with_the_last_layer() -> None:
    megabytes = [n << 20 for n in (8, 30, 1, 16, 20)]
    assert Reduction()._packs_for(megabytes, "replica", 3) == [[4, 3], [2, 1, 0]]
    assert Reduction()._packs_for([], "replica", 3) == []


@pytest.mark.usefixtures("shared_memory")
@pytest.mark.parametrize(
    ("reduction", "replicas"), [(Reduction(pack_bytes=1), 3), (Reduction("ring"), 3), (Reduction(), 2)]
)
def test_what_is_asked_for_comes_first(reduction: Reduction, replicas: int) -> None:
    assert reduction._packs_for([1, 1, 1], "replica", replicas) == [[0], [1], [2]]
