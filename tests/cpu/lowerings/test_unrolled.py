"""Steps that are repeated for each part of an array: the same results, from one operation in place of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from lockstep._cpu.lowerings import unrolled
from lockstep._engine.step.jaxprs import equations
from tests.cpu.lowerings.both import assert_same, random
from tests.support.exhaustive import slow_but

_SIZE = 4
_Parts = list[Any]


def large_operations(f: Callable[..., Any], *arguments: Any, packed: bool) -> int:
    """Returns how many convolutions and products a program has, before or after its parts are packed."""
    jaxpr = jax.make_jaxpr(f)(*arguments)
    jaxpr = unrolled.pack_parts(jaxpr) if packed else jaxpr
    return sum(eqn.primitive in (lax.conv_general_dilated_p, lax.dot_general_p) for eqn in equations(jaxpr))


def with_gradients(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function that returns a function's results, and gradients of their squares for all arguments."""

    def compute(*arguments: Any) -> Any:
        def loss(arguments: Sequence[Any]) -> Any:
            results = f(*arguments)
            return sum((r * r).sum() for r in jax.tree.leaves(results)), results

        return jax.grad(loss, has_aux=True)(arguments)

    return compute


# What is done to parts, which are of shape (2, _SIZE), given weights and the parts that there were first.
STEPS: dict[str, Callable[[_Parts, Any, _Parts], _Parts]] = {
    "product": lambda parts, w, _: [x @ w for x in parts],
    "product from the left": lambda parts, w, _: [(w @ x.T).T for x in parts],
    "tanh": lambda parts, w, _: [jnp.tanh(x) for x in parts],
    "relu": lambda parts, w, _: [jax.nn.relu(x) for x in parts],
    "softmax": lambda parts, w, _: [jax.nn.softmax(x) for x in parts],
    "bias": lambda parts, w, _: [x + w[0].reshape(1, -1) for x in parts],
    "twice": lambda parts, w, _: [x + x for x in parts],
    "residual": lambda parts, w, first: [x + y for x, y in zip(parts, first, strict=True)],
    "products of parts": lambda parts, w, first: [x @ y.T @ x for x, y in zip(parts, first, strict=True)],
    "numbers": lambda parts, w, _: [x * (n + 1) for n, x in enumerate(parts)],
    "neighbours": lambda parts, w, _: [x + y for x, y in zip(parts, parts[1:] + parts[:1], strict=True)],
    "reversed": lambda parts, w, _: parts[::-1],
    "one of them": lambda parts, w, _: [parts[0] @ w, *parts[1:]],
    "chained": lambda parts, w, _: [sum(parts[: n + 1], jnp.zeros_like(x)) @ w for n, x in enumerate(parts)],
}
# What becomes of them.
ENDS: dict[str, Callable[[_Parts], Any]] = {
    "stacked": jnp.stack,
    "stacked along another axis": lambda parts: jnp.stack(parts, 1),
    "concatenated": lambda parts: jnp.concatenate(parts, -1),
    "added": lambda parts: sum(parts[1:], parts[0]),
    "added, others too": lambda parts: sum([*parts, parts[0] * 2], jnp.ones_like(parts[0])),
    "last": lambda parts: parts[-1],
    "all": lambda parts: parts,
}


@pytest.mark.slow
@given(
    st.integers(2, 5),
    st.integers(0, 2),
    st.lists(st.sampled_from(list(STEPS)), min_size=1, max_size=6),
    st.sampled_from(list(ENDS)),
    st.booleans(),
)
def test_any_steps(count: int, axis: int, steps: list[str], end: str, is_unstacked: bool) -> None:
    shape = [2, _SIZE]
    shape.insert(axis, count)

    def compute(x: Any, *weights: Any) -> Any:
        if is_unstacked:
            first = list(jnp.unstack(x, axis=axis))
        else:
            first = [lax.index_in_dim(x, n, axis, keepdims=False) for n in range(count)]
        parts = first
        for step, w in zip(steps, weights, strict=True):
            parts = STEPS[step](parts, w, first)
        return ENDS[end](parts)

    arguments = [
        random(tuple(shape), "float32", 0),
        *(random((_SIZE, _SIZE), "float32", n) / 2 for n in range(len(steps))),
    ]
    assert_same(with_gradients(compute), *arguments)


