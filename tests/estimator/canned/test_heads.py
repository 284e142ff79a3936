"""Losses, predictions and metrics of heads against numpy."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lockstep.estimator.feature_column as fc
from lockstep.errors import ArgumentError, InputError, UnsupportedError
from lockstep.estimator._heads import (
    BinaryClassHead,
    LogisticRegressionHead,
    MultiClassHead,
    MultiHead,
    MultiLabelHead,
    PoissonRegressionHead,
    RegressionHead,
)
from tests.estimator.canned.tools import text

_RANDOM = np.random.default_rng(0)
_N = 8
_ONE = _RANDOM.normal(size=(_N, 1)).astype(np.float32) * 2
_THREE = _RANDOM.normal(size=(_N, 3)).astype(np.float32) * 2
_BINARY = _RANDOM.integers(0, 2, (_N, 1))
_CLASS = _RANDOM.integers(0, 3, (_N, 1))
_MULTI = _RANDOM.integers(0, 2, (_N, 3))
_WEIGHTS = _RANDOM.uniform(0.5, 2, (_N, 1)).astype(np.float32)
_FEATURES = {"wt": _WEIGHTS}


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _cross_entropy(labels: Any, logits: Any) -> Any:
    p = _sigmoid(logits.astype(np.float64))
    return -(labels * np.log(p) + (1 - labels) * np.log(1 - p))


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


_REAL = _RANDOM.normal(size=(_N, 3)).astype(np.float32)
_COUNTS = _RANDOM.integers(2, 9, (_N, 3)).astype(np.float32)
_CASES = [
    (lambda **k: RegressionHead(3, **k), _REAL, _THREE, (_REAL - _THREE) ** 2),
    (lambda **k: BinaryClassHead(**k), _BINARY, _ONE, _cross_entropy(_BINARY, _ONE)),
    (lambda **k: LogisticRegressionHead(**k), _BINARY, _ONE, _cross_entropy(_BINARY, _ONE)),
    (lambda **k: MultiClassHead(3, **k), _CLASS, _THREE, -np.log(np.take_along_axis(_softmax(_THREE), _CLASS, 1))),
    (lambda **k: MultiLabelHead(3, **k), _MULTI, _THREE, _cross_entropy(_MULTI, _THREE).mean(-1, keepdims=True)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "labels", "logits", "each"), _CASES)
def test_losses_are_reduced_as_asked_for(make: Any, labels: Any, logits: Any, each: Any) -> None:
    weighted = each * _WEIGHTS
    weights = np.broadcast_to(_WEIGHTS, each.shape)
    expected = {
        "sum": weighted.sum(),
        "sum_over_batch_size": weighted.mean(),
        "weighted_mean": weighted.sum() / weights.sum(),
        "weighted_sum_by_nonzero_weights": weighted.sum() / each.size,
    }
    for reduction, value in expected.items():
        head = make(weight_column="wt", loss_reduction=reduction)
        assert float(head.loss(labels, logits, _FEATURES)) == pytest.approx(value, rel=1e-5)
    assert float(make().loss(labels, logits)) == pytest.approx(each.mean(), rel=1e-5)
    extra = [jnp.float32(0.5), jnp.float32(0.25)]
    assert float(make().loss(labels, logits, regularization_losses=extra)) == pytest.approx(
        each.mean() + 0.75, rel=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "labels", "units"),
    [(BinaryClassHead(), [[1.0]], 1), (LogisticRegressionHead(), [[0.25]], 1), (MultiLabelHead(3), [[1, 0, 0]], 3)],
)
def test_gradients_are_right_where_training_starts(head: Any, labels: Any, units: int) -> None:
    gradient = jax.grad(lambda logits: head.loss(jnp.asarray(labels), logits))(jnp.zeros((1, units)))
    np.testing.assert_allclose(gradient, (0.5 - np.asarray(labels)) / units, atol=1e-6)


def test_poisson_loss() -> None:
    partial = np.exp(_THREE) - _THREE * _COUNTS
    assert float(PoissonRegressionHead(3, compute_full_loss=False).loss(_COUNTS, _THREE)) == pytest.approx(
        partial.mean(), rel=1e-5
    )
    # Stirling's formula is within 5 % of log(n!) from 2 on.
    full = float(PoissonRegressionHead(3).loss(_COUNTS, _THREE))
    assert full - partial.mean() == pytest.approx(np.vectorize(math.lgamma)(_COUNTS + 1).mean(), rel=0.05)
    assert float(PoissonRegressionHead().loss([[1.0]], [[0.0]])) == pytest.approx(1.0)


def test_weights_for_each_number_of_a_regression() -> None:
    weights = _RANDOM.uniform(0, 1, (_N, 3)).astype(np.float32)
    head = RegressionHead(3, weight_column="wt")
    assert float(head.loss(_REAL, _THREE, {"wt": weights})) == pytest.approx(
        ((_REAL - _THREE) ** 2 * weights).mean(), rel=1e-5
    )
    with pytest.raises(ArgumentError, match=r"Weights must have a number for each example, \(8, 1\)\. Received"):
        MultiClassHead(3, weight_column="wt").loss(_CLASS, _THREE, {"wt": weights})


def test_a_weight_column_may_change_weights() -> None:
    column = fc.numeric_column("wt", normalizer_fn=lambda x: x * 2)
    doubled = float(BinaryClassHead(column).loss(_BINARY, _ONE, _FEATURES))
    assert doubled == pytest.approx(2 * float(BinaryClassHead("wt").loss(_BINARY, _ONE, {"wt": _WEIGHTS[:, 0]})))


@pytest.mark.slow
def test_words_are_labels_by_a_vocabulary() -> None:
    words = text("no", "yes")[_BINARY]
    assert float(BinaryClassHead(label_vocabulary=["no", "yes"]).loss(words, _ONE)) == float(
        BinaryClassHead().loss(_BINARY[:, 0], _ONE)
    )
    classes = text("a", "b", "c")[_CLASS[:, 0]]
    assert float(MultiClassHead(3, label_vocabulary=[b"a", "b", "c"]).loss(classes, _THREE)) == float(
        MultiClassHead(3).loss(_CLASS, _THREE)
    )
    several = np.array([["a", ""], ["b", "c"], ["", ""]], object)
    head = MultiLabelHead(3, label_vocabulary=["a", "b", "c"])
    expected = MultiLabelHead(3).loss([[1, 0, 0], [0, 1, 1], [0, 0, 0]], _THREE[:3])
    assert float(head.loss(several, _THREE[:3])) == float(expected)


def test_unknown_words_and_labels_of_another_kind() -> None:
    head = BinaryClassHead(label_vocabulary=["no", "yes"])
    with pytest.raises(InputError, match=r"Received: b'maybe'; it holds b'no', b'yes'"):
        head.loss(text("no", "maybe"), _ONE[:2])
    with pytest.raises(ArgumentError, match="must be text if there is a label_vocabulary"):
        head.loss(_BINARY, _ONE)
    with pytest.raises(ArgumentError, match="must be numbers if there is no label_vocabulary"):
        BinaryClassHead().loss(text("no"), _ONE[:1])
    with pytest.raises(ArgumentError, match="are integers"):
        MultiClassHead(3).loss(_CLASS.astype(np.float32), _THREE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "labels", "logits"),
    [
        (BinaryClassHead(), [[1], [2]], _ONE[:2]),
        (LogisticRegressionHead(), [[0.5], [-0.1]], _ONE[:2]),
        (MultiClassHead(3), [[0], [3]], _THREE[:2]),
        (MultiClassHead(3), [[0], [-1]], _THREE[:2]),
        (MultiLabelHead(3), [[0, 1, 2]], _THREE[:1]),
    ],
)
def test_labels_out_of_range_are_refused_and_make_a_compiled_loss_nan(head: Any, labels: Any, logits: Any) -> None:
    with pytest.raises(ArgumentError, match="labels out of range"):
        head.loss(np.asarray(labels), logits)
    assert np.isnan(float(jax.jit(head.loss)(np.asarray(labels), logits)))


def test_sparse_labels_are_refused() -> None:
    sparse = SimpleNamespace(dense_shape=np.array([1, 3]), indices=np.array([[0, 1]]), values=np.array([2]))
    with pytest.raises(UnsupportedError, match="Labels are dense"):
        MultiLabelHead(3).loss(sparse, _THREE[:1])


def test_shapes_are_checked() -> None:
    with pytest.raises(ArgumentError, match=r"logits must have the shape \(batch, 3\)"):
        MultiClassHead(3).loss(_CLASS, _ONE)
    with pytest.raises(ArgumentError, match=r"labels must have the shape \(8, 1\). Received: \(8, 3\)"):
        BinaryClassHead().loss(_MULTI, _ONE)
    with pytest.raises(ArgumentError, match="must provide labels"):
        BinaryClassHead().loss(None, _ONE)
    with pytest.raises(ArgumentError, match="Use MultiHead"):
        BinaryClassHead().loss({"a": _BINARY}, _ONE)
    with pytest.raises(ArgumentError, match="no 'wt'"):
        BinaryClassHead("wt").loss(_BINARY, _ONE, {"x": _ONE})


@pytest.mark.slow
def test_more_dimensions_before_the_last() -> None:
    labels, logits = _RANDOM.integers(0, 2, (_N, 4)), _RANDOM.normal(size=(_N, 4, 1)).astype(np.float32)
    expected = _cross_entropy(labels[..., None], logits).mean()
    assert float(BinaryClassHead().loss(labels, logits)) == pytest.approx(expected, rel=1e-5)


def _words(value: Any) -> list[Any]:
    return value.on_host().tolist()


def test_predictions_of_two_classes() -> None:
    found = BinaryClassHead(label_vocabulary=["no", "yes"]).predictions(_ONE)
    assert set(found) == {
        "logits",
        "logistic",
        "probabilities",
        "class_ids",
        "classes",
        "all_class_ids",
        "all_classes",
    }
    likely = _sigmoid(_ONE)
    np.testing.assert_allclose(found["logistic"], likely, rtol=1e-5)
    np.testing.assert_allclose(found["probabilities"], np.hstack([1 - likely, likely]), rtol=1e-4)
    assert np.asarray(found["class_ids"]).tolist() == (_ONE > 0).astype(int).tolist()
    assert _words(found["classes"]) == [[b"yes" if logit > 0 else b"no"] for logit in _ONE[:, 0]]
    assert _words(found["all_classes"]) == [[b"no", b"yes"]] * _N
    assert np.asarray(found["all_class_ids"]).tolist() == [[0, 1]] * _N


def test_predictions_of_several_classes() -> None:
    found = MultiClassHead(3).predictions(_THREE)
    assert set(found) == {"logits", "probabilities", "class_ids", "classes", "all_class_ids", "all_classes"}
    np.testing.assert_allclose(found["probabilities"], _softmax(_THREE), rtol=1e-5)
    assert np.asarray(found["class_ids"])[:, 0].tolist() == _THREE.argmax(1).tolist()
    assert _words(found["classes"]) == [[str(number).encode()] for number in _THREE.argmax(1)]
    assert list(MultiClassHead(3).predictions(_THREE, ["class_ids"])) == ["class_ids"]
    with pytest.raises(ArgumentError, match="predictions of this head are logits"):
        MultiClassHead(3).predictions(_THREE, ["logistic"])


def test_predictions_of_numbers_and_labels() -> None:
    assert list(RegressionHead(3).predictions(_THREE)) == ["predictions"]
    found = PoissonRegressionHead(3).predictions(_THREE)
    np.testing.assert_allclose(found["predictions"], np.exp(_THREE), rtol=1e-5)
    assert set(found) == {"predictions", "logits"}
    several = MultiLabelHead(3).predictions(_THREE)
    np.testing.assert_allclose(several["probabilities"], _sigmoid(_THREE), rtol=1e-5)
    assert set(several) == {"logits", "probabilities", "classes"}


def _evaluated(head: Any, *given: tuple[Any, Any, Any]) -> dict[str, float]:
    metrics = head.metrics()
    for labels, logits, features in given:
        metrics = head.update_metrics(metrics, features, logits, labels)
    return {name: float(metric.result()) for name, metric in metrics.items()}


def _halves(labels: Any, logits: Any) -> list[tuple[Any, Any, Any]]:
    """Two batches of different weights: metrics must weigh examples, not batches."""
    return [(labels[part], logits[part], {"wt": _WEIGHTS[part]}) for part in (slice(4), slice(4, None))]


@pytest.mark.slow
def test_metrics_of_two_classes() -> None:
    found = _evaluated(BinaryClassHead("wt", thresholds=[0.9]), *_halves(_BINARY, _ONE))
    w, y, p = _WEIGHTS, _BINARY, _sigmoid(_ONE)
    mean = (w * y).sum() / w.sum()

    def rates(chosen: Any) -> tuple[float, float, float]:
        hits = (w * y * chosen).sum()
        return (w * (chosen == y)).sum() / w.sum(), hits / max((w * chosen).sum(), 1e-9), hits / (w * y).sum()

    half, high = rates(p > 0.5), rates(p > 0.9)
    expected = {
        "average_loss": (w * _cross_entropy(y, _ONE)).sum() / w.sum(),
        "accuracy": half[0],
        "precision": half[1],
        "recall": half[2],
        "accuracy_baseline": max(mean, 1 - mean),
        "label/mean": mean,
        "prediction/mean": (w * p).sum() / w.sum(),
        "accuracy/positive_threshold_0.9": high[0],
        "precision/positive_threshold_0.9": high[1],
        "recall/positive_threshold_0.9": high[2],
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    pairs = [(w[i, 0] * w[j, 0], p[i, 0] > p[j, 0]) for i in range(_N) for j in range(_N) if y[i] > y[j]]
    assert found["auc"] == pytest.approx(sum(a * b for a, b in pairs) / sum(a for a, _ in pairs), abs=1e-3)
    assert set(found) == {*expected, "auc", "auc_precision_recall"}


@pytest.mark.slow
def test_metrics_of_several_classes_and_of_numbers() -> None:
    found = _evaluated(MultiClassHead(3, weight_column="wt", name="m"), *_halves(_CLASS, _THREE))
    right = _THREE.argmax(1) == _CLASS[:, 0]
    assert found["accuracy/m"] == pytest.approx((_WEIGHTS[:, 0] * right).sum() / _WEIGHTS.sum(), rel=1e-5)
    assert set(found) == {"accuracy/m", "average_loss/m"}
    numbers = _evaluated(RegressionHead(3, weight_column="wt"), *_halves(_REAL, _THREE))
    weights = np.broadcast_to(_WEIGHTS, (_N, 3))
    assert numbers == pytest.approx(
        {
            "average_loss": np.average((_REAL - _THREE) ** 2, weights=weights),
            "label/mean": np.average(_REAL, weights=weights),
            "prediction/mean": np.average(_THREE, weights=weights),
        },
        rel=1e-5,
    )


@pytest.mark.slow
def test_metrics_of_single_classes() -> None:
    head = MultiLabelHead(3, label_vocabulary=["a", "b", "c"], classes_for_class_based_metrics=["c", "a"])
    found = _evaluated(head, *_halves(_MULTI, _THREE))
    assert found["probability_mean/c"] == pytest.approx(_sigmoid(_THREE)[:, 2].mean(), rel=1e-5)
    assert {"auc/a", "auc/c", "auc_precision_recall/a", "probability_mean/a"} <= set(found)
    by_number = MultiLabelHead(3, classes_for_class_based_metrics=[1]).metrics()
    assert {"auc/class1", "auc_precision_recall/class1", "probability_mean/class1"} <= set(by_number)


def test_regularization_has_a_metric() -> None:
    head = MultiClassHead(3)
    extra = [jnp.float32(0.5), jnp.float32(0.25)]
    metrics = head.update_metrics(head.metrics(extra), {}, _THREE, _CLASS, regularization_losses=extra)
    assert float(metrics["regularization_loss"].result()) == 0.75


def test_losses_of_ones_own() -> None:
    def mine(labels: Any, logits: Any, features: Any, loss_reduction: str) -> Any:
        assert loss_reduction == "sum"
        return abs(labels - logits) * features["wt"]

    head = BinaryClassHead(loss_fn=mine, loss_reduction="sum")
    assert float(head.loss(_BINARY, _ONE, _FEATURES)) == pytest.approx((abs(_BINARY - _ONE) * _WEIGHTS).sum(), rel=1e-5)
    with pytest.raises(ArgumentError, match=r"a loss for each example, of shape \(8, 1\)"):
        MultiClassHead(3, loss_fn=lambda labels, logits: logits).loss(_CLASS, _THREE)


@pytest.mark.slow
def test_heads_are_put_together() -> None:
    first, second = MultiClassHead(3, name="one"), BinaryClassHead(name="two")
    head = MultiHead([first, second], head_weights=[1.0, 0.5])
    labels = {"one": _CLASS, "two": _BINARY}
    together = np.hstack([_THREE, _ONE])
    expected = float(first.loss(_CLASS, _THREE)) + 0.5 * float(second.loss(_BINARY, _ONE))
    assert float(head.loss(labels, together)) == pytest.approx(expected)
    assert float(head.loss(labels, {"one": _THREE, "two": _ONE})) == pytest.approx(expected)
    assert head.logits_dimension == 4 and head.name == "one_two"
    assert ("two", "logistic") in head.predictions(together)
    found = _evaluated(head, (labels, together, {}))
    assert found["loss/one"] == pytest.approx(float(first.loss(_CLASS, _THREE)))
    assert {"accuracy/one", "auc/two", "average_loss/one", "loss/two"} <= set(found)


def test_what_a_multi_head_is_given_is_checked() -> None:
    head = MultiHead([MultiClassHead(3, name="one"), BinaryClassHead(name="two")])
    with pytest.raises(ArgumentError, match="missing: two"):
        head.loss({"one": _CLASS}, np.hstack([_THREE, _ONE]))
    with pytest.raises(ArgumentError, match=r"4 columns, 3 \+ 1"):
        head.predictions(_THREE)
    with pytest.raises(ArgumentError, match="one loss_reduction"):
        _ = MultiHead([RegressionHead(name="a"), RegressionHead(name="b", loss_reduction="sum")]).loss_reduction


@pytest.mark.parametrize(
    "make",
    [
        lambda: MultiClassHead(2),
        lambda: MultiClassHead(3, label_vocabulary=["a", "b"]),
        lambda: MultiClassHead(3, label_vocabulary="abc"),
        lambda: MultiClassHead(3, label_vocabulary=["a", "a", "b"]),
        lambda: MultiLabelHead(1),
        lambda: MultiLabelHead(3, classes_for_class_based_metrics=[3]),
        lambda: MultiLabelHead(3, classes_for_class_based_metrics=["a"]),
        lambda: BinaryClassHead(thresholds=[0.5, 1.0]),
        lambda: BinaryClassHead(weight_column=3),
        lambda: BinaryClassHead(loss_reduction="none"),
        lambda: BinaryClassHead(loss_fn=lambda labels: labels),
        lambda: BinaryClassHead(loss_fn=lambda labels, logits, other: labels),
        lambda: RegressionHead(0),
        lambda: MultiHead([]),
        lambda: MultiHead([RegressionHead()]),
        lambda: MultiHead([RegressionHead(name="a"), RegressionHead(name="a")]),
        lambda: MultiHead([RegressionHead(name="a")], head_weights=[1.0, 2.0]),
    ],
)
def test_wrong_arguments_are_refused_with_what_was_received(make: Any) -> None:
    with pytest.raises(ArgumentError, match="Received"):
        make()
