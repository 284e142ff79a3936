"""Areas under curves, and points on them."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from lockstep.errors import ArgumentError
from lockstep.estimator import metrics as m
from lockstep.estimator.metrics import _curves
from tests.estimator.metrics.references import counts, exact_auc
from tests.training.driver import evaluate, measure, spec

_random = np.random.default_rng(7)


def _batch(size: int, steps: int = 19) -> dict[str, Any]:
    # Between the thresholds of the default curve, so that each example has a place of its own.
    return {
        "y": _random.integers(0, 2, size).astype(np.float32),
        "p": ((_random.integers(0, steps, size) + 0.5) / steps).astype(np.float32),
    }


@pytest.mark.parametrize("replicas", [1, 4])
def test_roc_is_how_often_the_true_one_scores_higher(replicas: int) -> None:
    batches = [_batch(8), _batch(8), _batch(5)]
    found = measure(lambda b: m.auc(b["y"], b["p"]), batches, replicas)
    labels, scores = (np.concatenate([b[k] for b in batches]) for k in "yp")
    np.testing.assert_allclose(found, exact_auc(labels, scores), atol=1e-5)


def test_bounds_lie_around_the_area() -> None:
    def model(b: Any) -> Any:
        methods = ("minoring", "trapezoidal", "careful_interpolation", "majoring")
        return spec(eval_metric_ops={k: m.auc(b["y"], b["p"], num_thresholds=9, summation_method=k) for k in methods})

    found = evaluate(model, [_batch(30), _batch(30)])
    assert found["minoring"] < found["trapezoidal"] < found["majoring"]
    assert found["trapezoidal"] == found["careful_interpolation"]


# From TensorFlow 2.15, for the batches below: (curve, summation_method, num_thresholds or thresholds) -> area.
TENSORFLOW = {
    ("ROC", "trapezoidal", 5): 0.604167,
    ("ROC", "minoring", 5): 0.500000,
    ("ROC", "majoring", 5): 0.708333,
    ("PR", "trapezoidal", 5): 0.623809,
    ("PR", "careful_interpolation", 5): 0.540452,
    ("PR", "minoring", 5): 0.533333,
    ("PR", "majoring", 5): 0.714286,
    ("PR", "careful_interpolation", (0.1, 0.35, 0.9)): 0.616830,
}
BATCHES = [
    {"y": np.array([0, 0, 1, 1, 0], np.float32), "p": np.array([0.1, 0.6, 0.35, 0.8, 0.0], np.float32)},
    {"y": np.array([1, 0, 1, 0, 0], np.float32), "p": np.array([0.2, 0.7, 1.0, 0.3, 0.9], np.float32)},
]


@pytest.mark.parametrize("case", TENSORFLOW, ids=str)
def test_areas_are_tensorflows(case: tuple[str, str, Any]) -> None:
    curve, method, points = case
    own = {"num_thresholds": points} if isinstance(points, int) else {"thresholds": points}
    found = measure(lambda b: m.auc(b["y"], b["p"], curve=curve, summation_method=method, **own), BATCHES)
    np.testing.assert_allclose(found, TENSORFLOW[case], atol=2e-6)


def test_weights_of_zero_take_examples_out() -> None:
    batch = _batch(20)
    weights = (np.arange(20) % 3 > 0).astype(np.float32)
    whole = measure(lambda b: m.auc(b["y"], b["p"], weights), [batch])
    some = measure(lambda b: m.auc(b["y"], b["p"]), [{k: v[weights > 0] for k, v in batch.items()}])
    np.testing.assert_allclose(whole, some, rtol=1e-6)


@pytest.mark.parametrize("wanted", [0.0, 0.4, 0.7, 1.0])
def test_points_on_the_curve(wanted: float) -> None:
    batches = [_batch(20), _batch(20)]
    labels, scores = (np.concatenate([b[k] for b in batches]) for k in "yp")

    def model(b: Any) -> Any:
        sensitivity = m.sensitivity_at_specificity(b["y"], b["p"], wanted, num_thresholds=20)
        specificity = m.specificity_at_sensitivity(b["y"], b["p"], wanted, num_thresholds=20)
        return spec(eval_metric_ops={"sensitivity": sensitivity, "specificity": specificity})

    found = evaluate(model, batches)
    each = [counts(labels, scores > t) for t in np.linspace(0, 1, 20)]
    each[0] = counts(labels, scores >= 0)
    true = np.array([c["true_positives"] / (c["true_positives"] + c["false_negatives"]) for c in each])
    false = np.array([c["true_negatives"] / (c["true_negatives"] + c["false_positives"]) for c in each])
    first = np.argmin(np.abs(false - wanted))
    last = len(true) - 1 - np.argmin(np.abs(true - wanted)[::-1])
    np.testing.assert_allclose(found["sensitivity"], true[first], atol=1e-5)
    np.testing.assert_allclose(found["specificity"], false[last], atol=1e-5)


def test_trapezoids_under_precision_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    _curves._warn_about_trapezoids.cache_clear()
    with caplog.at_level(logging.WARNING, "lockstep"):
        measure(lambda b: m.auc(b["y"], b["p"], curve="PR"), BATCHES)
    assert [r.message for r in caplog.records] == [
        'Trapezoidal rule is known to produce incorrect PR-AUCs; please switch to "careful_interpolation" instead.'
    ]


def test_a_prediction_that_is_no_probability_is_noticed() -> None:
    broken = {"y": np.array([0, 1], np.float32), "p": np.array([0.5, -0.5], np.float32)}

    def model(b: Any) -> Any:
        metrics = [m.auc, m.sensitivity_at_specificity, m.specificity_at_sensitivity]
        return spec(
            eval_metric_ops={f.__name__: f(b["y"], b["p"], *([0.5] if f is not m.auc else [])) for f in metrics}
        )

    found = evaluate(model, [broken, {**broken, "p": abs(broken["p"])}])
    assert np.isnan(found["auc"])
    assert np.isnan(found["sensitivity_at_specificity"])
    assert np.isnan(found["specificity_at_sensitivity"])


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"curve": "PRC"}, "curve is 'ROC' or 'PR'"),
        ({"summation_method": "interpolation"}, "summation_method is one of trapezoidal"),
        ({"num_thresholds": 1}, "num_thresholds must be at least 2"),
    ],
)
def test_options_are_checked(own: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        measure(lambda b: m.auc(b["y"], b["p"], **own), BATCHES)
    with pytest.raises(ArgumentError, match="specificity must be from 0 to 1"):
        measure(lambda b: m.sensitivity_at_specificity(b["y"], b["p"], 1.5), BATCHES)
