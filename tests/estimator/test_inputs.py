from __future__ import annotations

import itertools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.data import Dataset
from lockstep.errors import ArgumentError, InputError, UnsupportedError
from lockstep.estimator._input_fns.arrays import numpy_input_fn, pandas_input_fn
from lockstep.estimator._input_fns.source import OneShotIterator, dataset_of


def lists(dataset: Dataset) -> list[Any]:
    return [jax.tree.map(lambda a: a.tolist(), batch) for batch in dataset.as_numpy_iterator()]


# numpy.


def test_features_and_labels_in_dicts() -> None:
    x = {"b": np.arange(32, 36), "a": np.arange(4) * 1.0}
    batches = lists(numpy_input_fn(x, np.arange(-32, -28), batch_size=2, shuffle=False)())
    assert batches == [({"a": [0, 1], "b": [32, 33]}, [-32, -31]), ({"a": [2, 3], "b": [34, 35]}, [-30, -29])]
    batches = lists(numpy_input_fn(x, {"c": np.arange(4)}, batch_size=4, shuffle=False)())
    assert batches == [({"a": [0, 1, 2, 3], "b": [32, 33, 34, 35]}, {"c": [0, 1, 2, 3]})]


def test_features_alone() -> None:
    assert lists(numpy_input_fn(np.arange(6).reshape(3, 2), batch_size=2, shuffle=False)()) == [
        [[0, 1], [2, 3]],
        [[4, 5]],
    ]


def test_types_stay() -> None:
    x = {"f": np.zeros(2, np.float64), "i": np.zeros(2, np.int8), "t": np.array(["a", "b"])}
    batch = next(iter(numpy_input_fn(x, batch_size=2, shuffle=False)()))
    assert {k: v.dtype for k, v in batch.items()} == {"f": np.float64, "i": np.int8, "t": object}
    assert batch["t"].tolist() == [b"a", b"b"]


@given(st.integers(1, 7), st.integers(1, 9), st.integers(1, 4), st.booleans())
def test_batches_go_on_over_the_end_of_an_epoch(rows: int, size: int, epochs: int, shuffle: bool) -> None:
    x = np.arange(rows)
    batches = lists(numpy_input_fn(x, x * 10, size, epochs, shuffle)())
    found = [row for features, _ in batches for row in features]
    assert [len(features) for features, _ in batches[:-1]] == [size] * (len(batches) - 1)
    assert sorted(found) == sorted(list(range(rows)) * epochs)
    assert shuffle or found == list(range(rows)) * epochs
    assert [row for _, labels in batches for row in labels] == [row * 10 for row in found]


def test_without_end_all_batches_are_whole() -> None:
    dataset = numpy_input_fn(np.arange(5), batch_size=3, num_epochs=None, shuffle=False, num_threads=2)()
    assert [b.tolist() for b in itertools.islice(dataset, 4)] == [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4, 0, 1]]
    assert dataset.options().threading.private_threadpool_size == 2


def test_rows_are_shuffled_among_as_many_as_asked_for() -> None:
    x = np.arange(1000)
    near = np.concatenate(list(numpy_input_fn(x, shuffle=True, queue_capacity=10)()))
    far = np.concatenate(list(numpy_input_fn(x, shuffle=True)()))
    assert sorted(near) == sorted(far) == x.tolist()
    assert near.tolist() != x.tolist()
    assert np.mean(near[:100]) < 100 < np.mean(far[:100])
    assert np.concatenate(list(numpy_input_fn(x, shuffle=True, queue_capacity=1)())).tolist() == x.tolist()


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"shuffle": None}, "shuffle must be provided"),
        ({"shuffle": 1}, "shuffle must be provided"),
        ({"x": {}}, "x must not be an empty dict"),
        ({"x": np.zeros((0, 2))}, "x must not be an empty array"),
        ({"x": [1, 2]}, "x must be an array"),
        ({"x": {"a": [1, 2]}}, r"x\['a'\] must be an array"),
        ({"y": {}}, "y must not be an empty dict"),
        ({"y": [1, 2]}, "y must be an array"),
        ({"y": np.arange(5)}, "Length of tensors in x and y is mismatched"),
        ({"x": {"a": np.arange(4), "b": np.arange(5)}}, "mismatched"),
        ({"x": np.float32(3)}, "mismatched"),
        ({"x": {"a": np.arange(4)}, "y": {"a": np.arange(4)}}, "1 duplicate keys are found in both x and y"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"batch_size": 2.5}, "batch_size must be"),
        ({"queue_capacity": 0}, "queue_capacity must be"),
        ({"num_threads": 0}, "num_threads must be"),
        ({"num_threads": 2}, "num_threads must be 1"),
    ],
)
def test_what_numpy_input_fn_refuses(arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(ArgumentError, match=rule):
        numpy_input_fn(**{"x": np.arange(4), "shuffle": False, **arguments})


# pandas.


def test_pandas_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UnsupportedError, match="needs pandas"):
        pandas_input_fn(None, shuffle=False)


