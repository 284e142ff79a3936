"""A step with lockstep's own kernels is the step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from lockstep._native import calls
from lockstep._step import native
from lockstep._step.native_products import Product
from lockstep._step.native_updates import Update
from lockstep._step.partition.flat import flatten
from lockstep._step.recorded import Recorded, record
from lockstep._xla import in_place, setting
from tests.support.compiler import needs_kernels

Step = Callable[[Any, Any], Any]


pytestmark = needs_kernels


def _adam(state: Any, gradients: Any, rate: float = 1e-2) -> Any:
    weights, first, second, count = state
    count = count + 1
    first = jax.tree.map(lambda m, g: m + (g - m) * 0.1, first, gradients)
    second = jax.tree.map(lambda v, g: v + (g * g - v) * 0.001, second, gradients)
    scale = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    weights = jax.tree.map(lambda w, m, v: w - scale * m / (jnp.sqrt(v) + 1e-7), weights, first, second)
    return weights, first, second, count


def _momentum(state: Any, gradients: Any) -> Any:
    weights, first, second, count = state
    first = jax.tree.map(lambda v, g: 0.9 * v - 0.01 * jnp.clip(g, -0.1, 0.1), first, gradients)
    return jax.tree.map(jnp.add, weights, first), first, second, count


def _by_norm(state: Any, gradients: Any) -> Any:
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
    return _adam(state, jax.tree.map(lambda g: g / jnp.maximum(norm, 1), gradients))


def _keeping_it(state: Any, gradients: Any) -> Any:
    weights, _, second, count = state
    return jax.tree.map(lambda w, g: w - 0.01 * g, weights, gradients), gradients, second, count


_UPDATES = {"adam": _adam, "momentum": _momentum, "norm": _by_norm, "kept": _keeping_it}


def _step(update: Callable[[Any, Any], Any]) -> Step:
    def loss_of(weights: Any, x: Any, y: Any) -> Any:
        for w in weights[:-1]:
            x = jnp.tanh(x @ w)
        return jnp.mean((x @ weights[-1] - y) ** 2)

    def step(state: Any, batch: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(state[0], *batch)
        return loss, update(state, gradients)

    return step


def _state(widths: list[int]) -> Any:
    random = np.random.default_rng(0)
    shapes = list(pairwise(widths))
    weights = [jnp.asarray(random.standard_normal(shape) / np.sqrt(shape[0]), "float32") for shape in shapes]
    zeros = [[jnp.zeros_like(w) for w in weights] for _ in range(2)]
    return weights, *zeros, jnp.zeros(())


def _batch(widths: list[int], rows: int) -> Any:
    random = np.random.default_rng(1)
    return tuple(jnp.asarray(random.standard_normal((rows, n)), "float32") for n in (widths[0], widths[-1]))


def _after(step: Step, state: Any, batch: Any, steps: int = 4) -> Any:
    run = jax.jit(lambda s: lax.fori_loop(0, steps, lambda _, s: step(s, batch)[1], s))
    return run(state)


@settings(max_examples=25)
@given(
    update=st.sampled_from(list(_UPDATES)),
    widths=st.lists(st.sampled_from([1, 8, 33, 64, 100, 128]), min_size=2, max_size=4),
    rows=st.sampled_from([1, 7, 32, 64, 130]),
)
def test_training_is_the_same(update: str, widths: list[int], rows: int) -> None:
    state, batch = _state(widths), _batch(widths, rows)
    step = _step(_UPDATES[update])
    ours = native.with_native_kernels(record(step, state, batch), state) or step
    expected, found = (_after(s, state, batch) for s in (step, ours))
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(
    ("update", "updates", "products"), [("adam", 2, 3), ("momentum", 2, 3), ("norm", 0, 3), ("kept", 2, 3)]
)
def test_what_is_found(update: str, updates: int, products: int) -> None:
    """Two layers: two products, a third for what lies between; and updates, where no norm needs all gradients."""
    widths = [128, 256, 256]
    nodes = _nodes(record(_step(_UPDATES[update]), _state(widths), _batch(widths, 32)), _state(widths))
    found = [node for node in nodes if isinstance(node, Update)]
    assert len(found) == updates
    assert sum(isinstance(node, Product) for node in nodes) == products
    assert all(node.replaced for node in found)


def test_axes_that_belong_together_are_one() -> None:
    """Attention's kernels have three axes, and its examples two."""
    weight, x = jnp.ones((64, 4, 16)), jnp.ones((4, 16, 64))

    def step(state: Any, batch: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: jnp.sum(jnp.einsum("btd,dhk->bthk", batch, w) ** 2))(state)
        return loss, state - 1e-3 * gradient

    nodes = _nodes(record(step, weight, x), weight)
    assert sum(isinstance(node, Update) for node in nodes) == 1
    ours = native.with_native_kernels(record(step, weight, x), weight)
    assert ours is not None
    np.testing.assert_allclose(_after(ours, weight, x), _after(step, weight, x), rtol=1e-4)


