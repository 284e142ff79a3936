"""However many workers read a dataset, every example is seen once, and followed batches are one worker's."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep._engine.input.datasets import InterleavedReader, Pipelines, ReplicatedReader, ShardSpec
from lockstep._engine.step.batches import EvenShard, RaggedShard
from lockstep.data import Dataset, TextLineDataset
from lockstep.data._dataset_base import plan_of
from lockstep.data._plan import Node, Run
from lockstep.data._sharding import file_count, shard_batches, shard_by_files, shard_by_hint
from lockstep.errors import ArgumentError
from tests.data.chains import STEPS

RUN = Run(7)


def rows_of(worker: int, workers: int) -> Callable[[int], slice | None]:
    """As the replicas of a strategy divide a batch, one per worker."""

    def rows(count: int) -> slice | None:
        if count % workers or workers == 1:
            return None
        return slice(worker * count // workers, (worker + 1) * count // workers)

    return rows


def followed(dataset: Dataset, workers: int, positions: Any = None) -> list[ReplicatedReader]:
    plan = plan_of(dataset)
    return [ReplicatedReader(plan, RUN, ShardSpec(rows_of(i, workers)), positions) for i in range(workers)]


def whole(portions: Sequence[Any]) -> list[Any]:
    """The global batch that workers hold together."""
    assert len({type(p) for p in portions}) == 1
    if isinstance(portions[0], EvenShard):
        assert {p.count for p in portions} == {sum(len(p.data) for p in portions)}
        return [v for p in portions for v in p.data.tolist()]
    assert all(np.array_equal(p, portions[0]) for p in portions)
    return portions[0].tolist()


def read_followed(workers: list[ReplicatedReader], most: int = 10**6) -> list[list[Any]]:
    batches: list[list[Any]] = []
    for portions in zip(*workers, strict=True):
        batches.append(whole([p.batch for p in portions]))
        if len(batches) == most:
            break
    return batches


@pytest.mark.slow
@given(st.integers(0, 60), st.integers(1, 20), st.integers(1, 5), st.integers(1, 30))
def test_followed_batches_are_those_of_one_worker(count: int, size: int, workers: int, buffer: int) -> None:
    dataset = Dataset.range(count).shuffle(buffer).map(lambda i: i * 2).batch(size)
    expected = [b.tolist() for b in (p.batch for p in followed(dataset, 1)[0])]
    assert read_followed(followed(dataset, workers)) == expected
    assert sorted(chain.from_iterable(expected)) == list(range(0, 2 * count, 2))


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.sampled_from(sorted(set(STEPS) - {"repeat endlessly"})), max_size=3), st.integers(1, 6), st.data())
def test_followed_resumes_on_any_number_of_workers(steps: list[str], size: int, data: Any) -> None:
    def dataset() -> Dataset:
        result = Dataset.from_tensor_slices({"a": np.arange(17.0), "b": np.arange(17)})
        for step in steps:
            result = STEPS[step](result, 3)
        return result.map(lambda e: e["b"]).batch(size)

    expected = read_followed(followed(dataset(), 1))
    point = data.draw(st.integers(0, len(expected)))
    before = followed(dataset(), 4)
    read_followed(before, point) if point else None
    positions = [json.loads(json.dumps(w.to_json(w.position()))) for w in before]
    for workers in (1, 2, 3):  # Any worker's position is everyone's.
        assert read_followed(followed(dataset(), workers, positions[workers])) == expected[point:]


def combined(plan: Node, part: Any, pipelines: int, workers: int, positions: Any = None) -> list[InterleavedReader]:
    made = Pipelines(pipelines, lambda i: shard_batches(part(plan, pipelines, i), pipelines, i))
    return [InterleavedReader(made, RUN, i, workers, ShardSpec(), positions) for i in range(workers)]


def read_combined(workers: list[InterleavedReader], most: int = 10**6) -> list[list[Any]]:
    """What the workers' agreement makes of their parts: batches until nobody has any rows."""
    batches: list[list[Any]] = []
    while len(batches) < most:
        portions = [next(w, None) for w in workers]
        parts = [p.batch.data if isinstance(p.batch, RaggedShard) else p.batch for p in portions if p is not None]
        batch = [v for part in parts for v in np.asarray(part).tolist()]
        if not batch:
            break
        batches.append(batch)
    return batches


