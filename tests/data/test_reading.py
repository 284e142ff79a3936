"""Iterating: prefetching, threads, options, memory, and what an abandoned iterator leaves behind."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from lockstep.data import (
    AUTOTUNE,
    AutoShardPolicy,
    Dataset,
    DatasetIterator,
    DistributeOptions,
    Options,
    TensorSpec,
    ThreadingOptions,
)
from lockstep.errors import ArgumentError


def values(dataset: Any) -> list[int]:
    return [int(v) for v in dataset]


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "It did not happen in time."
        threading.Event().wait(0.01)


def prefetching() -> list[str]:
    gc.collect()
    return [t.name for t in threading.enumerate() if t.name == "lockstep-prefetch"]


def test_iterators() -> None:
    dataset = Dataset.range(3)
    iterator = iter(dataset)
    assert isinstance(iterator, DatasetIterator)
    assert iter(iterator) is iterator
    assert iterator.element_spec == TensorSpec((), np.int64)
    assert (iterator.get_next(), next(iterator)) == (0, 1)
    found = iterator.get_next_as_optional()
    assert found.has_value() and found.get_value() == 2
    end = iterator.get_next_as_optional()
    assert not end.has_value()
    with pytest.raises(ArgumentError, match="come to its end"):
        end.get_value()
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(iterator)
    assert values(dataset) == values(dataset) == [0, 1, 2]


@pytest.mark.parametrize("size", [0, 1, 5, 1000, AUTOTUNE])
def test_prefetch(size: int) -> None:
    assert values(Dataset.range(300).map(lambda x: int(x) + 1).prefetch(size)) == list(range(1, 301))
    assert values(Dataset.range(0).prefetch(size)) == []
    with pytest.raises(ArgumentError, match="buffer_size must be at least 0"):
        Dataset.range(3).prefetch(-2)


def test_prefetch_reads_ahead_and_no_further() -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for i in range(100):
            taken.append(i)
            yield i

    dataset = Dataset.from_generator(numbers, output_signature=TensorSpec((), np.int32)).prefetch(4)
    iterator = iter(dataset)
    assert next(iterator) == 0
    # One is handed out, four wait, and one is in the thread's hand.
    wait_until(lambda: len(taken) == 6)
    assert values(iterator) == list(range(1, 100))


def test_an_error_ahead_comes_after_what_is_before_it() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError("mine")

    iterator = iter(Dataset.from_generator(numbers, output_signature=TensorSpec((), np.int32)).prefetch(5))
    assert next(iterator) == 1
    with pytest.raises(ZeroDivisionError, match="mine"):
        next(iterator)
    assert list(iterator) == []


@pytest.mark.slow
def test_no_thread_stays_behind() -> None:
    wait_until(lambda: not prefetching())
    iterator = iter(Dataset.range(1000).repeat().prefetch(3))
    assert next(iterator) == 0
    assert len(prefetching()) == 1
    del iterator
    wait_until(lambda: not prefetching())
    closed = Dataset.range(1000).repeat().prefetch(3).as_numpy_iterator()
    closed.close()
    wait_until(lambda: not prefetching())
    assert values(Dataset.range(5).prefetch(3)) == [0, 1, 2, 3, 4]
    wait_until(lambda: not prefetching())


def test_one_dataset_on_many_threads() -> None:
    dataset = Dataset.range(200).map(lambda x: jnp.sqrt(x * 1.0)).shuffle(50, seed=1).batch(7).map(lambda b: b * 2)
    expected = np.sort(np.sqrt(np.arange(200, dtype=np.float32)) * 2)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: np.sort(np.concatenate(list(dataset))), range(16)))
    np.testing.assert_allclose(found, [expected] * 16, rtol=1e-6)


def peak(dataset: Dataset, passes: int) -> float:
    """MiB that stay allocated after some passes over a dataset, beyond those after a first one."""
    list(dataset)
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(passes):
            for _ in dataset:
                pass
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_stays_flat() -> None:
    rows = np.zeros((2000, 64), np.float32)
    cached = Dataset.from_tensor_slices(rows).map(lambda x: x + 1).cache().shuffle(500).batch(32)
    assert peak(cached, 8) < 0.5
    endless = Dataset.from_tensor_slices(rows).repeat().shuffle(500).map(lambda x: x + 1).batch(32)
    assert peak(endless.take(200), 5) < 0.5
    mapped = Dataset.range(2000).repeat().map(lambda x: np.full(64, int(x))).shuffle(100).batch(32)
    assert peak(mapped.take(100), 3) < 0.5


def test_options_are_merged() -> None:
    first, second = Options(), Options()
    first.deterministic = False
    first.experimental_distribute.auto_shard_policy = AutoShardPolicy.FILE
    second.threading.private_threadpool_size = 1
    dataset = Dataset.range(5).with_options(first).map(lambda x: x + 1).with_options(second)
    found = dataset.options()
    assert found.deterministic is found.experimental_deterministic is False
    assert found.experimental_distribute == DistributeOptions(AutoShardPolicy.FILE)
    assert found.threading == found.experimental_threading == ThreadingOptions(1)
    assert values(dataset) == [1, 2, 3, 4, 5]
    assert Dataset.range(5).options() == Options()
    second.experimental_distribute.auto_shard_policy = "data"  # type: ignore[assignment]
    merged = dataset.with_options(second).options().experimental_distribute.auto_shard_policy
    assert merged is AutoShardPolicy.DATA


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        (None, "experimental_optimization", 1),
        (None, "deterministic", "yes"),
        ("threading", "private_threadpool_size", -1),
        ("threading", "private_threadpool_size", 1.5),
        ("threading", "max_intra_op_parallelism", 2),
        ("experimental_distribute", "auto_shard_policy", "nonsense"),
        ("experimental_distribute", "num_devices", 2),
    ],
)
def test_wrong_options(part: str | None, name: str, value: Any) -> None:
    options = Options()
    with pytest.raises(ArgumentError, match=name):
        setattr(getattr(options, part) if part else options, name, value)
    with pytest.raises(ArgumentError, match=r"needs a lockstep.data.Options"):
        Dataset.range(3).with_options({"deterministic": True})  # type: ignore[arg-type]


def test_a_dataset_is_not_made_by_its_class() -> None:
    with pytest.raises(ArgumentError, match="made by a function such as"):
        Dataset()
    assert "TensorSpec(shape=(), dtype=int64)" in repr(Dataset.range(3))
