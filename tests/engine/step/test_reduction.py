"""Every way to add up gradients gives the sum, on any number of replicas."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jax.sharding import Mesh, PartitionSpec

from benchmarks.traffic.hlo import counted
from lockstep._engine.step import backends
from lockstep._engine.step.reduction import Algorithm, Reduction
from tests.engine.step.collectives import on_each

SHAPES = [(), (1,), (5,), (3, 4), (2, 3, 7)]


@pytest.mark.slow
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


ALGORITHMS: tuple[Algorithm, ...] = ("all_reduce", "ring", "hierarchical", "one_device")


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [3, 4])
def test_all_replicas_have_the_same_bits_and_all_ways_the_same_sum(replicas: int) -> None:
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(replicas, *shape)).astype("float32") for shape in SHAPES]

    def every_way(parts: list[jax.Array]) -> list[list[jax.Array]]:
        return [Reduction(a, packs=2).sum(parts, "replica", replicas) for a in ALGORITHMS]

    for sums in on_each(replicas, every_way)(values):
        for total, value in zip(sums, values, strict=True):
            np.testing.assert_array_equal(total, np.broadcast_to(total[:1], total.shape))
            np.testing.assert_allclose(total[0], value.sum(0), rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "kind", "each"),
    [
        ("all_reduce", "all-reduce", 1),
        ("ring", "collective-permute", 6),
        ("hierarchical", "collective-permute", 2),
        ("one_device", "all-gather", 1),
    ],
)
def test_each_way_is_a_program_of_its_own_and_packs_are_collectives(algorithm: Algorithm, kind: str, each: int) -> None:
    values = [np.ones((4, n), "float32") for n in (30, 10, 20, 20)]

    def collectives(**options: int) -> dict[str, int]:
        adding = on_each(4, lambda parts: Reduction(algorithm, **options).sum(parts, "replica", 4))
        return dict(counted(adding.lower(values).compile().as_text()))

    assert collectives(packs=1) == {kind: each}
    assert collectives(packs=2) == {kind: 2 * each}
    assert collectives(pack_bytes=1) == {kind: 4 * each}
    # Without packs, XLA makes one of what it can.
    assert collectives() == {kind: 1 if algorithm == "all_reduce" else 4 * each}


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

    monkeypatch.setattr(backends, "_all_reduce", Shared())


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
