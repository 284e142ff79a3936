"""Random datasets: every source, and chains of every transformation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from hypothesis import strategies as st

from lockstep.data import Dataset

# How many elements of an endless dataset are looked at.
MOST = 60


def _slices(n: int) -> Dataset:
    return Dataset.from_tensor_slices({"a": np.arange(n, dtype=np.float32), "b": np.arange(n, dtype=np.int64) * 10})


def _ranged(n: int) -> Dataset:
    return Dataset.range(n).map(lambda i: {"a": i * 1.0, "b": i})


def _generated(n: int) -> Dataset:
    return Dataset.from_generator(lambda: ({"a": np.float32(i), "b": np.int64(i)} for i in range(n)))


def _zipped(n: int) -> Dataset:
    return Dataset.zip({"a": Dataset.range(n).map(lambda i: i * 2.0), "b": Dataset.range(n + 3).shuffle(5, seed=1)})


def _mixed(n: int) -> Dataset:
    return Dataset.sample_from_datasets([_slices(n), _ranged(n // 2)], seed=3)


def _chosen(n: int) -> Dataset:
    return Dataset.choose_from_datasets([_slices(n), _ranged(n)], Dataset.range(2 * n).map(lambda i: i % 2))


SOURCES: dict[str, Callable[[int], Dataset]] = {
    "slices": _slices,
    "range": _ranged,
    "generator": _generated,
    "zip": _zipped,
    "sample": _mixed,
    "choose": _chosen,
}


def _traced(e: Any) -> Any:
    return {"a": e["a"] * 2 + 1, "b": e["b"]}


def _each(e: Any) -> Any:
    return {"a": np.float32(float(e["a"]) - 3), "b": e["b"]}


def _some(e: Any) -> Any:
    return e["b"] % 3 != 1


def _some_one_by_one(e: Any) -> bool:
    return int(e["b"]) % 4 != 2


def _twice(e: Any) -> Dataset:
    return Dataset.from_tensor_slices({k: np.stack([v, v + 1]) for k, v in e.items()})


def _numbered(i: Any, e: Any) -> Any:
    return {"a": e["a"] + i, "b": e["b"]}


def _carried(state: Any, e: Any) -> Any:
    return state + np.float32(e["a"]), {"a": state, "b": e["b"]}


def _third(e: Any) -> Any:
    return e["b"] % 3


def _group(key: Any, window: Dataset) -> Dataset:
    return window.batch(2)


def _length(e: Any) -> Any:
    return e["b"] % 7


def _zero(key: Any) -> Any:
    return np.float32(0), np.int64(0)


def _added(state: Any, e: Any) -> Any:
    return np.float32(state[0] + e["a"]), np.int64(state[1] + e["b"])


def _named(a: Any, b: Any) -> Any:
    return {"a": a, "b": b}


def _number(e: Any) -> Any:
    return e["b"] % 12


def _second(_: Any, e: Any) -> Any:
    return e


def _rebuilt(i: Any) -> Any:
    return {"a": i * 1.0, "b": i}


def _windows(w: Any) -> Dataset:
    return Dataset.zip(w)


# Elements stay dicts of scalars, so that any may follow any.
STEPS: dict[str, Callable[[Dataset, int], Dataset]] = {
    "map traced": lambda d, k: d.map(_traced),
    "map one by one": lambda d, k: d.map(_each),
    "map on threads": lambda d, k: d.map(_each, num_parallel_calls=2),
    "filter": lambda d, k: d.filter(_some),
    "filter one by one": lambda d, k: d.filter(_some_one_by_one),
    "flat_map": lambda d, k: d.flat_map(_twice),
    "interleave": lambda d, k: d.interleave(_twice, cycle_length=k, block_length=1 + k % 2),
    "batch, unbatch": lambda d, k: d.batch(k).unbatch(),
    "batch, drop, unbatch": lambda d, k: d.batch(k, drop_remainder=True).unbatch(),
    "padded_batch, unbatch": lambda d, k: d.padded_batch(k).unbatch(),
    "batch, rebatch, unbatch": lambda d, k: d.batch(k).rebatch(3).unbatch(),
    "batch, shuffle, unbatch": lambda d, k: d.batch(2).shuffle(k, seed=5).unbatch(),
    "batch, map, unbatch": lambda d, k: d.batch(k).map(_traced).unbatch(),
    "cache": lambda d, k: d.cache(),
    "shuffle": lambda d, k: d.shuffle(k),
    "shuffle all": lambda d, k: d.shuffle(1000, seed=k),
    "shuffle alike": lambda d, k: d.shuffle(k, seed=1, reshuffle_each_iteration=False),
    "repeat": lambda d, k: d.repeat(2),
    "repeat endlessly": lambda d, k: d.repeat(),
    "take": lambda d, k: d.take(3 * k),
    "skip": lambda d, k: d.skip(k),
    "shard": lambda d, k: d.shard(k, k - 1),
    "enumerate": lambda d, k: d.enumerate(k).map(_numbered),
    "concatenate": lambda d, k: d.concatenate(d.take(k)),
    "take_while": lambda d, k: d.take_while(lambda e: e["b"] < 10 * k),
    "scan": lambda d, k: d.scan(np.float32(0), _carried),
    "window": lambda d, k: d.window(k, shift=1 + k % 3, stride=1 + k % 2).flat_map(_windows),
    "group_by_window": lambda d, k: d.group_by_window(_third, _group, k).unbatch(),
    "bucket_by_sequence_length": lambda d, k: d.bucket_by_sequence_length(_length, [2, 5], [k, 2, 3]).unbatch(),
    "group_by_reducer": lambda d, k: d.take(30).group_by_reducer(_third, _zero, _added, _named),
    "unique": lambda d, k: d.take(30).map(_number).unique().map(_rebuilt),
    "rejection_resample": lambda d, k: d.rejection_resample(_third, [0.2, 0.3, 0.5], seed=k).map(_second),
    "rejection_resample of known": lambda d, k: d.rejection_resample(
        _third, [0.2, 0.3, 0.5], [0.5, 0.3, 0.2], seed=k
    ).map(_second),
    "prefetch": lambda d, k: d.prefetch(k),
    "ignore_errors": lambda d, k: d.ignore_errors(),
}

chains = st.tuples(
    st.sampled_from(sorted(SOURCES)),
    st.integers(0, 20),
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 6)), max_size=5),
    st.integers(0, 4),
)


def build(chain: Any) -> Dataset:
    """Returns the dataset that a value of `chains` describes; batched if its last number is not 0."""
    source, count, steps, batch = chain
    dataset = SOURCES[source](count)
    for name, number in steps:
        dataset = STEPS[name](dataset, number)
    return dataset.batch(batch) if batch else dataset


def read(iterator: Any, most: int = MOST) -> list[Any]:
    """Returns the next elements, as lists that can be compared."""
    found: list[Any] = []
    for element in iterator:
        found.append(shown(element))
        if len(found) == most:
            break
    return found


def shown(element: Any) -> Any:
    """Returns an element's values, shapes and dtypes."""
    return jax.tree.map(lambda a: (np.asarray(a).tolist(), str(np.asarray(a).dtype)), element)
