"""shuffle: permutations, how far elements move, how even they are, and which seeds give which order."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.data import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Dataset
from lockstep.errors import ArgumentError


def values(dataset: Dataset) -> list[int]:
    return [int(v) for v in dataset]


@given(
    st.integers(0, 60), st.none() | st.integers(1, 70), st.integers(0, 5), st.sampled_from(["range", "unknown", "map"])
)
def test_every_pass_is_a_permutation_within_reach_of_the_buffer(
    count: int, size: int | None, seed: int, kind: str
) -> None:
    source = Dataset.range(count)
    if kind == "unknown":
        source = source.filter(lambda x: x >= 0)
    if kind == "map":
        source = source.map(lambda x: x + 0)
    dataset = source.shuffle(size, seed=seed)
    for _ in range(2):
        found = values(dataset)
        assert sorted(found) == list(range(count))
        if size is not None:
            assert all(place >= element - size + 1 for place, element in enumerate(found))
    assert dataset.cardinality() == source.cardinality()
    assert dataset.element_spec == source.element_spec


@given(st.integers(0, 30))
def test_a_buffer_of_one_changes_nothing(count: int) -> None:
    assert values(Dataset.range(count).shuffle(1)) == list(range(count))


@pytest.mark.parametrize("size", [6, 100, None, UNKNOWN_CARDINALITY])
def test_a_full_buffer_is_uniform(size: int | None) -> None:
    """Every element is at every place equally often: 36 counts, of which 25 are free."""
    dataset = Dataset.range(6).shuffle(size, seed=11)
    counts = np.zeros((6, 6))
    for _ in range(1200):
        counts[range(6), values(dataset)] += 1
    assert ((counts - 200) ** 2 / 200).sum() < 52.6  # The 0.1 % point.


def test_all_orders_are_equally_frequent() -> None:
    dataset = Dataset.range(3).shuffle(3, seed=5).repeat(1800).batch(3)
    orders = [tuple(b.tolist()) for b in dataset]
    counts = np.array([orders.count(o) for o in itertools.permutations(range(3))])
    assert ((counts - 300) ** 2 / 300).sum() < 20.5  # The 0.1 % point of chi-square with 5 degrees of freedom.


def test_a_small_buffer_is_even() -> None:
    """The first element is any of the buffer's, equally often."""
    dataset = Dataset.range(50).shuffle(10, seed=2).take(1)
    counts = np.bincount([values(dataset)[0] for _ in range(1000)], minlength=10)
    assert len(counts) == 10
    assert ((counts - 100) ** 2 / 100).sum() < 27.9


def test_each_pass_has_another_order_unless_told() -> None:
    again = Dataset.range(50).shuffle(50, seed=1)
    alike = Dataset.range(50).shuffle(50, seed=1, reshuffle_each_iteration=False)
    assert values(again) != values(again)
    assert values(alike) == values(alike)
    twice, both = values(again.repeat(2)), values(alike.repeat(2))
    assert twice[:50] != twice[50:]
    assert both[:50] == both[50:] == values(alike)


def test_repeating_and_iterating_again_give_the_same_orders() -> None:
    def dataset() -> Dataset:
        return Dataset.range(20).shuffle(20, seed=9)

    one, passes = dataset().repeat(3), dataset()
    assert values(one) == [v for _ in range(3) for v in values(passes)]


def test_a_seed_gives_an_order() -> None:
    orders = [values(Dataset.range(50).shuffle(20, seed=s)) for s in (3, 3, 4)]
    assert orders[0] == orders[1] != orders[2]
    assert values(Dataset.range(50).shuffle(20, seed=np.int64(3))) == orders[0]


def test_without_a_seed_orders_follow_keras() -> None:
    def orders() -> list[list[int]]:
        dataset = Dataset.range(50).shuffle(50)
        return [values(dataset), values(dataset), values(Dataset.range(50).shuffle(50))]

    keras.utils.set_random_seed(5)
    found = orders()
    keras.utils.set_random_seed(5)
    assert orders() == found
    keras.utils.set_random_seed(6)
    assert orders() != found
    assert len({tuple(o) for o in found}) == 3


def test_two_shuffles_of_one_plan_differ() -> None:
    keras.utils.set_random_seed(5)
    both = Dataset.zip((Dataset.range(50).shuffle(50), Dataset.range(50).shuffle(50)))
    pairs = [(int(a), int(b)) for a, b in both]
    assert [a for a, _ in pairs] != [b for _, b in pairs]


def test_batches_are_moved_whole() -> None:
    found = [b.tolist() for b in Dataset.range(12).batch(3).shuffle(4, seed=1)]
    assert sorted(found) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


def test_an_endless_dataset() -> None:
    endless = Dataset.range(5).repeat().shuffle(7, seed=1)
    assert endless.cardinality() == INFINITE_CARDINALITY
    found = values(endless.take(500))
    assert np.bincount(found).min() > 95
    with pytest.raises(ArgumentError, match="endless dataset needs a buffer_size"):
        Dataset.range(5).repeat().shuffle(None)


@pytest.mark.parametrize("wrong", [0, -1, -3])
def test_wrong_buffers(wrong: int) -> None:
    with pytest.raises(ArgumentError, match="buffer_size must be at least 1"):
        Dataset.range(5).shuffle(wrong)
