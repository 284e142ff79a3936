"""Chunks hold every element once, in bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lockstep._cpu.shared_memory.exchange import plan_chunks, shard_bounds

_SIZES = st.lists(st.tuples(st.integers(0, 3000), st.sampled_from([1, 2, 4, 8, 16])), max_size=12)


@given(sizes=_SIZES, capacity=st.integers(1, 40).map(lambda n: n * 64))
def test_every_element_is_in_one_chunk(sizes: list[tuple[int, int]], capacity: int) -> None:
    found: list[list[tuple[int, int]]] = [[] for _ in sizes]
    for pieces in plan_chunks(tuple(sizes), capacity):
        assert pieces
        end = 0
        for p in pieces:
            assert p.offset >= end
            assert p.offset % 64 == 0
            end = p.offset + (p.stop - p.start) * sizes[p.value][1]
            assert end <= capacity
            found[p.value].append((p.start, p.stop))
    for (count, _), parts in zip(sizes, found, strict=True):
        assert [i for start, stop in parts for i in range(start, stop)] == list(range(count))


@given(sizes=_SIZES, capacity=st.integers(1, 40).map(lambda n: n * 64))
def test_there_are_not_many_more_chunks_than_needed(sizes: list[tuple[int, int]], capacity: int) -> None:
    aligned = sum(-(-count * width // 64) * 64 for count, width in sizes)
    assert len(plan_chunks(tuple(sizes), capacity)) <= -(-aligned // capacity)


@given(count=st.integers(0, 1000), parts=st.integers(1, 9))
def test_shards_hold_every_element_once(count: int, parts: int) -> None:
    found = [shard_bounds(count, i, parts) for i in range(parts)]
    assert [i for start, stop in found for i in range(start, stop)] == list(range(count))
