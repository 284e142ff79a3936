"""Losses, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from lockstep.errors import ArgumentError, StartupOrderError, UnsupportedError
from lockstep.estimator import losses as ls
from lockstep.estimator._model_fn.scope import demand
from lockstep.estimator.losses import Reduction as R
from tests.training.driver import evaluate, spec

_random = np.random.default_rng(4)
Y = _random.integers(0, 2, (5, 3)).astype(np.float32)
P = _random.uniform(0.05, 0.95, (5, 3)).astype(np.float32)
Z = 2 * _random.normal(size=(5, 3)).astype(np.float32)
CLASSES = np.array([0, 1, 2, 1, 0], np.int32)
ONE_HOT = np.eye(3, dtype=np.float32)[CLASSES]


def _log_softmax(z: Any) -> Any:
    z = z.astype(np.float64)
    return z - np.log(np.sum(np.exp(z), -1, keepdims=True))


def _sigmoid_entropy(y: Any, z: Any) -> Any:
    p = 1 / (1 + np.exp(-z.astype(np.float64)))
    return -y * np.log(p) - (1 - y) * np.log(1 - p)


# (loss of (weights, reduction), the losses of elements)
CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "absolute": (lambda **own: ls.absolute_difference(Y, Z, **own), np.abs(Y - Z)),
    "squared": (lambda **own: ls.mean_squared_error(Y, Z, **own), (Y - Z) ** 2),
    "huber": (
        lambda **own: ls.huber_loss(Y, Z, delta=0.7, **own),
        np.where(np.abs(Y - Z) < 0.7, 0.5 * (Y - Z) ** 2, 0.7 * (np.abs(Y - Z) - 0.35)),
    ),
    "log": (lambda **own: ls.log_loss(Y, P, **own), -Y * np.log(P + 1e-7) - (1 - Y) * np.log(1 - P + 1e-7)),
    "cosine": (lambda **own: ls.cosine_distance(Y, Z, axis=1, **own), 1 - np.sum(Y * Z, 1, keepdims=True)),
    "cosine by dim": (lambda **own: ls.cosine_distance(Y, Z, dim=1, **own), 1 - np.sum(Y * Z, 1, keepdims=True)),
    "hinge": (lambda **own: ls.hinge_loss(Y, Z, **own), np.maximum(0, 1 - (2 * Y - 1) * Z)),
    "sigmoid": (lambda **own: ls.sigmoid_cross_entropy(Y, Z, **own), _sigmoid_entropy(Y, Z)),
    "smooth sigmoid": (
        lambda **own: ls.sigmoid_cross_entropy(Y, Z, label_smoothing=0.2, **own),
        _sigmoid_entropy(0.8 * Y + 0.1, Z),
    ),
    "softmax": (lambda **own: ls.softmax_cross_entropy(ONE_HOT, Z, **own), -np.sum(ONE_HOT * _log_softmax(Z), -1)),
    "smooth softmax": (
        lambda **own: ls.softmax_cross_entropy(ONE_HOT, Z, label_smoothing=0.3, **own),
        -np.sum((0.7 * ONE_HOT + 0.1) * _log_softmax(Z), -1),
    ),
    "sparse softmax": (
        lambda **own: ls.sparse_softmax_cross_entropy(CLASSES, Z, **own),
        -np.sum(ONE_HOT * _log_softmax(Z), -1),
    ),
}


def _reduced(losses: Any, weights: Any, reduction: str) -> Any:
    weights = np.broadcast_to(weights, losses.shape).astype(np.float64)
    weighted = losses * weights
    divisors = {
        R.SUM: 1,
        R.MEAN: np.sum(weights),
        R.SUM_OVER_BATCH_SIZE: losses.size,
        R.SUM_BY_NONZERO_WEIGHTS: np.sum(weights != 0),
    }
    if reduction == R.NONE:
        return weighted
    return np.sum(weighted) / divisors[reduction] if divisors[reduction] else 0


@pytest.mark.parametrize("name", CASES)
def test_losses_and_reductions(name: str) -> None:
    loss, elements = CASES[name]
    np.testing.assert_allclose(loss(), np.mean(elements), rtol=1e-4)
    some = np.array([0.0, 1.0, 2.0, 0.5, 0.0], np.float32).reshape((5,) + (1,) * (elements.ndim - 1))
    full = np.maximum(0, _random.normal(size=elements.shape)).astype(np.float32)
    for reduction in dict.fromkeys(R.all()):
        for weights in (2.5, 0.0, some, full):
            found = loss(weights=weights, reduction=reduction)
            assert found.dtype == jnp.float32
            np.testing.assert_allclose(found, _reduced(elements, weights, reduction), rtol=1e-4, atol=1e-6)


def test_pairwise_errors_are_those_of_all_pairs() -> None:
    errors = (Z - Y).astype(np.float64)
    pairs = [np.mean([(e[i] - e[j]) ** 2 for i in range(3) for j in range(3) if i != j]) for e in errors]
    np.testing.assert_allclose(ls.mean_pairwise_squared_error(Y, Z), np.sum(pairs), rtol=1e-5)
    weights = np.array([[0.0], [1.0], [2.0], [0.5], [0.0]], np.float32)
    np.testing.assert_allclose(ls.mean_pairwise_squared_error(Y, Z, weights), pairs @ weights[:, 0], rtol=1e-5)
    assert ls.mean_pairwise_squared_error(Y, Z, 0.0) == 0


@pytest.mark.parametrize("name", ["sigmoid", "softmax", "sparse softmax", "hinge"])
def test_gradients_at_zero(name: str) -> None:
    """Where a linear model starts."""
    losses: dict[str, Callable[[Any], Any]] = {
        "sigmoid": lambda z: ls.sigmoid_cross_entropy(Y, z, reduction=R.SUM),
        "softmax": lambda z: ls.softmax_cross_entropy(ONE_HOT, z, reduction=R.SUM),
        "sparse softmax": lambda z: ls.sparse_softmax_cross_entropy(CLASSES, z, reduction=R.SUM),
        "hinge": lambda z: ls.hinge_loss(Y, z, reduction=R.SUM),
    }
    expected = {"sigmoid": 0.5 - Y, "hinge": 1 - 2 * Y}.get(name, 1 / 3 - ONE_HOT)
    np.testing.assert_allclose(jax.grad(losses[name])(jnp.zeros((5, 3))), expected, atol=1e-6)


def test_labels_of_a_softmax_get_no_gradient() -> None:
    gradient = jax.grad(lambda y: ls.softmax_cross_entropy(y, Z))(ONE_HOT)
    np.testing.assert_array_equal(gradient, np.zeros((5, 3)))


@pytest.mark.slow
def test_large_logits_do_not_overflow() -> None:
    far = jnp.array([[1000.0, -1000.0]])
    assert ls.sigmoid_cross_entropy([[1.0, 0.0]], far) == 0
    assert ls.sigmoid_cross_entropy([[0.0, 1.0]], far) == 1000
    assert ls.sparse_softmax_cross_entropy(jnp.array([1]), far) == 2000


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_stays(dtype: Any) -> None:
    logits = jnp.asarray(Z, dtype)
    for loss in (ls.sigmoid_cross_entropy(Y, logits), ls.softmax_cross_entropy(ONE_HOT, logits)):
        assert loss.dtype == dtype
    assert ls.mean_squared_error(Y, logits).dtype == jnp.float32


def test_labels_may_have_a_last_dimension() -> None:
    plain = ls.sparse_softmax_cross_entropy(CLASSES, Z, weights=np.arange(5))
    assert ls.sparse_softmax_cross_entropy(CLASSES[:, None], Z, weights=np.arange(5)[:, None]) == plain


@pytest.mark.parametrize("odd", [-1, 3])
def test_a_label_that_is_no_class_is_noticed(odd: int) -> None:
    losses = ls.sparse_softmax_cross_entropy(np.array([0, odd]), Z[:2], reduction=R.NONE)
    np.testing.assert_array_equal(np.isnan(losses), [False, True])


def test_losses_are_collected_in_a_model_fn() -> None:
    def model(batch: Any) -> Any:
        scope = demand("a test")
        assert ls.get_losses() == []
        assert ls.get_regularization_losses() == []
        assert scope.loss_reduction is None
        keras.layers.Dense(1, kernel_regularizer=keras.regularizers.L2(0.5), kernel_initializer="ones")(batch)
        first = ls.mean_squared_error(batch, 0 * batch)
        ls.absolute_difference(batch, 0 * batch, loss_collection="mine", reduction=R.SUM)
        ls.absolute_difference(batch, 0 * batch, loss_collection=None)
        ls.add_loss(jnp.float32(10))
        ls.mean_pairwise_squared_error(batch, batch)
        assert ls.get_losses()[0] is first
        assert len(ls.get_losses()) == 3
        assert len(ls.get_losses(loss_collection="mine")) == 1
        assert scope.loss_reduction == R.SUM_BY_NONZERO_WEIGHTS
        scope.record("total", ls.get_total_loss())
        return spec(loss=ls.get_total_loss() - ls.get_total_loss(add_regularization_losses=False), eval_metric_ops={})

    assert evaluate(model, [np.full((2, 3), 2.0, np.float32)])["loss"] == 0.5 * 3


def test_outside_of_a_model_fn_nothing_is_collected() -> None:
    ls.add_loss(jnp.ones(()))
    for collected in (ls.get_losses, ls.get_total_loss, ls.get_regularization_losses, ls.get_regularization_loss):
        with pytest.raises(StartupOrderError, match="can only be used inside of a model_fn"):
            collected()


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda: ls.mean_squared_error(Y, Z[:2]), "Labels and predictions have the same shape"),
        (lambda: ls.sigmoid_cross_entropy(Y, Z[:, :1]), "same shape"),
        (lambda: ls.mean_squared_error(Y, None), "predictions must be numbers"),
        (lambda: ls.mean_squared_error("text", Z), "labels must be numbers"),
        (lambda: ls.mean_squared_error(Y, Z, weights=None), "weights must be numbers"),
        (lambda: ls.mean_squared_error(Y, Z, weights=np.ones(5)), "Weights are one number, or an array of the losses"),
        (lambda: ls.mean_squared_error(Y, Z, reduction="sum"), "A reduction is one of none, weighted_sum"),
        (lambda: ls.cosine_distance(Y, Z), "Exactly one of axis and dim"),
        (lambda: ls.cosine_distance(Y, Z, 1, dim=1), "Exactly one of axis and dim"),
        (lambda: ls.sparse_softmax_cross_entropy(CLASSES[:2], Z), "Labels have the shape of the logits without"),
        (lambda: ls.sparse_softmax_cross_entropy(CLASSES * 1.0, Z), "Cast them to int32"),
    ],
)
def test_what_does_not_fit_is_refused(loss: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        loss()


def test_scopes_of_graphs_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="a collection of its own"):
        ls.get_losses(scope="tower")  # type: ignore[arg-type]
