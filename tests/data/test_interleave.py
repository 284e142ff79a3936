"""interleave and flat_map: the order is tf.data's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.data import AUTOTUNE, UNKNOWN_CARDINALITY, Dataset, TensorSpec
from lockstep.errors import ArgumentError, InputError


def order(lengths: list[int], cycle: int, block: int) -> list[tuple[int, int]]:
    """TensorFlow's InterleaveDataset (interleave_dataset_op.cc); the same as TensorFlow 2.15 in 300 random cases."""
    found: list[tuple[int, int]] = []
    waiting = iter(enumerate(lengths))
    is_open: list[tuple[int, Any] | None] = [None] * cycle
    place, taken, ended = 0, 0, False
    while not ended or any(is_open):
        slot = is_open[place]
        if slot is not None:
            element = next(slot[1], None)
            taken += 1
            if element is None:
                is_open[place] = None
            else:
                found.append((slot[0], element))
            if element is None or taken == block:
                place, taken = (place + 1) % cycle, 0
        elif not ended and (following := next(waiting, None)) is not None:
            is_open[place] = (following[0], iter(range(following[1])))
        elif ended:
            place, taken = (place + 1) % cycle, 0
        else:
            ended = True
    return found


def interleaved(lengths: list[int], cycle: int, block: int, **more: Any) -> list[tuple[int, int]]:
    def inner(number: Any, length: Any) -> Dataset:
        return Dataset.zip((Dataset.from_tensors(number).repeat(int(length)), Dataset.range(int(length))))

    outer = Dataset.from_tensor_slices((np.arange(len(lengths)), np.array(lengths, int)))
    dataset = outer.interleave(inner, cycle_length=cycle, block_length=block, **more)
    return [(int(a), int(b)) for a, b in dataset]


@given(st.lists(st.integers(0, 6), max_size=8), st.integers(1, 5), st.integers(1, 4))
def test_the_order_is_tensorflows(lengths: list[int], cycle: int, block: int) -> None:
    assert interleaved(lengths, cycle, block) == order(lengths, cycle, block)


def test_an_order_written_by_hand() -> None:
    assert interleaved([3, 1, 2], 2, 1) == [(0, 0), (1, 0), (0, 1), (0, 2), (2, 0), (2, 1)]
    assert interleaved([2, 2], 2, 5) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert interleaved([3, 0, 2], 1, 1) == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]


@pytest.mark.parametrize("calls", [1, 4, AUTOTUNE])
@pytest.mark.parametrize("deterministic", [None, True, False])
def test_parallel_calls_keep_the_order(calls: int, deterministic: bool | None) -> None:
    lengths = [5, 2, 0, 7]
    found = interleaved(lengths, 3, 2, num_parallel_calls=calls, deterministic=deterministic)
    assert found == order(lengths, 3, 2)


def test_flat_map_is_one_after_another() -> None:
    assert [int(v) for v in Dataset.range(5).flat_map(Dataset.range)] == [0, 0, 1, 0, 1, 2, 0, 1, 2, 3]


def test_flat_map_of_flat_map() -> None:
    def inner(i: Any) -> Dataset:
        return Dataset.range(2).flat_map(lambda j: Dataset.from_tensors(i * 10 + j))

    assert [int(v) for v in Dataset.range(3).flat_map(inner)] == [0, 1, 10, 11, 20, 21]


def test_a_tuple_is_spread_over_the_arguments() -> None:
    pairs = Dataset.zip((Dataset.range(1, 4), Dataset.range(10, 13)))
    found = pairs.flat_map(lambda a, b: Dataset.from_tensors(b).repeat(a))
    assert [int(v) for v in found] == [10, 11, 11, 12, 12, 12]


def test_each_inner_shuffle_has_an_order_of_its_own() -> None:
    orders = [[int(v) for v in d.batch(50).get_single_element()] for d in [Dataset.range(50).shuffle(50)] * 2]
    assert orders[0] != orders[1]
    rows = list(Dataset.range(3).flat_map(lambda i: Dataset.range(50).shuffle(50).batch(50)))
    assert len({r.tobytes() for r in rows}) == 3


def test_endless_inner_datasets() -> None:
    dataset = Dataset.range(3).interleave(lambda i: Dataset.from_tensors(i).repeat(), cycle_length=2)
    assert [int(v) for v in dataset.take(6)] == [0, 1, 0, 1, 0, 1]


def test_element_spec_and_cardinality() -> None:
    dataset = Dataset.range(1, 4).flat_map(lambda i: Dataset.from_tensors(np.zeros(int(i))))
    assert dataset.element_spec == TensorSpec((None,), np.float64)
    assert dataset.cardinality() == UNKNOWN_CARDINALITY
    empty = Dataset.range(3).flat_map(lambda i: Dataset.from_tensor_slices(np.zeros((0, 2), np.float32)))
    assert empty.element_spec == TensorSpec((2,), np.float32)
    assert list(empty) == []


def test_nothing_to_interleave() -> None:
    assert list(Dataset.range(0).interleave(Dataset.range)) == []
    with pytest.raises(InputError, match="known only from the first"):
        _ = Dataset.range(0).flat_map(Dataset.range).element_spec


@pytest.mark.parametrize(
    "wrong", [{"cycle_length": 0}, {"cycle_length": -2}, {"block_length": 0}, {"num_parallel_calls": 0}]
)
def test_wrong_numbers_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(wrong))} must be at least 1"):
        Dataset.range(3).interleave(Dataset.range, **wrong)


def test_the_function_must_return_a_dataset() -> None:
    def number(i: Any) -> Any:
        return i

    with pytest.raises(InputError, match=r"number of flat_map or interleave must return a dataset"):
        list(Dataset.range(3).flat_map(number))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="A function of an element is needed"):
        Dataset.range(3).flat_map(3)  # type: ignore[arg-type]