def test_a_matrix_that_is_transposed_is_taken_as_it_lies() -> None:
    def step(state: Any, batch: Any) -> Any:
        return (), jnp.tanh(state @ batch.T / 16)

    state, batch = _batch([256, 256], 32)[0], _batch([256, 256], 256)[0]
    recorded = record(step, state, batch)
    (product,) = (node for node in _nodes(recorded, state) if isinstance(node, Product))
    assert product.turned_right and product.right.aval.shape == (256, 256)
    ours = native.with_native_kernels(recorded, state)
    assert ours is not None
    np.testing.assert_allclose(_after(ours, state, batch), _after(step, state, batch), rtol=1e-3, atol=1e-4)


def test_a_product_with_the_first_matrix_transposed_is_left_to_xla() -> None:
    def step(state: Any, batch: Any) -> Any:
        return (), jnp.tanh(state.T @ batch)

    state, batch = (_batch([256, 256], 256)[i] for i in (0, 1))
    assert native.with_native_kernels(record(step, state, batch), state) is None


def test_other_types_are_left_to_xla() -> None:
    widths = [128, 256, 256]
    state, batch = jax.tree.map(lambda a: a.astype(jnp.bfloat16), (_state(widths), _batch(widths, 32)))
    assert native.with_native_kernels(record(_step(_momentum), state, batch), state) is None


def test_without_a_compiler_the_step_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "are_there", lambda: False)
    monkeypatch.setattr(calls, "can_update", lambda _: False)
    widths = [128, 256, 256]
    state, batch = _state(widths), _batch(widths, 32)
    assert native.with_native_kernels(record(_step(_adam), state, batch), state) is None


def test_weights_that_the_product_reads_are_not_replaced_in_place() -> None:
    """The gradient of a matrix's product with itself."""

    def step(state: Any, batch: Any) -> Any:
        return (), state - 1e-3 * (state.T @ batch + batch.T @ state)

    state, batch = (_batch([64, 64], 64)[i] for i in (0, 1))
    recorded = record(step, state, batch)
    ours = native.with_native_kernels(recorded, state) or step
    assert not any(isinstance(node, Update) for node in _nodes(recorded, state))
    np.testing.assert_allclose(_after(ours, state, batch), _after(step, state, batch), rtol=1e-3, atol=1e-4)


def test_the_setting_of_lowerings_switches_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(setting.VARIABLE, "0")
    widths = [128, 256, 256]
    state, batch = _state(widths), _batch(widths, 32)
    assert native.with_native_kernels(record(_step(_adam), state, batch), state) is None


def test_weights_are_not_copied_in_each_round() -> None:
    widths = [128, 256, 256]
    state, batch = _state(widths), _batch(widths, 32)
    step = native.with_native_kernels(record(_step(_adam), state, batch), state)
    assert step is not None
    loop = jax.jit(
        lambda s, b: lax.fori_loop(0, 4, lambda _, s: step(s, b)[1], s),
        compiler_options=in_place.compiler_options("cpu"),
    )
    text = loop.lower(state, batch).compile().as_text()
    body = next(part for part in text.split("\n\n") if "custom-call" in part)
    assert "lockstep_updated" in body
    assert not [line for line in body.splitlines() if " copy(" in line and "f32[256,256]" in line]


def _nodes(recorded: Recorded, state: Any) -> list[Any]:
    flat = flatten(recorded.jaxpr)
    return list(native._nodes(flat, native._pairs(flat, len(jax.tree.leaves(state)))))
