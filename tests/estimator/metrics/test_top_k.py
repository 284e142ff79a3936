"""Precision and recall of the classes with the k highest scores, against sets of Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lockstep.errors import ArgumentError
from lockstep.estimator import metrics as m
from tests.estimator.metrics.references import average_precision, sets_at_k
from tests.training.driver import Evaluation, evaluate, measure, spec

_random = np.random.default_rng(9)


def _batch(size: int) -> dict[str, Any]:
    # Labels from -1 to 7 for classes 0 to 5, with repetitions; scores with ties.
    return {
        "y": _random.integers(-1, 8, (size, 3)).astype(np.int32),
        "s": np.round(_random.normal(size=(size, 6)), 0).astype(np.float32),
        "w": _random.uniform(size=size).astype(np.float32),
    }


def _expected(batches: list[dict[str, Any]], k: int, class_id: int | None, weighted: bool) -> tuple[float, float]:
    """Precision and recall."""
    sets = [s for b in batches for s in sets_at_k(b["y"], b["s"], k, class_id)]
    weights = np.concatenate([b["w"] for b in batches]) if weighted else np.ones(len(sets))
    hit, missed, wrong = (weights @ column for column in np.array(sets, np.float64).T)
    return hit / (hit + wrong), hit / (hit + missed)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("class_id", [None, 2])
@pytest.mark.parametrize("k", [1, 3])
def test_precision_and_recall(k: int, class_id: int | None, replicas: int) -> None:
    batches = [_batch(12), _batch(12)]
    weighted = k == 3

    def model(b: Any) -> Any:
        own = {"class_id": class_id, "weights": b["w"] if weighted else None}
        return spec(
            eval_metric_ops={f.__name__: f(b["y"], b["s"], k, **own) for f in (m.precision_at_k, m.recall_at_k)}
        )

    found = evaluate(model, batches, replicas)
    precision, recall = _expected(batches, k, class_id, weighted)
    np.testing.assert_allclose(found["precision_at_k"], precision, rtol=1e-5)
    np.testing.assert_allclose(found["recall_at_k"], recall, rtol=1e-5)


_RECALL = Evaluation(lambda b: spec(eval_metric_ops={"it": m.recall_at_k(b[0], b[1], 2)}))


@given(
    hnp.arrays(np.int32, (3, 2), elements=st.integers(-1, 4)),
    hnp.arrays(np.float32, (3, 4), elements=st.integers(-2, 2)),
)
def test_any_labels_and_scores(labels: Any, scores: Any) -> None:
    found = _RECALL([(labels, scores), (labels, scores)])
    hit, missed, _ = np.array(sets_at_k(labels, scores, 2), np.float64).sum(0)
    np.testing.assert_allclose(found["it"], hit / (hit + missed), rtol=1e-6)


def test_one_label_each_needs_no_dimension() -> None:
    batch = {"y": np.array([0, 1, 2], np.int32), "s": np.eye(3, dtype=np.float32)[[0, 1, 1]]}
    np.testing.assert_allclose(measure(lambda b: m.recall_at_k(b["y"], b["s"], 1), [batch]), 2 / 3, rtol=1e-6)


def test_predicted_classes_may_be_given() -> None:
    batch = {"y": np.array([[0, 1], [2, 2]], np.int32), "p": np.array([[1, 5, 1], [4, 3, 2]], np.int32)}

    def model(b: Any) -> Any:
        return spec(eval_metric_ops={f.__name__: f(b["y"], b["p"]) for f in (m.precision_at_top_k, m.recall_at_top_k)})

    found = evaluate(model, [batch])
    np.testing.assert_allclose(found["precision_at_top_k"], 2 / 5, rtol=1e-6)
    np.testing.assert_allclose(found["recall_at_top_k"], 2 / 3, rtol=1e-6)


def test_examples_may_have_several_dimensions() -> None:
    labels, scores = (
        _random.integers(0, 6, (2, 4, 2)).astype(np.int32),
        _random.normal(size=(2, 4, 6)).astype(np.float32),
    )
    weights = np.array([[1.0, 0.0, 2.0, 0.5]], np.float32)
    found = measure(lambda b: m.precision_at_k(b[0], b[1], 2, weights=weights), [(labels, scores)])
    sets = np.array(sets_at_k(labels.reshape(8, 2), scores.reshape(8, 6), 2), np.float64)
    hit, _, wrong = np.tile(weights[0], 2) @ sets
    np.testing.assert_allclose(found, hit / (hit + wrong), rtol=1e-6)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_average_precision(k: int, replicas: int) -> None:
    batches = [_batch(8), _batch(8)]
    for batch in batches:
        batch["y"][:, 0] = 1  # Each example has a label.
    found = measure(lambda b: m.average_precision_at_k(b["y"], b["s"], k, b["w"]), batches, replicas)
    each = [average_precision(row, line, k) for b in batches for row, line in zip(b["y"], b["s"], strict=True)]
    weights = np.concatenate([b["w"] for b in batches])
    np.testing.assert_allclose(found, np.sum(each * weights) / np.sum(weights), rtol=1e-5)


def test_of_nothing_there_is_no_part() -> None:
    batch = {"y": np.array([[-1]], np.int32), "s": np.ones((1, 3), np.float32)}
    assert np.isnan(measure(lambda b: m.recall_at_k(b["y"], b["s"], 1, class_id=1), [batch]))
    assert np.isnan(measure(lambda b: m.average_precision_at_k(b["y"], b["s"], 1), [batch]))
    assert measure(lambda b: m.average_precision_at_k(b["y"] + 1, b["s"], 1, 0.0), [batch]) == 0


def test_names_say_what_is_counted() -> None:
    def model(b: Any) -> Any:
        ops = [m.precision_at_k(b[0], b[1], 2, 1), m.recall_at_top_k(b[0], b[0]), m.average_precision_at_k(*b, 2)]
        assert [op.metric.name for op in ops] == ["precision_at_2_class1", "recall_at_k", "average_precision_at_2"]
        return spec(eval_metric_ops={})

    evaluate(model, [(np.zeros((2, 1), np.int32), np.ones((2, 3), np.float32))])


def test_old_names_are_kept() -> None:
    assert m.sparse_precision_at_k is m.precision_at_k
    assert m.sparse_average_precision_at_k is m.average_precision_at_k


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda y, s: m.recall_at_k(y, s, 0), "k is at least 1"),
        (lambda y, s: m.recall_at_k(y, s, 4), "at most the number of classes. Received: k=4 for predictions"),
        (lambda y, s: m.recall_at_k(y[:1], s, 1), "Labels and predictions have the same shape but for the last"),
        (lambda y, s: m.recall_at_k(y * 1.0, s, 1), "Labels are classes, integers"),
        (lambda y, s: m.recall_at_k(y, s, 1, weights=np.ones(3)), "Weights are one number, or one for each example"),
    ],
)
def test_what_does_not_fit_is_refused(metric: Callable[[Any, Any], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        measure(lambda b: metric(*b), [(np.zeros((2, 1), np.int32), np.ones((2, 3), np.float32))])
