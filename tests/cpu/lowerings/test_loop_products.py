"""Products in a loop: what is moved out of it, and that the numbers stay XLA's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from lockstep._cpu.lowerings.loop_products import loop_products
from tests.cpu.lowerings.both import assert_same, both, differs, lowered, random

TIMES, ROWS, INPUTS, UNITS = 6, 3, 4, 5


def weights(dtype: str = "float32", inputs: int = INPUTS, units: int = UNITS) -> tuple[Any, ...]:
    """Of a cell: for the input, for the state, a bias."""
    return random((inputs, units), dtype, 1), random((units, units), dtype, 2), random((units,), dtype, 3)


def layer(weights: Any, x: Any, **options: Any) -> Any:
    """A recurrent layer; x is (times, rows, inputs)."""
    of_input, of_state, bias = weights

    def cell(state: Any, x: Any) -> Any:
        state = jnp.tanh(x @ of_input + state @ of_state + bias)
        return state, state

    return lax.scan(cell, x[0, ..., :1] * jnp.zeros_like(bias), x, **options)[1]


def gradients(weights: Any, x: Any, **options: Any) -> Any:
    """Of weights and input, with a cotangent that differs from place to place."""

    def loss(weights: Any, x: Any) -> Any:
        found = layer(weights, x, **options)
        return (found * jnp.cos(jnp.arange(found.size).reshape(found.shape)).astype(x.dtype)).sum()

    return jax.grad(loss, (0, 1))(weights, x)


def products_in_loop(f: Callable[..., Any], *args: Any) -> int:
    """How many products the loops of `f` make in each round, once the rule has been at them."""
    found = 0
    for equation in jax.make_jaxpr(f)(*args).eqns:
        if equation.primitive.name == "scan":
            operands = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
            compute = loop_products(*(v.aval for v in equation.invars), **equation.params)
            body = equation.params["jaxpr"].eqns
            found += (
                sum(e.primitive.name == "dot_general" for e in body)
                if compute is None
                else products_in_loop(compute, *operands)
            )
    return found


X = random((TIMES, ROWS, INPUTS), "float32", 0)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.data())
def test_gradients_are_the_same(data: st.DataObject) -> None:
    times, rows = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 4))
    inputs, units = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    options = {"reverse": data.draw(st.booleans()), "unroll": data.draw(st.sampled_from([1, 1, 2]))}
    x = random((times, *[rows] * (rows > 0), inputs), "float64", 0)
    with jax.enable_x64(True):
        assert_same(lambda w, x: gradients(w, x, **options), weights("float64", inputs, units), x)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_gradients_are_as_close_in_narrower_types(dtype: str) -> None:
    """Rounded at other places, so they are compared by how far they are from what is not rounded."""
    arrays = weights(dtype, 32, 32), random((20, 8, 32), dtype, 0)
    with jax.enable_x64(True):
        exact = jax.device_get(jax.jit(gradients)(*jax.tree.map(lambda a: a.astype("float64"), arrays)))
    own, ours = both(gradients, *arrays)
    for true, theirs, mine in zip(*map(jax.tree.leaves, (exact, own, ours)), strict=True):
        assert mine.dtype == theirs.dtype == dtype
        far, near = (np.abs(np.asarray(v, "float64") - true).max() for v in (theirs, mine))
        assert near <= 1.5 * far


def test_a_gradient_keeps_one_product_in_its_loop() -> None:
    assert lowered(gradients, weights(), X, ours=False).as_text().count("dot_general") == 6
    assert differs(gradients, weights(), X)
    assert products_in_loop(gradients, weights(), X) == 3  # Forward both, backward the state's.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "times", "left"),
    [(3, 6, 3), (96, 6, 3), (97, 6, 6), (3, 3, 6)],
    ids=["few", "most", "too many", "few rounds"],
)
def test_how_many_rows_and_rounds(rows: int, times: int, left: int) -> None:
    x = random((times, rows, INPUTS), "float32", 0)
    assert products_in_loop(gradients, weights(), x) == left
    assert_same(gradients, weights(), x)


def test_what_takes_too_much_memory_stays() -> None:
    big = jax.ShapeDtypeStruct((1 << 20, 24, INPUTS), "float32")
    assert products_in_loop(gradients, weights(units=2), big) == 3
    assert products_in_loop(gradients, weights(units=3), big) == 6


def _two_layers(w: Any, x: Any) -> Any:
    """What the second product needs comes of the first one, and neither is needed in the loop."""

    def cell(state: Any, x: Any) -> Any:
        state = jnp.tanh(state + x[:, :1])
        return state, (jnp.tanh(state @ w[1]) @ w[1], state.sum())

    return lax.scan(cell, jnp.zeros((x.shape[1], UNITS)), x)


def _needed_in_the_loop(w: Any, x: Any) -> Any:
    def cell(state: Any, x: Any) -> Any:
        made = state @ w[1]
        return jnp.tanh(made + x[:, :1]), made * 2

    return lax.scan(cell, jnp.zeros((x.shape[1], UNITS)), x)


def _sum_that_is_looked_at(w: Any, x: Any) -> Any:
    def cell(carry: Any, x: Any) -> Any:
        state, total = carry
        state = jnp.tanh(state @ w[1] + x[:, :1])
        total = total + state.T @ x
        return (state, total), total.sum()

    return lax.scan(cell, (jnp.zeros((x.shape[1], UNITS)), jnp.zeros((UNITS, INPUTS))), x)


def _two_terms(w: Any, x: Any) -> Any:
    """A sum of two products and of a bias' gradient, in a wider type, beside a sum of the input."""

    def cell(carry: Any, x: Any) -> Any:
        state, total, bias, inputs = carry
        state = jnp.tanh(state @ w[1] + x[:, :1])
        small = state.astype("bfloat16")
        total = total + ((state.T @ x).T + (x * 2).T @ state)
        return (state, total, bias + small.sum(0).astype("float32"), inputs + x), None

    start = (jnp.zeros((x.shape[1], UNITS)), jnp.ones((INPUTS, UNITS)), jnp.ones(UNITS), jnp.zeros(x.shape[1:]))
    return lax.scan(cell, start, x)


