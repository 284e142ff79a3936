"""Means, against numpy's over all examples at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lockstep.errors import ArgumentError, StartupOrderError
from lockstep.estimator import metrics as m
from tests.estimator.metrics.references import mean
from tests.training.driver import evaluate, measure, spec

_random = np.random.default_rng(5)


def _batches(*sizes: int, **columns: tuple[int, ...]) -> list[dict[str, Any]]:
    return [{k: _random.normal(size=(n, *v)).astype(np.float32) for k, v in columns.items()} for n in sizes]


def _all(batches: list[dict[str, Any]], key: str) -> Any:
    return np.concatenate([b[key] for b in batches]).astype(np.float64)


ERRORS: dict[str, tuple[Callable[..., Any], Callable[[Any, Any], Any], Callable[[float], float]]] = {
    "absolute": (m.mean_absolute_error, lambda y, p: np.abs(y - p), lambda v: v),
    "squared": (m.mean_squared_error, lambda y, p: (y - p) ** 2, lambda v: v),
    "root": (m.root_mean_squared_error, lambda y, p: (y - p) ** 2, np.sqrt),
    "accuracy": (lambda y, p, w: m.accuracy(y > 0, p > 0, w), lambda y, p: (y > 0) == (p > 0), lambda v: v),
}


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str, replicas: int) -> None:
    metric, error, finish = ERRORS[name]
    batches = _batches(6, 6, labels=(), predictions=(), weights=())
    found = measure(lambda b: metric(b["labels"], b["predictions"], abs(b["weights"])), batches, replicas)
    errors = error(_all(batches, "labels"), _all(batches, "predictions"))
    np.testing.assert_allclose(found, finish(mean(errors, np.abs(_all(batches, "weights")))), rtol=1e-5)
    assert found.dtype == np.float32


@pytest.mark.parametrize("replicas", [1, 2])
def test_mean_over_batches_of_other_sizes(replicas: int) -> None:
    batches = _batches(5, 3, 1, values=(2,))
    np.testing.assert_allclose(
        measure(lambda b: m.mean(b["values"]), batches, replicas), mean(_all(batches, "values")), rtol=1e-5
    )


@pytest.mark.parametrize("shape", [(), (1, 2), (4, 1), (4, 2), (4,), (4, 2, 1)])
def test_weights_may_have_any_shape_that_fits(shape: tuple[int, ...]) -> None:
    values, weights = _random.normal(size=(4, 2)), np.abs(_random.normal(size=shape))
    found = measure(lambda b: m.mean(b, weights.astype(np.float32)), [values.astype(np.float32)])
    seen = weights[:, None] if shape == (4,) else weights[..., 0] if len(shape) == 3 else weights
    np.testing.assert_allclose(found, mean(values, seen), rtol=1e-5)


def test_without_weight_a_mean_is_zero() -> None:
    assert measure(lambda b: m.mean(b, 0.0), [np.ones(3, np.float32)]) == 0


def test_labels_may_have_one_dimension_more() -> None:
    batch = {"y": np.array([[1], [0], [1]], np.int32), "p": np.array([1, 1, 1], np.int32)}
    np.testing.assert_allclose(measure(lambda b: m.accuracy(b["y"], b["p"]), [batch]), 2 / 3, rtol=1e-6)
    np.testing.assert_allclose(measure(lambda b: m.accuracy(b["p"], b["y"]), [batch]), 2 / 3, rtol=1e-6)


def test_predictions_are_compared_in_the_type_of_labels() -> None:
    batch = {"y": np.array([1, 0, 2], np.int32), "p": np.array([1.9, 0.1, 3.0], np.float32)}
    np.testing.assert_allclose(measure(lambda b: m.accuracy(b["y"], b["p"]), [batch]), 2 / 3, rtol=1e-6)


def test_relative_error() -> None:
    batch = {"y": np.array([1.0, 2.0, 3.0], np.float32), "n": np.array([2.0, 0.0, -1.0], np.float32)}
    found = measure(lambda b: m.mean_relative_error(b["y"], 0 * b["y"], b["n"]), [batch, batch])
    np.testing.assert_allclose(found, (1 / 2 + 0 - 3) / 3, rtol=1e-6)


def test_cosine_distance() -> None:
    batches = _batches(4, 4, a=(3,), b=(3,), w=(1,))
    found = measure(lambda x: m.mean_cosine_distance(x["a"], x["b"], 1, abs(x["w"])), batches)
    cosines = np.sum(_all(batches, "a") * _all(batches, "b"), 1, keepdims=True)
    np.testing.assert_allclose(found, 1 - mean(cosines, np.abs(_all(batches, "w"))), rtol=1e-5)


def test_percentage_below() -> None:
    assert measure(lambda b: m.percentage_below(b, 2), [np.array([1, 2, 3, 1]), np.array([0, 9, 9, 9])]) == 3 / 8


@pytest.mark.parametrize("replicas", [1, 2])
def test_mean_tensor(replicas: int) -> None:
    values = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)

    def metric(batch: Any) -> Any:
        return m.mean_tensor(batch.sum(0), np.array([1.0, 0.0], np.float32))

    found = measure(metric, [values, 3 * values], replicas)
    np.testing.assert_allclose(found, [8 / replicas, 0])


def test_metrics_of_one_name_stay_apart() -> None:
    def model(batch: Any) -> Any:
        metrics = {str(i): m.mean(batch * i) for i in range(3)}
        assert [op.metric.name for op in metrics.values()] == ["mean", "mean_1", "mean_2"]
        return spec(eval_metric_ops={**metrics, "named": m.mean(batch, name="mean_1")})

    found = evaluate(model, [np.ones(2, np.float32)])
    assert {name: float(found[name]) for name in ("0", "1", "2", "named")} == {"0": 0, "1": 1, "2": 2, "named": 1}


def test_collections_get_the_result() -> None:
    from lockstep.estimator._model_fn.scope import demand

    def model(batch: Any) -> Any:
        op = m.mean(batch, metrics_collections=["a", "b"], updates_collections="c")
        assert isinstance(op, tuple)
        value, update = op
        scope = demand("a test")
        assert [scope.collections[name][0] is value for name in "ab"] == [True, True]
        assert scope.collections["c"][0] is update
        return spec(eval_metric_ops={"it": op})

    assert evaluate(model, [np.ones(2, np.float32)])["it"] == 1


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda b: m.accuracy(b, b[:2]), "Labels and predictions have the same shape"),
        (lambda b: m.mean(b, b[:2]), "Weights are one number, or an array of the values' rank"),
        (lambda b: m.mean(b, b[:, None] * b), "Weights are one number"),
        (lambda b: m.mean(b, np.ones((3, 1, 1, 1))), "Weights are one number"),
        (lambda b: m.mean("text"), "values must be numbers"),
        (lambda b: m.accuracy(np.array([b"a", b"b", b"c"]), b), "labels must be numbers"),
        (lambda b: m.mean_absolute_error(b, None), "predictions must be numbers"),
        (lambda b: m.mean_relative_error(b, b, b[:2]), "same shape"),
    ],
)
def test_what_does_not_fit_is_refused(metric: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        measure(metric, [np.ones(3, np.float32)])


def test_metrics_belong_in_a_model_fn() -> None:
    with pytest.raises(
        StartupOrderError, match=r"lockstep\.estimator\.metrics\.mean can only be used inside of a model_fn"
    ):
        m.mean(np.ones(3))
