"""Means over classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lockstep.errors import ArgumentError
from lockstep.estimator import metrics as m
from tests.training.driver import measure

_random = np.random.default_rng(8)
# Class 4 occurs nowhere.
BATCHES = [
    {
        "y": _random.integers(0, 4, (6, 2)).astype(np.int32),
        "p": _random.integers(0, 4, (6, 2)).astype(np.int32),
        "w": _random.uniform(size=(6, 2)).astype(np.float32),
    }
    for _ in range(3)
]
WHOLE = {key: np.concatenate([b[key].reshape(-1) for b in BATCHES]) for key in "ypw"}


@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("weighted", [True, False])
def test_accuracy_per_class(weighted: bool, replicas: int) -> None:
    found = measure(
        lambda b: m.mean_per_class_accuracy(b["y"], b["p"], 5, b["w"] if weighted else None), BATCHES, replicas
    )
    w = WHOLE["w"] if weighted else np.ones_like(WHOLE["w"])
    hits = [np.sum(w[(WHOLE["y"] == c) & (WHOLE["p"] == c)]) / np.sum(w[WHOLE["y"] == c]) for c in range(4)]
    np.testing.assert_allclose(found, sum(hits) / 5, rtol=1e-5)


@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("weighted", [True, False])
def test_intersection_over_union(weighted: bool, replicas: int) -> None:
    found = measure(lambda b: m.mean_iou(b["y"], b["p"], 5, b["w"] if weighted else None), BATCHES, replicas)
    w = WHOLE["w"] if weighted else np.ones_like(WHOLE["w"])
    true, said = WHOLE["y"], WHOLE["p"]
    parts = [np.sum(w[(true == c) & (said == c)]) / np.sum(w[(true == c) | (said == c)]) for c in range(4)]
    np.testing.assert_allclose(found, np.mean(parts), rtol=1e-5)


def test_without_weight_it_is_zero() -> None:
    nothing = np.zeros(2, np.int32)
    assert measure(lambda b: m.mean_iou(b, b, 3, np.zeros(2)), [nothing]) == 0
    assert measure(lambda b: m.mean_per_class_accuracy(b, b, 3, 0.0), [nothing]) == 0


@pytest.mark.parametrize("odd", [-1, 3])
def test_what_is_no_class_is_noticed(odd: int) -> None:
    labels = np.array([0, odd, 1], np.int32)
    good = np.array([0, 1, 1], np.int32)
    assert np.isnan(measure(lambda b: m.mean_iou(b, b, 3), [labels, good]))
    assert np.isnan(measure(lambda b: m.mean_per_class_accuracy(b, b, 3), [labels, good]))
    assert np.isnan(measure(lambda b: m.mean_iou(good, b, 3), [labels]))


@pytest.mark.parametrize("metric", [m.mean_iou, m.mean_per_class_accuracy])
def test_numbers_of_examples_must_match(metric: Callable[..., Any]) -> None:
    with pytest.raises(ArgumentError, match="as many predictions and weights as labels"):
        measure(lambda b: metric(b, b[:2], 3), [np.zeros(3, np.int32)])
    with pytest.raises(ArgumentError, match="as many predictions and weights as labels"):
        measure(lambda b: metric(b, b, 3, np.ones(2)), [np.zeros(3, np.int32)])
