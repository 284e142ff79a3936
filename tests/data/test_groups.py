"""group_by_window, bucket_by_sequence_length, group_by_reducer, unique and rejection_resample: as TensorFlow 2.15."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from lockstep.data import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Dataset, TensorSpec
from lockstep.errors import ArgumentError, InputError

LISTS = [[0], [1, 2, 3, 4], [5, 6, 7], [7, 8, 9, 10, 11], [13, 14, 15, 16, 19, 20], [21, 22]]


def values(dataset: Dataset) -> list[Any]:
    return [np.asarray(v).tolist() for v in dataset.as_numpy_iterator()]


def lists() -> Dataset:
    return Dataset.from_generator(lambda: iter(LISTS), output_signature=TensorSpec([None], np.int64))


def test_windows_of_a_key_have_its_size_and_the_rest_comes_by_key() -> None:
    dataset = Dataset.range(11).group_by_window(
        lambda x: x % 3, lambda k, w: w.batch(10), window_size_func=lambda k: k + 1
    )
    assert values(dataset) == [[0], [3], [1, 4], [6], [2, 5, 8], [9], [7, 10]]
    assert dataset.element_spec == TensorSpec([None], np.int64)
    assert dataset.cardinality() == UNKNOWN_CARDINALITY
    endless = Dataset.range(3).repeat().group_by_window(lambda x: x, lambda k, w: w.batch(2), 2)
    assert endless.cardinality() == INFINITE_CARDINALITY
    assert values(endless.take(2)) == [[0, 0], [1, 1]]


def test_the_dataset_of_a_window_is_any_and_gets_the_key() -> None:
    dataset = Dataset.range(12).group_by_window(
        lambda x: x % 2 - 1, lambda k, w: w.map(lambda v: v + 100 * k).concatenate(w.take(1)), window_size=4
    )
    assert values(dataset) == [-100, -98, -96, -94, 0, 1, 3, 5, 7, 1, -92, -90, 8, 9, 11, 9]


def test_windows_of_an_endless_generator_are_read_no_further_than_needed() -> None:
    read: list[int] = []

    def numbers() -> Any:
        for i in range(1000):
            read.append(i)
            yield np.int64(i)

    dataset = Dataset.from_generator(numbers, output_signature=TensorSpec([], np.int64))
    iterator = dataset.group_by_window(lambda x: x % 2, lambda k, w: w.batch(3), 3).as_numpy_iterator()
    assert next(iterator).tolist() == [0, 2, 4]
    assert read == [0, 1, 2, 3, 4]


def test_an_element_that_fails_is_raised_in_its_turn_and_its_group_goes_on() -> None:
    def broken(x: Any) -> Any:
        if int(x) == 3:
            raise ValueError("three")
        return x

    dataset = Dataset.range(8).map(broken).group_by_window(lambda x: x % 2, lambda k, w: w.batch(2), 2)
    iterator = dataset.as_numpy_iterator()
    assert next(iterator).tolist() == [0, 2]
    with pytest.raises(InputError, match="three"):
        next(iterator)
    position = json.loads(json.dumps(iterator.get_state()))
    rest = [v.tolist() for v in iterator]
    assert rest == [[1, 5], [4, 6], [7]]
    iterator.set_state(position)
    assert [v.tolist() for v in iterator] == rest


def test_wrong_arguments_and_results_are_refused() -> None:
    dataset = Dataset.range(4)
    with pytest.raises(ArgumentError, match="must be specified"):
        dataset.group_by_window(lambda x: x, lambda k, w: w)
    with pytest.raises(ArgumentError, match="must be specified"):
        dataset.group_by_window(lambda x: x, lambda k, w: w, 2, lambda k: 2)
    with pytest.raises(ArgumentError, match="Window size must be greater than zero, but got 0"):
        values(dataset.group_by_window(lambda x: x, lambda k, w: w, 0))
    with pytest.raises(InputError, match="must return a single whole number"):
        values(dataset.group_by_window(lambda x: x * 1.5, lambda k, w: w, 1))
    with pytest.raises(InputError, match="of reduce_func must return a dataset"):
        values(dataset.group_by_window(lambda x: x, lambda k, w: k, 1))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {},
            [[[1, 2, 3, 4], [5, 6, 7, 0]], [[7, 8, 9, 10, 11, 0], [13, 14, 15, 16, 19, 20]], [[0, 0], [21, 22]]],
        ),
        (
            {"padding_values": -1},
            [[[1, 2, 3, 4], [5, 6, 7, -1]], [[7, 8, 9, 10, 11, -1], [13, 14, 15, 16, 19, 20]], [[0, -1], [21, 22]]],
        ),
    ],
)
def test_buckets_are_padded_to_their_longest(more: Any, expected: Any) -> None:
    dataset = lists().bucket_by_sequence_length(len, [3, 5], [2, 2, 2], **more)
    assert values(dataset) == expected
    assert dataset.element_spec == TensorSpec([None, None], np.int64)


def test_buckets_are_padded_to_their_boundary() -> None:
    dataset = lists().take(4).bucket_by_sequence_length(len, [3, 6], [2, 2, 2], pad_to_bucket_boundary=True)
    assert values(dataset) == [[[1, 2, 3, 4, 0], [5, 6, 7, 0, 0]], [[0, 0]], [[7, 8, 9, 10, 11]]]
    with pytest.raises(ValueError, match=r"elements must have length < max\(bucket_boundaries\)"):
        values(lists().bucket_by_sequence_length(len, [3, 6], [1, 1, 1], pad_to_bucket_boundary=True))
    with pytest.raises(ArgumentError, match="must equal"):
        lists().bucket_by_sequence_length(len, [3, 6], [1, 1])


def test_buckets_without_padding() -> None:
    pairs = Dataset.from_tensor_slices((np.arange(6), np.ones((6, 2), np.float32)))
    dataset = pairs.bucket_by_sequence_length(lambda n, _: n % 2, [1], [2, 3], no_padding=True, drop_remainder=True)
    assert [v[0].tolist() for v in dataset.as_numpy_iterator()] == [[0, 2], [1, 3, 5]]


def test_reducers_give_one_element_for_each_key() -> None:
    dataset = Dataset.range(10).group_by_reducer(
        lambda x: x % 3 - 1, lambda k: (np.int64(0), np.int64(1)), lambda s, x: (s[0] + x, s[1] * 2), lambda a, b: a * b
    )
    assert values(dataset) == [288, 96, 120]
    assert dataset.element_spec == TensorSpec([], np.int64)


def test_unique_keeps_the_first_of_equal_ones() -> None:
    assert values(Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1]).unique()) == [1, 37, 2]
    assert values(Dataset.from_tensor_slices(["hello", "world", "hello"]).unique()) == [b"hello", b"world"]
    pairs = Dataset.from_tensor_slices(([1, 1, 2], ["a", "a", "a"])).unique()
    assert [(int(a), b) for a, b in pairs.as_numpy_iterator()] == [(1, b"a"), (2, b"a")]
    with pytest.raises(TypeError, match="unique does not support type"):
        Dataset.from_tensor_slices([1.5]).unique()


@pytest.mark.parametrize("initial", [None, [0.9, 0.1]])
def test_resampled_classes_come_as_often_as_they_should(initial: Any) -> None:
    classes = Dataset.from_tensor_slices(np.array([0] * 90 + [1] * 10, np.int32)).shuffle(100, seed=1).repeat(12)
    dataset = classes.rejection_resample(lambda c: c, [0.5, 0.5], initial, seed=1)
    assert dataset.element_spec == (TensorSpec([], np.int32), TensorSpec([], np.int32))
    found = [int(c) for c, _ in dataset.as_numpy_iterator()][100 if initial is None else 0 :]
    # Three standard deviations of a mean of so many.
    assert abs(np.mean(found) - 0.5) < 1.5 / np.sqrt(len(found))


def test_nothing_is_resampled_that_is_as_it_should_be() -> None:
    dataset = Dataset.range(10).rejection_resample(lambda x: x % 2, [0.5, 0.5], [0.5, 0.5])
    assert [int(v) for _, v in dataset.as_numpy_iterator()] == list(range(10))
    with pytest.raises(ArgumentError, match="one probability for each class"):
        Dataset.range(10).rejection_resample(lambda x: x % 2, [0.5, 0.5], [0.5, 0.3, 0.2])
