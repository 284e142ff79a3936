"""sample_from_datasets and choose_from_datasets."""

from __future__ import annotations

import itertools
from typing import Any

import keras
import numpy as np
import pytest

from lockstep.data import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Dataset
from lockstep.errors import ArgumentError, InputError


def values(dataset: Dataset, most: int = 100) -> list[int]:
    return [int(v) for v in itertools.islice(dataset, most)]


def labels(weights: list[float] | None, count: int, seed: int) -> list[int]:
    endless = [Dataset.from_tensors(i).repeat() for i in range(3)]
    return values(Dataset.sample_from_datasets(endless, weights, seed=seed), count)


@pytest.mark.parametrize("weights", [[0.5, 0.2, 0.3], [5, 2, 3], np.array([0.5, 0.2, 0.3], np.float32), None])
def test_how_often_each_is_chosen(weights: list[float] | None) -> None:
    share = np.full(3, 1 / 3) if weights is None else np.array([0.5, 0.2, 0.3])
    expected = 6000 * share
    found = np.bincount(labels(weights, 6000, seed=7), minlength=3)
    assert ((found - expected) ** 2 / expected).sum() < 13.8  # The 0.1 % point of chi-square with 2 degrees of freedom.


def test_each_dataset_keeps_its_order_and_gives_everything() -> None:
    parts = [Dataset.range(0, 50), Dataset.range(100, 120), Dataset.range(0)]
    dataset = Dataset.sample_from_datasets(parts, seed=1)
    found = values(dataset, 200)
    assert [v for v in found if v < 100] == list(range(50))
    assert [v for v in found if v >= 100] == list(range(100, 120))
    assert len(dataset) == 70


def test_the_first_that_ends_may_end_all() -> None:
    parts = [Dataset.range(0, 5), Dataset.range(100, 200)]
    dataset = Dataset.sample_from_datasets(parts, seed=1, stop_on_empty_dataset=True)
    found = values(dataset, 200)
    assert [v for v in found if v < 100] == list(range(5))
    assert 5 < len(found) < 40
    assert dataset.cardinality() == UNKNOWN_CARDINALITY


def test_a_weight_of_zero() -> None:
    parts = [Dataset.range(3), Dataset.range(10, 13)]
    assert values(Dataset.sample_from_datasets(parts, [0.0, 1.0])) == [10, 11, 12]
    assert values(Dataset.sample_from_datasets(parts, [0.0, 1.0], stop_on_empty_dataset=True)) == [10, 11, 12]


def test_passes_and_seeds() -> None:
    endless = [Dataset.from_tensors(i).repeat() for i in range(2)]
    alike = Dataset.sample_from_datasets(endless, seed=3).take(50)
    other = Dataset.sample_from_datasets(endless, seed=3, rerandomize_each_iteration=True).take(50)
    assert values(alike) == values(alike)
    assert values(other) != values(other)
    assert values(Dataset.sample_from_datasets(endless, seed=4).take(50)) != values(alike)


def test_without_a_seed_the_choices_follow_keras() -> None:
    def choices() -> list[int]:
        return values(Dataset.sample_from_datasets([Dataset.from_tensors(i).repeat() for i in range(2)]), 50)

    keras.utils.set_random_seed(1)
    first = choices()
    second = choices()
    keras.utils.set_random_seed(1)
    assert (choices(), choices()) == (first, second)
    assert first != second


@pytest.mark.parametrize("weights", [[-1, 2], [0, 0], [1], [1, 2, 3], [np.nan, 1], [np.inf, 1]])
def test_wrong_weights(weights: list[float]) -> None:
    with pytest.raises(ArgumentError, match="weights must be 2 numbers"):
        Dataset.sample_from_datasets([Dataset.range(3), Dataset.range(3)], weights)


def test_what_is_mixed_must_be_of_one_kind() -> None:
    with pytest.raises(InputError, match="one structure and dtype"):
        _ = Dataset.sample_from_datasets([Dataset.range(3), Dataset.from_tensors("a")]).element_spec
    with pytest.raises(ArgumentError, match="at least one dataset"):
        Dataset.sample_from_datasets([])
    with pytest.raises(ArgumentError, match="at least one dataset"):
        Dataset.choose_from_datasets([], Dataset.range(1))


def chosen(choices: list[int], stop: bool) -> list[int]:
    named = Dataset.from_tensor_slices(np.array(choices, None if choices else np.int64))
    return values(Dataset.choose_from_datasets([Dataset.range(3), Dataset.range(10, 20)], named, stop))


def test_choices() -> None:
    assert chosen([0, 1, 1, 0, 1, 0, 0, 1], stop=True) == [0, 10, 11, 1, 12, 2]
    assert chosen([0, 1, 1, 0, 1, 0, 0, 1], stop=False) == [0, 10, 11, 1, 12, 2, 13]
    assert chosen([], stop=True) == []


@pytest.mark.parametrize("wrong", [[0, 2], [-1]])
def test_wrong_choices(wrong: list[int]) -> None:
    with pytest.raises(InputError, match="A choice must be a whole number from 0 to 1"):
        chosen(wrong, stop=True)


@pytest.mark.parametrize("wrong", [[[0]], [0.5]])
def test_choices_that_are_no_whole_numbers(wrong: list[Any]) -> None:
    with pytest.raises(TypeError, match="must be a dataset of scalar whole numbers"):
        chosen(wrong, stop=True)


def test_how_many_are_chosen() -> None:
    endless = [Dataset.range(3).repeat()] * 2
    assert Dataset.choose_from_datasets(endless, Dataset.range(2)).cardinality() == 2
    assert Dataset.choose_from_datasets(endless, Dataset.range(2).repeat()).cardinality() == INFINITE_CARDINALITY
    assert Dataset.choose_from_datasets([Dataset.range(3)], Dataset.range(1)).cardinality() == UNKNOWN_CARDINALITY
    assert Dataset.sample_from_datasets([Dataset.range(3), *endless]).cardinality() == INFINITE_CARDINALITY