# What input_fns return.


def test_a_dataset_is_itself() -> None:
    dataset = Dataset.range(3)
    assert dataset_of(dataset) is dataset


@pytest.mark.parametrize(
    ("returned", "element"),
    [
        (np.arange(3), [0, 1, 2]),
        ({"a": np.arange(2), "b": np.ones(2)}, {"a": [0, 1], "b": [1, 1]}),
        ((np.arange(2), np.arange(2, 4)), ([0, 1], [2, 3])),
        ([np.arange(2), {"l": np.arange(2, 4)}], ([0, 1], {"l": [2, 3]})),
        (({"a": jnp.arange(2)}, np.array([b"x", b"y"], object)), ({"a": [0, 1]}, [b"x", b"y"])),
        ((np.arange(2), None), ([0, 1], None)),
        (({"a": ((1,), (2,))}, ((10,), (20,))), ({"a": [[1], [2]]}, [[10], [20]])),
        (((1, 2), [3, 4]), ([1, 2], [3, 4])),
        ({"a": [["x"], ["y"]]}, {"a": [[b"x"], [b"y"]]}),
    ],
)
def test_arrays_are_one_batch(returned: Any, element: Any) -> None:
    assert lists(dataset_of(returned)) == [element]
    again = dataset_of(returned, repeat=True)
    assert [jax.tree.map(np.ndarray.tolist, b) for b in itertools.islice(again.as_numpy_iterator(), 3)] == [element] * 3


@pytest.mark.parametrize(
    ("returned", "rule"),
    [
        (None, "must return a dataset, or features"),
        ({}, "must return a dataset, or features"),
        ((np.ones(1),), "as a len 2 tuple. Received: a tuple of 1"),
        ((np.ones(1), np.ones(1), np.ones(1)), "as a len 2 tuple. Received: a tuple of 3"),
        (iter([1, 2]), "must return a dataset, or features.*iterator"),
        ({"a": object()}, "must return a dataset, or arrays"),
    ],
)
def test_what_no_input_fn_may_return(returned: Any, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        dataset_of(returned)


# Iterators of TensorFlow 1.


def pairs() -> Dataset:
    return Dataset.from_tensor_slices(({"a": np.arange(4), "b": np.arange(4) * 1.0}, np.arange(10, 14))).batch(2)


def test_the_next_of_an_iterator_is_its_dataset() -> None:
    dataset = pairs()
    assert dataset_of(OneShotIterator(dataset).get_next()) is dataset
    features, labels = OneShotIterator(dataset).get_next()
    assert (labels.shape, labels.dtype) == ((2,), np.int64)
    assert dataset_of((features, labels)) is dataset
    assert dataset_of([features, labels]) is dataset


def test_parts_of_the_next_element_in_another_arrangement() -> None:
    iterator = OneShotIterator(pairs())
    features, labels = iterator.get_next()
    assert lists(dataset_of(features)) == [{"a": [0, 1], "b": [0, 1]}, {"a": [2, 3], "b": [2, 3]}]
    assert lists(dataset_of(({"x": labels}, features["a"])))[0] == ({"x": [10, 11]}, [0, 1])
    assert lists(dataset_of((features["a"], features["a"])))[1] == ([2, 3], [2, 3])
    assert iterator.initializer is None
    flat = OneShotIterator(Dataset.range(4).batch(2)).get_next()
    assert lists(dataset_of({"x": flat})) == [{"x": [0, 1]}, {"x": [2, 3]}]


def test_iterators_do_not_mix() -> None:
    one, two = OneShotIterator(pairs()).get_next(), OneShotIterator(pairs()).get_next()
    with pytest.raises(InputError, match="what one iterator gives"):
        dataset_of((one[0], two[1]))
    with pytest.raises(InputError, match="what one iterator gives"):
        dataset_of((one[0], np.arange(2)))
    with pytest.raises(InputError, match="needs a dataset"):
        OneShotIterator([1, 2])  # type: ignore[arg-type]


def test_nothing_computes_with_elements_to_come() -> None:
    _, labels = OneShotIterator(pairs()).get_next()
    for compute in (
        lambda: labels / 255,
        lambda: np.float32(2) * labels,
        lambda: np.arange(2) + labels,
        lambda: labels[0],
        lambda: np.asarray(labels),
        lambda: float(labels),
        lambda: list(labels),
        lambda: bool(labels),
    ):
        with pytest.raises(UnsupportedError, match=r"Dataset\.map"):
            compute()