def _numbers_come_out(w: Any, x: Any) -> Any:
    """Outputs that are numbers, inputs that come out, one value that comes out twice."""

    def cell(carry: Any, x: Any) -> Any:
        state, kept, count = carry
        state = jnp.tanh(state + x[:, :1])
        late = state @ w[1]
        return (state, kept, 1.5), (late, late, x, state, 2, kept, count)

    return lax.scan(cell, (jnp.zeros((x.shape[1], UNITS)), x[0], 0.5), x)


def _parts(margin: float) -> Callable[..., Any]:
    """Sums of products that are put together, side by side and with margins, as of gates with weights of their own."""

    def loop(w: Any, x: Any) -> Any:
        def cell(carry: Any, x: Any) -> Any:
            state, beside, within = carry
            state = jnp.tanh(state @ w[1] + x[:, :1])
            beside = beside + jnp.concatenate([state.T @ x, (x.T @ (2 * state)).T], 1)
            part = lax.pad(state.T @ x, jnp.float32(margin), [(0, 0, 0), (INPUTS, 0, 0)])
            return (state, beside, within + part), None

        total = jnp.zeros((UNITS, 2 * INPUTS))
        return lax.scan(cell, (jnp.zeros((x.shape[1], UNITS)), total, total), x)

    return loop


