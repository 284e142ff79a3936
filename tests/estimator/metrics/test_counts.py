"""Counts of yes-or-no predictions, and what is computed from them, with and without thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.errors import ArgumentError
from lockstep.estimator import metrics as m
from tests.estimator.metrics.references import counts, part
from tests.training.driver import Evaluation, evaluate, measure, spec

_random = np.random.default_rng(6)
CASES = ("true_positives", "false_positives", "true_negatives", "false_negatives")
THRESHOLDS = [0.0, 0.25, 0.5, 0.75, 1.0]


def _batch(size: int) -> dict[str, Any]:
    return {
        "y": _random.integers(0, 2, size).astype(np.float32),
        "p": (_random.integers(0, 9, size) / 8).astype(np.float32),
        "w": _random.uniform(size=size).astype(np.float32),
    }


def _all(batches: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: np.concatenate([b[key] for b in batches]) for key in "ypw"}


@pytest.mark.parametrize("replicas", [1, 3])
def test_without_thresholds(replicas: int) -> None:
    batches = [_batch(6), _batch(6), _batch(4)]

    def model(b: Any) -> Any:
        metrics = {name: getattr(m, name)(b["y"], b["p"] > 0.5, b["w"]) for name in (*CASES, "precision", "recall")}
        return spec(eval_metric_ops=metrics)

    found = evaluate(model, batches, replicas)
    whole = _all(batches)
    expected = counts(whole["y"], whole["p"] > 0.5, whole["w"])
    expected["precision"] = part(expected["true_positives"], expected["false_positives"])
    expected["recall"] = part(expected["true_positives"], expected["false_negatives"])
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("replicas", [1, 2])
def test_at_thresholds(replicas: int) -> None:
    batches = [_batch(6), _batch(5)]
    names = [f"{name}_at_thresholds" for name in (*CASES, "precision", "recall")]

    def model(b: Any) -> Any:
        return spec(eval_metric_ops={n: getattr(m, n)(b["y"], b["p"], THRESHOLDS, b["w"]) for n in names})

    found = evaluate(model, batches, replicas)
    whole = _all(batches)
    each = [counts(whole["y"], whole["p"] > threshold, whole["w"]) for threshold in THRESHOLDS]
    for name in CASES:
        np.testing.assert_allclose(found[f"{name}_at_thresholds"], [c[name] for c in each], rtol=1e-5, atol=1e-6)
    precisions = [part(c["true_positives"], c["false_positives"]) for c in each]
    recalls = [part(c["true_positives"], c["false_negatives"]) for c in each]
    np.testing.assert_allclose(found["precision_at_thresholds"], precisions, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["recall_at_thresholds"], recalls, rtol=1e-5, atol=1e-6)


def _both(b: Any) -> Any:
    return spec(eval_metric_ops={f.__name__: f(*b) for f in (m.precision, m.recall)})


_BOTH = Evaluation(_both)


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 4)), min_size=4, max_size=4))
def test_any_examples(examples: list[tuple[bool, bool, int]]) -> None:
    y, p, w = (np.array(column) for column in zip(*examples, strict=True))
    expected = counts(y, p, w)
    found = _BOTH([(y, p, w.astype(np.float32))])
    hit = expected["true_positives"]
    np.testing.assert_allclose(found["precision"], part(hit, expected["false_positives"]), rtol=1e-6)
    np.testing.assert_allclose(found["recall"], part(hit, expected["false_negatives"]), rtol=1e-6)


def test_of_nothing_both_are_zero() -> None:
    nothing = np.zeros(3, np.int32)
    assert measure(lambda b: m.precision(b, b), [nothing]) == 0
    assert measure(lambda b: m.recall(b, b), [nothing]) == 0


def test_a_prediction_that_is_no_probability_is_noticed() -> None:
    found = measure(lambda b: m.recall_at_thresholds(b > 0, b, [0.5]), [np.array([0.5, 1.5], np.float32)])
    assert np.isnan(found).all()


def test_weights_broadcast_as_numbers_do() -> None:
    found = measure(lambda b: m.true_positives(b, b, np.array([2.0])), [np.ones(3, np.float32)])
    assert found == 6


@pytest.mark.parametrize("weights", [np.ones((3, 2)), np.ones(2), np.ones((1, 1, 3))])
def test_weights_must_fit(weights: Any) -> None:
    with pytest.raises(ArgumentError, match="Weights are one number"):
        measure(lambda b: m.true_positives(b, b, weights), [np.ones(3, np.float32)])
    with pytest.raises(ArgumentError, match="Weights are one number"):
        measure(lambda b: m.true_positives_at_thresholds(b, b, [0.5], weights), [np.ones(3, np.float32)])