def layers() -> dict[str, tuple[tuple[int, ...], Callable[[], list[keras.Layer]]]]:
    """Returns layers that are called for each moment, by name, with the shape of a moment."""
    L = keras.layers
    return {
        "dense": ((6,), lambda: [L.Dense(5, activation="relu"), L.Dense(3)]),
        "convolutions": ((9, 9, 2), lambda: [L.Conv2D(4, 3, activation="relu"), L.MaxPooling2D(2), L.Conv2D(3, 2)]),
        "strides": ((12, 3), lambda: [L.Conv1D(4, 3, strides=2, padding="same"), L.AveragePooling1D(2), L.Flatten()]),
        "depthwise": ((8, 8, 3), lambda: [L.DepthwiseConv2D(3, padding="same"), L.GlobalAveragePooling2D()]),
        "transposed": ((4, 4, 3), lambda: [L.Conv2DTranspose(2, 3, strides=2), L.Activation("tanh")]),
        "a model": (
            (6, 6, 2),
            lambda: [
                keras.Sequential(
                    [L.Conv2D(3, 3, use_bias=False), L.BatchNormalization(), L.ReLU(), L.Flatten(), L.Dense(4)]
                )
            ],
        ),
    }


@pytest.mark.parametrize("name", slow_but(layers(), "dense", "a model"))
def test_time_distributed(name: str) -> None:
    shape, make = layers()[name]
    keras.utils.set_random_seed(0)
    inputs = x = keras.Input((4, *shape))
    for layer in make():
        x = keras.layers.TimeDistributed(layer)(x)
    model = keras.Model(inputs, x)
    fixed = [v.value for v in model.non_trainable_variables]

    def compute(x: Any, *trainable: Any) -> Any:
        return model.stateless_call(list(trainable), fixed, x, training=True)[0]

    arguments = [random((2, 4, *shape), "float32", 1), *(np.asarray(v.value) for v in model.trainable_variables)]
    step = with_gradients(compute)
    assert_same(step, *arguments)
    before, after = (large_operations(step, *arguments, packed=packed) for packed in (False, True))
    assert after == before / 4


def test_unrolled_recurrent_layers() -> None:
    """The products of inputs are one; what depends on the moment before stays."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5, 3))
    model = keras.Model(inputs, keras.layers.SimpleRNN(4, unroll=True)(inputs))

    fixed = [v.value for v in model.non_trainable_variables]

    def compute(x: Any, *trainable: Any) -> Any:
        return model.stateless_call(list(trainable), fixed, x)[0]

    arguments = [random((2, 5, 3), "float32", 1), *(np.asarray(v.value) for v in model.trainable_variables)]
    assert_same(with_gradients(compute), *arguments)


def test_in_a_loop_and_behind_a_condition() -> None:
    w = random((_SIZE, _SIZE), "float32", 1) / 4

    def step(x: Any) -> Any:
        return jnp.stack([jnp.tanh(part @ w) for part in jnp.unstack(x)])

    x = random((3, 2, _SIZE), "float32", 0)
    assert_same(lambda x: lax.scan(lambda c, _: (step(c), None), x, None, length=3)[0], x)
    assert_same(lambda x: lax.cond(x[0, 0, 0] > 0, step, lambda x: x, x), x)


@pytest.mark.parametrize(
    "f",
    [
        # Nothing is the same for all parts, or nothing is large.
        lambda x: [part @ jnp.eye(_SIZE, n + 1) for n, part in enumerate(x)],
        lambda x: [jnp.tanh(part) for part in jnp.unstack(x)],
        lambda x: [part @ jnp.eye(_SIZE) for part in jnp.unstack(x)[:2]],
        # Kernels of their own would be a convolution in groups.
        lambda x: [lax.conv(part[None], part[None, :, :2], (1,), "SAME") for part in jnp.unstack(x)],
        lambda x: [jax.random.bernoulli(jax.random.key(n), 0.5) * part @ part.T for n, part in enumerate(x)],
    ],
)
def test_what_is_not_packed(f: Any) -> None:
    x = random((3, 2, _SIZE), "float32", 0)
    jaxpr = jax.make_jaxpr(f)(x)
    assert unrolled.pack_parts(jaxpr) is jaxpr
    assert_same(f, x)


@pytest.mark.slow  # It dispatches 10,000 operations; the same is shown for few by `test_any_steps`.
def test_many_additions_without_packs() -> None:
    """A sum of as many terms as Python has no frames for."""

    def compute(x: Any, w: Any) -> Any:
        h = total = jnp.zeros((2, _SIZE))
        for part in jnp.unstack(x):
            h = jnp.tanh(part @ w + h)
            total = total + h
        return total

    arguments = random((1200, 2, _SIZE), "float32", 0), random((_SIZE, _SIZE), "float32", 1)
    jaxpr = jax.make_jaxpr(compute)(*arguments)
    packed = jax.extend.core.jaxpr_as_fun(unrolled.pack_parts(jaxpr))(*arguments)
    np.testing.assert_allclose(packed[0], compute(*arguments), rtol=1e-4, atol=1e-4)