LOOPS: dict[str, tuple[Callable[..., Any], int]] = {
    "two layers after the loop": (_two_layers, 0),
    "needed in the loop": (_needed_in_the_loop, 1),
    "a sum that is looked at": (_sum_that_is_looked_at, 2),
    "two terms": (_two_terms, 1),
    "numbers": (_numbers_come_out, 0),
    "parts": (_parts(0.0), 1),
    "parts in a frame of ones": (_parts(1.0), 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_what_may_be_moved(name: str) -> None:
    loop, left = LOOPS[name]
    assert_same(loop, weights(), X)
    assert products_in_loop(loop, weights(), X) == left


def test_a_matrix_read_by_columns_is_transposed_before_the_loop() -> None:
    def columns(w: Any, x: Any) -> Any:
        return lax.scan(lambda s, x: (jnp.tanh(s @ w[1].T + x[:, :1]), None), jnp.zeros((x.shape[1], UNITS)), x)[0]

    def fixed(w: Any, x: Any) -> Any:
        by_columns = (((1,), (1,)), ((), ()))
        first = jnp.zeros((x.shape[1], UNITS))
        return lax.scan(lambda s, x: (jnp.tanh(lax.dot_general(s, w[1], by_columns) + x[:, :1]), None), first, x)[0]

    assert "optimization_barrier" in lowered(fixed, weights(), X, ours=True).as_text()
    assert_same(fixed, weights(), X)
    assert_same(columns, weights(), X)
    one_row = X[:, :1]
    assert not differs(fixed, weights(), one_row)


TRANSFORMED: dict[str, Callable[..., Any]] = {
    "vmap": lambda w, x: jax.vmap(gradients, (None, 0))(w, jnp.stack([x, -x])),
    "vmap of weights": lambda w, x: jax.vmap(gradients, (0, None))(jax.tree.map(lambda a: jnp.stack([a, -a]), w), x),
    "remat": jax.checkpoint(gradients),
    "second derivative": lambda w, x: jax.grad(lambda x: (gradients(w, x)[1] ** 2).sum())(x),
    "a loop of loops": lambda w, x: lax.scan(
        lambda w, _: (jax.tree.map(lambda w, g: w - 0.01 * g, w, gradients(w, x)[0]), None), w, length=5
    ),
    "while": lambda w, x: lax.fori_loop(
        0, 3, lambda _, w: jax.tree.map(lambda w, g: w - 0.01 * g, w, gradients(w, x)[0]), w
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMED)
def test_under(name: str) -> None:
    assert_same(TRANSFORMED[name], weights(), X)


@pytest.mark.slow
@pytest.mark.parametrize("check_vma", [False, True])
def test_under_shard_map(check_vma: bool) -> None:
    whole, divided = PartitionSpec(), PartitionSpec(None, "replica")
    mesh = jax.make_mesh((2,), ("replica",), axis_types=(AxisType.Auto,), devices=jax.local_devices()[:2])

    def replica(w: Any, x: Any) -> Any:
        of_weights, of_input = gradients(w, x)
        return of_weights if check_vma else lax.psum(of_weights, "replica"), of_input

    mapped = jax.shard_map(
        replica, mesh=mesh, in_specs=(whole, divided), out_specs=(whole, divided), check_vma=check_vma
    )
    x = random((TIMES, 4, INPUTS), "float32", 0)
    assert check_vma or differs(mapped, weights(), x)
    assert_same(mapped, weights(), x)


@pytest.mark.slow
def test_when_xla_divides_the_batch() -> None:
    mesh = jax.make_mesh((2,), ("replica",), axis_types=(AxisType.Auto,), devices=jax.local_devices()[:2])
    sharding = NamedSharding(mesh, PartitionSpec(None, "replica"))
    assert_same(lambda w, x: gradients(w, lax.with_sharding_constraint(x, sharding)), weights(), X)


def test_side_effects_stay_where_they_are() -> None:
    seen: list[int] = []

    def loop(w: Any, x: Any) -> Any:
        def cell(state: Any, x: Any) -> Any:
            jax.debug.callback(lambda: seen.append(1))
            return jnp.tanh(state + x[:, :1]), state @ w[1]

        return lax.scan(cell, jnp.zeros((x.shape[1], UNITS)), x)

    assert not differs(loop, weights(), X)
    jax.block_until_ready(lowered(loop, weights(), X, ours=True).compile()(weights(), X))
    jax.effects_barrier()
    assert len(seen) == TIMES


@pytest.mark.slow
def test_keras_layers() -> None:
    import keras

    for kind in (keras.layers.LSTM, keras.layers.GRU, keras.layers.SimpleRNN):
        recurrent = kind(8, return_sequences=True)
        x = np.asarray(random((3, 7, 4), "float32", 0))
        recurrent.build(x.shape)
        values, seeds = (
            [v.value for v in vs] for vs in (recurrent.trainable_variables, recurrent.non_trainable_variables)
        )

        def loss(values: Any, x: Any, recurrent: Any = recurrent, seeds: Any = seeds) -> Any:
            return (recurrent.stateless_call(values, seeds, x)[0] ** 2).sum()

        assert differs(jax.grad(loss, (0, 1)), values, x)
        assert_same(jax.grad(loss, (0, 1)), values, x)
