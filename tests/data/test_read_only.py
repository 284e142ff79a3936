"""No operation changes what a dataset is made of: elements cannot be written to, functions get arrays of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.compat import tensorflow as tf
from lockstep.data import Dataset, numpy_function
from tests.data.chains import STEPS

ROWS = np.arange(24, dtype=np.float64).reshape(6, 4)


def sources() -> dict[str, tuple[Any, Dataset]]:
    """Arrays of the user's, and datasets of them."""
    rows = ROWS.copy()
    ragged = [np.arange(float(n)) for n in range(1, 5)]
    return {
        "slices": (rows, Dataset.from_tensor_slices(rows)),
        "tensors": (rows, Dataset.from_tensors(rows)),
        "dict": (rows, Dataset.from_tensor_slices({"a": rows, "b": rows})),
        "batched": (rows, Dataset.from_tensor_slices(rows).batch(2)),
        "cached": (rows, Dataset.from_tensor_slices(rows).map(lambda x: x + 1).cache()),
        "cached ragged": (ragged, Dataset.from_generator(lambda: iter(ragged)).cache()),
        "zip": (rows, Dataset.zip((Dataset.from_tensor_slices(rows), Dataset.range(6)))),
        "prefetched": (rows, Dataset.from_tensor_slices(rows).prefetch(3)),
        "shuffled": (rows, Dataset.from_tensor_slices(rows).shuffle(3, 1, False)),
        "repeated": (rows, Dataset.from_tensor_slices(rows).repeat(2)),
        "concatenated": (rows, Dataset.from_tensor_slices(rows).concatenate(Dataset.from_tensor_slices(rows))),
        "generator": (rows, Dataset.from_generator(lambda: iter(rows))),
        "passed on": (rows, Dataset.from_tensor_slices(rows).map(lambda x: (x, x))),
        "one by one": (rows, Dataset.from_tensor_slices(rows).map(lambda x: rows[int(x[0]) // 4])),
        "text": (rows, Dataset.from_tensor_slices(np.array([[b"a", b"b"]], object))),
        "windows": (rows, Dataset.from_tensor_slices(rows).window(2).flat_map(lambda w: w)),
        "sampled": (rows, Dataset.sample_from_datasets([Dataset.from_tensor_slices(rows)] * 2, seed=1)),
        "padded": (ragged, Dataset.from_generator(lambda: iter(ragged)).padded_batch(2)),
        "unbatched": (rows, Dataset.from_tensor_slices(rows).batch(4).unbatch()),
    }


@pytest.mark.parametrize("name", sources())
def test_elements_are_views_that_cannot_be_written_to(name: str) -> None:
    source, dataset = sources()[name]
    before = jax.tree.map(np.copy, source)
    expected = [jax.tree.map(np.copy, e) for e in dataset]
    for _ in range(2):
        for iterator in (iter(dataset), dataset.as_numpy_iterator()):
            for element, as_it_was in zip(iterator, expected, strict=True):
                jax.tree.map(np.testing.assert_array_equal, element, as_it_was)
                for leaf in jax.tree.leaves(element):
                    if isinstance(leaf, np.ndarray):
                        assert not leaf.flags.writeable
                        with pytest.raises(ValueError, match="read-only"):
                            leaf[...] = leaf[..., :1]
    jax.tree.map(np.testing.assert_array_equal, source, before)


def test_nothing_is_copied() -> None:
    rows = ROWS.copy()
    dataset = Dataset.from_tensor_slices(rows)
    assert all(np.shares_memory(element, rows) for element in dataset)
    assert all(np.shares_memory(element, rows) for element in dataset.batch(2))
    assert rows.flags.writeable


def test_tensors_give_copies_that_can_be_written_to() -> None:
    """As in TensorFlow: what a program does to them changes neither the tensor nor the source."""
    rows = ROWS.copy()
    dataset = tf.data.Dataset.from_tensor_slices(rows)
    for x in dataset:
        array = x.numpy()
        array /= 255.0
        assert not np.shares_memory(array, rows)
    np.testing.assert_array_equal(rows, ROWS)
    x = next(iter(dataset))
    x /= 2.0  # A new tensor.
    np.testing.assert_array_equal(rows, ROWS)


def in_place(x: Any) -> Any:
    array = np.asarray(x)
    array += 1
    array[0] = 100
    return array


def keep_if_big(x: Any) -> bool:
    in_place(x)
    return float(x[1]) > 0


def carried(state: Any, x: Any) -> Any:
    state += x.sum()
    in_place(x)
    return state, state


WRITERS: dict[str, Callable[[Dataset], Dataset]] = {
    "map": lambda d: d.map(in_place),
    "map on threads": lambda d: d.map(in_place, num_parallel_calls=2),
    "map twice": lambda d: d.map(in_place).map(in_place),
    "augmented": lambda d: d.map(lambda x: x + 1).map(in_place),
    "passed on": lambda d: d.map(lambda x: (x, x)).map(lambda x, y: (in_place(x), y)),
    "numpy_function": lambda d: d.map(lambda x: numpy_function(in_place, [x], np.float64)),
    "filter": lambda d: d.filter(keep_if_big),
    "take_while": lambda d: d.take_while(keep_if_big),
    "flat_map": lambda d: d.flat_map(lambda x: Dataset.from_tensors(in_place(x))),
    "interleave": lambda d: d.interleave(lambda x: Dataset.from_tensors(in_place(x)), cycle_length=2),
    "scan": lambda d: d.scan(np.zeros(()), carried),
    "scan of rows": lambda d: d.scan(np.zeros(4), carried),
    "cache": lambda d: d.cache().map(in_place),
}


@pytest.mark.parametrize("name", WRITERS)
def test_functions_may_write_into_what_they_are_given(name: str) -> None:
    rows = ROWS.copy()
    dataset = WRITERS[name](Dataset.from_tensor_slices(rows))
    passes = [[jax.tree.map(np.copy, e) for e in dataset] for _ in range(3)]
    np.testing.assert_array_equal(rows, ROWS)
    assert len(passes[0]) > 1
    for other in passes[1:]:
        jax.tree.map(np.testing.assert_array_equal, other, passes[0])


def test_what_a_function_writes_is_in_its_result_alone() -> None:
    dataset = Dataset.from_tensor_slices(ROWS).map(lambda x: (x, x)).map(lambda x, y: (in_place(x), y))
    for i, (changed, other) in enumerate(dataset):
        np.testing.assert_array_equal(other, ROWS[i])
        assert changed[0] == 100
    kept = list(Dataset.from_tensor_slices(ROWS).filter(keep_if_big))
    np.testing.assert_array_equal(kept, ROWS)


def test_py_function_gets_tensors_of_its_own() -> None:
    def add(x: Any) -> Any:
        array = x.numpy()
        array += 1
        return array

    rows = ROWS.copy()
    dataset = tf.data.Dataset.from_tensor_slices(rows).cache()
    added = dataset.map(lambda x: tf.py_function(add, [x], tf.float64))
    for _ in range(2):
        np.testing.assert_array_equal(list(added.as_numpy_iterator()), ROWS + 1)
    np.testing.assert_array_equal(rows, ROWS)


@pytest.mark.parametrize("size", [1, 3, 4])
def test_a_generator_may_yield_the_same_array_again(size: int) -> None:
    def numbers() -> Iterator[Any]:
        array = np.zeros(2)
        for i in range(8):
            array[:] = i
            yield array

    expected = np.repeat(np.arange(8.0), 2).reshape(8, 2)
    dataset = Dataset.from_generator(numbers)
    np.testing.assert_array_equal(list(dataset), expected)
    np.testing.assert_array_equal(np.concatenate(list(dataset.batch(size))), expected)
    np.testing.assert_array_equal(next(iter(dataset.cache().shuffle(8, seed=1).repeat(2).take(8).batch(8))).sum(), 56)
    np.testing.assert_array_equal(next(iter(dataset.shuffle(8, seed=1).batch(8))).sum(), 56)


def test_a_function_may_return_the_same_array_again() -> None:
    array = np.zeros(4)

    def same(x: Any) -> Any:
        array[:] = np.asarray(x)
        return array

    batches = list(Dataset.from_tensor_slices(ROWS).map(same).batch(3))
    np.testing.assert_array_equal(np.concatenate(batches), ROWS)


def test_reduce_and_scan_leave_their_first_state_alone() -> None:
    def add(state: Any, x: Any) -> Any:
        state += x
        return state

    first = np.zeros(4)
    total = Dataset.from_tensor_slices(ROWS).reduce(first, add)
    np.testing.assert_array_equal(total, ROWS.sum(axis=0))
    np.testing.assert_array_equal(first, np.zeros(4))
    dataset = Dataset.from_tensor_slices(ROWS).scan(first, lambda s, x: (add(s, x), s))
    for _ in range(2):
        np.testing.assert_array_equal(list(dataset), np.cumsum(ROWS, axis=0))
    np.testing.assert_array_equal(first, np.zeros(4))


def test_a_cache_in_files_cannot_be_written_to(tmp_path: Path) -> None:
    dataset = Dataset.from_tensor_slices(ROWS).cache(str(tmp_path / "kept"))
    for _ in range(2):
        for element in dataset:
            assert not element.flags.writeable
        np.testing.assert_array_equal(list(dataset), ROWS)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 4)), max_size=4),
    st.sampled_from([0, 2, 4]),
    st.booleans(),
)
def test_no_chain_of_transformations_changes_the_source(chain: Any, place: int, is_kept: bool) -> None:
    def writes(e: Any) -> Any:
        return {k: in_place(v.reshape(-1))[:1].reshape(v.shape) + 0 for k, v in e.items()}

    a, b = np.arange(7, dtype=np.float32), np.arange(7, dtype=np.int64)
    dataset = Dataset.from_tensor_slices({"a": a, "b": b})
    for i, (name, k) in enumerate(chain):
        if i == place:
            dataset = dataset.map(writes)
        dataset = STEPS[name](dataset, k)
    dataset = dataset.cache() if is_kept and dataset.cardinality() >= 0 else dataset
    passes: list[Any] = []
    for _ in range(2):
        found = []
        for element in dataset.take(20):
            found.append(jax.tree.map(np.copy, element))
            for leaf in jax.tree.leaves(element):
                if isinstance(leaf, np.ndarray):
                    with pytest.raises(ValueError, match="read-only"):
                        leaf += 1
        passes.append(found)
    np.testing.assert_array_equal(a, np.arange(7))
    np.testing.assert_array_equal(b, np.arange(7))