def files(directory: Path, lengths: Sequence[int]) -> list[str]:
    """Text files whose lines are all different."""
    names: list[str] = []
    for i, length in enumerate(lengths):
        path = directory / f"{i}.txt"
        path.write_text("".join(f"{i}-{k}\n" for k in range(length)))
        names.append(str(path))
    return names


LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@given(LENGTHS, st.integers(5, 12), st.integers(1, 5), st.booleans())
def test_by_files_every_example_is_seen_once(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], size: int, workers: int, interleaved: bool
) -> None:
    names = files(tmp_path_factory.mktemp("files"), lengths)
    if interleaved:
        dataset = Dataset.from_tensor_slices(names).shuffle(9).interleave(TextLineDataset, cycle_length=3)
    else:
        dataset = TextLineDataset(names)
    plan = plan_of(dataset.shuffle(4).batch(size))
    assert file_count(plan) == len(lengths)
    batches = read_combined(combined(plan, shard_by_files, workers, workers))
    assert all(len(b) <= size for b in batches)
    expected = sorted(f"{i}-{k}".encode() for i, length in enumerate(lengths) for k in range(length))
    assert sorted(chain.from_iterable(batches)) == expected


@settings(max_examples=30)
@given(LENGTHS, st.integers(4, 9), st.data())
def test_by_files_resumes_on_any_number_of_workers(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], size: int, data: Any
) -> None:
    names = files(tmp_path_factory.mktemp("files"), lengths)
    plan = plan_of(TextLineDataset(names).shuffle(4).batch(size))
    expected = read_combined(combined(plan, shard_by_files, 4, 4))
    point = data.draw(st.integers(0, len(expected)))
    before = combined(plan, shard_by_files, 4, 4)
    read_combined(before, point)
    positions = json.loads(json.dumps([p for w in before for p in w.to_json(w.position())]))
    for workers in (1, 2, 3, 6):
        assert read_combined(combined(plan, shard_by_files, 4, workers, positions)) == expected[point:]


def test_what_a_worker_without_files_adds(tmp_path: Path) -> None:
    plan = plan_of(TextLineDataset(files(tmp_path, [3])).map(lambda line: (line, len(line))).batch(4))
    idle = combined(plan, shard_by_files, 2, 2)[1]
    text, number = next(idle).batch.data
    assert text.shape == number.shape == (0,)
    assert text.dtype == object


def test_by_hint() -> None:
    from lockstep.data import SHARD_HINT

    marked = plan_of(Dataset.range(10).shard(SHARD_HINT, SHARD_HINT).map(lambda i: i + 1).batch(4))
    assert read_combined(combined(marked, shard_by_hint, 2, 2)) == [[1, 3, 2, 4], [5, 7, 6, 8], [9, 10]]
    with pytest.raises(ArgumentError, match="SHARD_HINT"):
        shard_by_hint(plan_of(Dataset.range(4).batch(2)), 2, 0)


def test_data_without_files_cannot_be_divided_by_files() -> None:
    with pytest.raises(ArgumentError, match=r"Received: Batch\(2, False\) < range\(0, 4\). Use AutoShardPolicy.DATA"):
        shard_by_files(plan_of(Dataset.range(4).batch(2)), 2, 0)


def test_a_share_needs_a_row() -> None:
    with pytest.raises(ArgumentError, match=r"at least one example per worker. Received: 2 for 3"):
        shard_batches(plan_of(Dataset.range(4).batch(2)), 3, 2)
    with pytest.raises(ArgumentError, match="must consist of global batches"):
        shard_batches(plan_of(Dataset.range(4)), 2, 0)
