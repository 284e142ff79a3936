"""Each rule by which a step is divided gives one device's numbers, whichever axis is the divided one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import lax

from lockstep._cpu.partitioner import partition
from tests.cpu.partitioner.divided import assert_equal, both, divided, float64, replicas

EXACT = 1e-12


def _check(function: Callable[[Any, Any], Any], state: Any, data: Any, count: int, tolerance: float = EXACT) -> Any:
    """Compares what a function makes of whole arrays and batches."""
    with float64():
        expected, found, how = both(lambda s, d: (function(s, d), s), state, data, count)
        assert_equal(found, expected, tolerance)
    return how


def _planned(function: Callable[[Any, Any], Any], state: Any, data: Any, count: int = 2) -> Any:
    """How a function is divided; nothing is compiled."""
    with float64():
        return divided(lambda s, d: (function(s, d), s), state, data, count)


def _normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def _numbers(seed: int, limit: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, limit, shape).astype("int32")


# Of x, divided along `axis` of three, and w of the same shape without axes of more than one element but the others.
ELEMENTWISE: dict[str, Callable[[Any, Any, int], Any]] = {
    "unary": lambda x, w, a: jnp.tanh(x) + jnp.exp(-(x**2)) + jnp.sqrt(jnp.abs(x)),
    "with whole": lambda x, w, a: x * w - w / (1 + x**2),
    "with number": lambda x, w, a: 2.0 * x + 1,
    "with itself": lambda x, w, a: jnp.maximum(x, jnp.flip(x, (a + 1) % 3)),
    "where": lambda x, w, a: jnp.where(x > 0, x, w),
    "where, one choice": lambda x, w, a: lax.select(w.sum() > 0, x, -x),
    "clip": lambda x, w, a: jnp.clip(x, -0.5, 0.5),
    "cast": lambda x, w, a: (x * 5).astype("int32") // 3 + (x > 0),
    "bits": lambda x, w, a: lax.bitcast_convert_type(x, "int64") >> 3,
    "ones of each example": lambda x, w, a: jnp.ones_like(x) * w,
    "numbers of examples": lambda x, w, a: x * lax.broadcasted_iota("float64", x.shape, a),
}
SHAPES: dict[str, Callable[[Any, Any, int], Any]] = {
    "transpose": lambda x, w, a: jnp.transpose(x, (2, 0, 1)),
    "new axes": lambda x, w, a: x[:, None, :, None] * jnp.ones((1, 5, 1)),
    "squeeze": lambda x, w, a: jnp.squeeze(x[None], 0),
    "join with the next": lambda x, w, a: x.reshape(-1, x.shape[2]) if a != 1 else x.reshape(x.shape[0], -1),
    "split the divided one": lambda x, w, a: x.reshape(*x.shape[: a + 1], 1, *x.shape[a + 1 :]),
    "concatenate": lambda x, w, a: jnp.concatenate([x, jnp.broadcast_to(w, x.shape)], (a + 1) % 3),
    "stack": lambda x, w, a: jnp.stack([x, 2 * x], 1),
    "unstack": lambda x, w, a: jnp.unstack(x, axis=(a + 1) % 3),
    "split": lambda x, w, a: jnp.split(jnp.concatenate([x, x], (a + 2) % 3), 2, (a + 2) % 3),
    "pad": lambda x, w, a: jnp.pad(x, [(0, 0) if i == a else (1, 2) for i in range(3)], constant_values=3.0),
    "slice": lambda x, w, a: lax.slice_in_dim(x, 0, 1, axis=(a + 1) % 3),
    "flip": lambda x, w, a: jnp.flip(x, (a + 1) % 3),
    "tile": lambda x, w, a: jnp.tile(x, [1 if i == a else 2 for i in range(3)]),
    "dynamic slice": lambda x, w, a: lax.dynamic_slice_in_dim(x, jnp.argmax(w.sum((0, 1))), 1, (a + 1) % 3),
    "update": lambda x, w, a: lax.dynamic_update_slice_in_dim(x, jnp.ones_like(x) * w, 0, (a + 2) % 3),
    "cumulative": lambda x, w, a: [jnp.cumsum(x, (a + 1) % 3), lax.cummax(x, (a + 2) % 3)],
    "sort": lambda x, w, a: [jnp.sort(x, (a + 1) % 3), jnp.argsort(x, (a + 2) % 3)],
    "top k": lambda x, w, a: lax.top_k(jnp.moveaxis(x, (a + 1) % 3, 2), 1),
    "repeat": lambda x, w, a: jnp.repeat(x, 2, (a + 1) % 3),
    "roll": lambda x, w, a: jnp.roll(x, 1, (a + 1) % 3),
}
REDUCTIONS: dict[str, Callable[[Any, Any, int], Any]] = {
    "sum": lambda x, w, a: [x.sum(a), x.sum((a + 1) % 3), x.sum()],
    "mean and variance": lambda x, w, a: [x.mean(a), x.var(a), x.std()],
    "normalised": lambda x, w, a: (x - x.mean(a, keepdims=True)) * lax.rsqrt(x.var(a, keepdims=True) + 1e-3),
    "extremes": lambda x, w, a: [x.max(a), x.min(a), x.max((a + 1) % 3), x.min()],
    "product": lambda x, w, a: [x.prod(a), x.prod((a + 1) % 3)],
    "all and any": lambda x, w, a: [(x > 0).all(a), (x > 1).any(a), (x > 0).any((a + 1) % 3)],
    "arguments": lambda x, w, a: [x.argmax(a), x.argmin(a), x.argmax((a + 1) % 3), jnp.round(x).argmax(a)],
    "argument of all": lambda x, w, a: jnp.argmax(x),
    "not a number": lambda x, w, a: [
        jnp.where(x == x.max(a, keepdims=True), jnp.nan, x).argmax(a),
        jnp.where(x > 1, jnp.nan, x).sum(a),
        jnp.where(x > 1, jnp.inf, x).max(a),
    ],
    "counts": lambda x, w, a: [(x > 0).sum(a), jnp.count_nonzero(x > 0)],
    "norm": lambda x, w, a: x / jnp.linalg.norm(x, axis=a, keepdims=True),
    "softmax over the batch": lambda x, w, a: jax.nn.softmax(x, a),
    "softmax": lambda x, w, a: jax.nn.log_softmax(x, (a + 1) % 3),
    "of integers": lambda x, w, a: ((x * 9).astype("int32").sum(a) // 4, (x * 9).astype("int32").sum(a) * 3),
    "any function": lambda x, w, a: lax.reduce(x, 1.0, lambda p, q: p * q, ((a + 1) % 3,)),
    "whole batch": lambda x, w, a: [jnp.sort(x, a), jnp.cumsum(x, a), jnp.flip(x, a), x[:1], jnp.median(x, a)],
}


@pytest.mark.slow
@pytest.mark.parametrize("family", [ELEMENTWISE, SHAPES, REDUCTIONS], ids=["elementwise", "shapes", "reductions"])
@settings(max_examples=2)
@example(axis=0, count=2, each=2, sizes=(2, 3), seed=0)
@example(axis=1, count=4, each=1, sizes=(3, 2), seed=1)
@given(
    axis=st.integers(0, 2),
    count=st.sampled_from([3, 2, 4]),
    each=st.integers(1, 3),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    seed=st.integers(0, 99),
)
def test_arrays(family: dict[str, Any], axis: int, count: int, each: int, sizes: tuple[int, int], seed: int) -> None:
    x = _normal(seed, count * each, *sizes)
    w = _normal(seed + 1, *(1 if i == axis else n for i, n in enumerate(np.moveaxis(x, 0, axis).shape)))

    def everything(w: Any, x: Any) -> Any:
        moved = jnp.moveaxis(x, 0, axis)
        return {name: function(moved, w, axis) for name, function in family.items()}

    _check(everything, w, x, count)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", [*ELEMENTWISE, *SHAPES])
def test_what_needs_no_communication_has_none(name: str, axis: int) -> None:
    function = {**ELEMENTWISE, **SHAPES}[name]
    found = _planned(lambda w, x: function(jnp.moveaxis(x, 0, axis), w, axis), np.ones((1, 1, 1)), np.ones((4, 2, 3)))
    assert (found.calls, found.gathered) == (0, 0)


# What the first and the second operand are: divided along this axis of four, or whole.
_OPERANDS = [(a, b) for a in (None, 0, 1, 2) for b in (None, 0, 1, 2) if (a, b) != (None, None)]
_PRODUCTS = ["abc,abd->acd", "abc,dbc->ad", "abc,bcd->ad", "abc,acb->a", "abc,def->abcdef", "abc,cba->bac"]


@pytest.mark.slow
@pytest.mark.parametrize("product", _PRODUCTS)
def test_products(product: str) -> None:
    """Of axes of one size, so that any axis of either operand may be the divided one."""
    size = 4
    data = {i: _normal(i, size, size, size) for i in range(8)}

    def everything(w: Any, data: Any) -> Any:
        found = {}
        for a, b in _OPERANDS:
            left = w[0] if a is None else jnp.moveaxis(data[a], 0, a)
            right = w[1] if b is None else jnp.moveaxis(data[b + 4], 0, b)
            found[f"{a} {b}"] = jnp.einsum(product, left, right)
        return found

    _check(everything, [_normal(8, size, size, size), _normal(9, size, size, size)], data, 2)


def test_a_sum_over_examples_on_both_sides_is_one_reduction() -> None:
    found = _planned(lambda w, x: x.T @ (x @ w), np.ones((3, 5)), np.ones((4, 3)))
    assert (found.calls, found.gathered) == (1, 0)


def _convolved(x: Any, w: Any, **options: Any) -> Any:
    spec = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, dimension_numbers=spec, **options)


@pytest.mark.parametrize(
    ("channels", "kernel", "options"),
    [
        (3, (2, 3, 3, 4), {"window_strides": (1, 1), "padding": "SAME"}),
        (4, (3, 2, 2, 6), {"window_strides": (2, 1), "padding": "VALID", "feature_group_count": 2}),
        (4, (3, 3, 1, 8), {"window_strides": (1, 2), "padding": "SAME", "feature_group_count": 4}),
        (2, (2, 2, 2, 3), {"window_strides": (1, 1), "padding": "SAME", "rhs_dilation": (2, 1)}),
        (2, (3, 3, 2, 3), {"window_strides": (1, 1), "padding": ((1, 1), (0, 2)), "lhs_dilation": (2, 2)}),
    ],
)
def test_convolutions(channels: int, kernel: tuple[int, ...], options: Any) -> None:
    """And their gradients, of which that of a kernel sums over the examples."""

    def everything(w: Any, x: Any) -> Any:
        return jax.value_and_grad(lambda w, x: jnp.sum(jnp.tanh(_convolved(x, w, **options))), (0, 1))(w, x)

    found = _check(everything, _normal(0, *kernel), _normal(1, 4, 7, 6, channels), 2)
    assert (found.calls, found.gathered) == (1, 0)


def _pooled(x: Any, kind: str, axis: int) -> Any:
    window = tuple(1 if i in (axis, 3) else 2 for i in range(4))
    if kind == "max":
        return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "SAME")
    return lax.reduce_window(x, 0.0, lax.add, window, (1, 1, 1, 1), "VALID")


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1])
def test_windows(axis: int) -> None:
    def everything(_: Any, x: Any) -> Any:
        moved = jnp.moveaxis(x, 0, axis)
        squares = {k: lambda x, k=k: jnp.sum(_pooled(x, k, axis) ** 2) for k in ("max", "mean")}
        found = {k: jax.value_and_grad(f)(moved) for k, f in squares.items()}
        return found, jax.jvp(lambda x: _pooled(x, "max", axis), (moved,), (moved**2,))

    found = _check(everything, (), np.round(_normal(0, 4, 5, 6, 2)), 2)
    assert found.gathered == 0


def _lookups(w: Any, data: Any) -> Any:
    ids, x = data["ids"], data["x"]
    rows = jnp.arange(len(ids))
    return {
        "table": jax.value_and_grad(lambda t: jnp.sum(t[ids] ** 2))(w),
        "out of range": jnp.take(w, ids + 4, axis=0, mode="fill", fill_value=7.0),
        "one hot": jax.nn.one_hot(ids, 6) @ w,
        "of each example": jnp.take_along_axis(x, ids[:, :2], 1),
        "its gradient": jax.grad(lambda x: jnp.sum(jnp.take_along_axis(x, ids[:, :2], 1) ** 2))(x),
        "by pairs": x[rows, ids[:, 0]],
        "same for all": x[:, jnp.array([2, 0])],
        "slices": jax.vmap(lambda r, i: lax.dynamic_slice_in_dim(r, i, 2))(x, ids[:, 0]),
        "set": jax.vmap(lambda r, i: r.at[i].set(9.0))(x, ids[:, 0]),
        "set for all": x.at[:, 1].set(3.0),
        "add for all": x.at[:, jnp.array([1, 1])].add(2.0),
        "counted": jnp.bincount(ids.reshape(-1), length=6),
        "summed by": jax.ops.segment_sum(x, ids[:, 0], 6),
        "greatest by": jax.ops.segment_max(x, ids[:, 0], 6),
        "one example": x[2],
        "some examples": x[jnp.array([1, 0])],
        "one example set": x.at[1].set(0.0),
    }


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_lookups(count: int) -> None:
    data = {"ids": _numbers(0, 6, 6, 3), "x": _normal(1, 6, 6)}
    _check(_lookups, _normal(2, 6, 4), data, count)


def test_the_gradient_of_a_lookup_is_one_reduction() -> None:
    found = _planned(lambda w, ids: jax.grad(lambda t: jnp.sum(t[ids] ** 2))(w), np.ones((6, 4)), np.ones((4, 3), int))
    assert (found.calls, found.sums, found.gathered) == (1, (1,), 0)


def _recurrent(w: Any, data: Any) -> Any:
    """A recurrent layer over time; its gradient adds up over time and over examples."""

    def turn(state: Any, x: Any) -> tuple[Any, Any]:
        after = jnp.tanh(state @ w["u"] + x @ w["w"] + w["b"])
        return after, after.sum(-1)

    def loss(w: Any) -> Any:
        last, sums = lax.scan(turn, jnp.zeros((len(data), 3)), jnp.swapaxes(data, 0, 1), reverse=True)
        return jnp.mean(last**2) + jnp.mean(sums) + 0.0 * w["b"].sum()

    return jax.value_and_grad(loss)(w)


def test_loops_over_time() -> None:
    w = {"u": _normal(0, 3, 3), "w": _normal(1, 2, 3), "b": _normal(2, 3)}
    found = _check(lambda w, d: _recurrent(w, d), w, _normal(3, 4, 5, 2), 2)
    # Gradients are summands that the loop carries; nothing is exchanged inside of it.
    assert (found.calls, found.gathered) == (1, 0)


def _loops(w: Any, x: Any) -> Any:
    n = len(x)
    return {
        "while": lax.while_loop(lambda c: c[0].max() < 50, lambda c: (c[0] * 2, c[1] + c[0].mean()), (abs(x), w.sum())),
        "while, compared": lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] @ c[1].T), (0, x @ x.T)),
        "times": lax.fori_loop(0, 3, lambda i, c: c + x * i, jnp.zeros_like(x)),
        "statistics inside": lax.scan(lambda c, _: ((c - c.mean(0)) / (1 + c.std(0)), c.sum()), x, length=3),
        "totals": lax.scan(lambda c, row: (c + row.sum(), c), 0.0, x.T),
        "total of totals": lax.scan(lambda c, row: (c + row.sum() + w.sum(), None), 1.0, x.T)[0],
        "over examples": lax.scan(lambda c, row: (c + row, c * 2), jnp.zeros(x.shape[1]), x),
        "becomes divided": lax.fori_loop(0, 2, lambda i, c: c * x[:, 0], jnp.ones(n)),
        "swapped": lax.fori_loop(0, 3, lambda i, c: (c[1], c[0] + c[1]), (x, jnp.ones_like(x))),
        "condition": lax.cond(x.sum() > 0, lambda a: a * 2, lambda a: jnp.ones_like(a), x),
        "condition on sums": lax.cond(w.sum() > 0, lambda a: a.sum(0), lambda a: a.max(0), x),
        "condition, sums": lax.cond(w.sum() > 0, lambda a: a.sum(0), lambda a: (a**2).sum(0), x),
        "switch": lax.switch(jnp.argmax(w[0]), [lambda a: a, lambda a: a[:, ::-1], lambda a: a * 0], x),
        "mapped": lax.map(lambda row: row.sum(), x.T),
    }


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_loops(count: int) -> None:
    _check(_loops, _normal(0, 2, 3), _normal(1, 4, 3), count)


def _called(w: Any, x: Any) -> Any:
    """Through everything that calls another function."""

    @jax.custom_vjp
    def doubled(x: Any) -> Any:
        return 2 * x

    doubled.defvjp(lambda x: (2 * x, x.sum()), lambda total, g: (g * total,))

    @jax.checkpoint
    def block(w: Any, x: Any) -> Any:
        return jnp.sin(jax.jit(jnp.tanh)(x @ w))

    def loss(w: Any) -> Any:
        return jnp.mean(doubled(jax.nn.silu(block(w, jax.nn.relu(x)))) ** 2)

    return jax.value_and_grad(loss)(w), jax.vmap(lambda r: jnp.linalg.inv(jnp.outer(r, r) + jnp.eye(3)))(x)


@pytest.mark.slow
def test_calls() -> None:
    _check(_called, _normal(0, 3, 3), _normal(1, 4, 3), 2)


def _random(key: Any, x: Any) -> Any:
    first, second = jax.random.split(jax.random.wrap_key_data(key))
    bits = {width: jax.random.bits(first, x.shape, f"uint{width}") for width in (8, 16, 32, 64)}
    # Divided along the first axis, and along the second.
    taken = {w: [jnp.where(x > 0, b, 0), jnp.where(x.T > 0, b.reshape(x.T.shape), 0)] for w, b in bits.items()}
    keys = jax.random.split(second, len(x))
    return {
        "bits": taken,
        "dropped": jnp.where(jax.random.bernoulli(second, 0.5, x.shape), x, 0),
        "noise": x + jax.random.normal(first, x.shape),
        "of each example": jax.vmap(lambda k, r: r + jax.random.uniform(k, r.shape))(keys, x),
        "shuffled": jax.random.permutation(first, x),
        "drawn": jax.random.categorical(second, x),
        "used whole, too": [x * jax.random.uniform(first, x.shape), jnp.sort(jax.random.uniform(first, x.shape), 0)],
    }


@pytest.mark.slow
@pytest.mark.parametrize("partitionable", [True, False])
@pytest.mark.parametrize("count", [2, 4])
def test_random_numbers_are_one_devices(count: int, partitionable: bool) -> None:
    with jax.threefry_partitionable(partitionable):
        _check(_random, np.array([3, 4], "uint32"), _normal(1, 8, 3), count, tolerance=0.0)


def test_each_replica_draws_its_own_part_of_a_mask() -> None:
    """Of the numbers that one device draws; the sorted ones must be drawn whole."""

    def step(key: Any, x: Any) -> Any:
        return x * jax.random.uniform(jax.random.wrap_key_data(key), x.shape)

    found = _planned(step, np.array([3, 4], "uint32"), np.ones((8, 3)))
    drawn = [s for stage in found._plan.stages for s in stage.steps if s.equation.primitive.name == "iota_2x32_shape"]
    assert [s.decision.outs[0].axis for s in drawn] == [0]


def test_losses_that_compare_examples() -> None:
    def loss(w: Any, data: Any) -> Any:
        z = jnp.tanh(data["x"] @ w)
        similar = z @ z.T
        same = (data["y"][:, None] == data["y"][None, :]).astype(z.dtype)
        both = jnp.concatenate([z, -z])
        return jnp.mean(jax.nn.logsumexp(similar, 1) - (same * similar).mean(0)) + jnp.mean((both @ both.T) ** 2)

    data = {"x": _normal(0, 8, 5), "y": _numbers(1, 3, 8)}
    _check(jax.value_and_grad(loss), _normal(2, 5, 3), data, 4)


def test_data_without_axes_is_whole() -> None:
    data = {"x": _normal(0, 4, 3), "weight": np.float64(3.0), "nothing": None}
    _check(lambda w, d: (d["x"] * d["weight"] + w).sum(0), 2.0 * np.ones(3), data, 2)


@pytest.mark.parametrize("count", [2, 4])
def test_values_in_half_precision_keep_their_type(count: int) -> None:
    def step(w: Any, x: Any) -> Any:
        half = x.astype("bfloat16")
        return (half @ w.astype("bfloat16")).sum(0), half.T @ half, half.mean(), (half > 0).sum(0, dtype="int8")

    w, x = _normal(0, 3, 2).astype("float32"), _normal(1, 8, 3).astype("float32")
    expected, found, _ = both(lambda w, x: (step(w, x), w), w, x, count)
    assert_equal(found, expected, 2e-2)


def _device_random(total: Any) -> Any:
    return total + lax.rng_uniform(0.0, 1.0, (3,))


_HERE = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "prints": lambda w, x: (jax.debug.print("{}", x.sum()), x.sum())[1],
    "calls back": lambda w, x: jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct((3,), "float64"), w),
    "random numbers of the device": lambda w, x: _device_random(x.sum(0)),
    "in a loop": lambda w, x: lax.fori_loop(0, 2, lambda i, c: _device_random(c), w),
    "says where it lies": lambda w, x: lax.with_sharding_constraint(x, _HERE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_divided_stays_whole(name: str) -> None:
    with float64():
        step = REFUSED[name]
        assert partition(lambda w, x: (step(w, x), w), np.ones(3), np.ones((4, 3)), replicas(2)) is None


@pytest.mark.parametrize(
    ("step", "shape"),
    [
        # Every example against every other one, of many that are small: 16 times the batch.
        (lambda w, x: jnp.sum(jnp.tanh(x @ x.T).T * jnp.tanh(x @ x.T)), (1024, 2)),
        # Work that every replica would do on the whole batch.
        (lambda w, x: jnp.sort(x, 0).sum(), (1024, 512)),
    ],
)
def test_what_would_cost_too_much_stays_whole(step: Any, shape: tuple[int, ...]) -> None:
    small = (4, shape[1])
    for given_shape, divides in ((shape, False), (small, True)):
        x = np.ones(given_shape, "float32")
        found = partition(lambda w, x: (step(w, x), w), np.ones(3, "float32"), x, replicas(2))
        assert (found is not None) is divides


def test_an_uneven_batch_stays_whole() -> None:
    assert partition(lambda w, x: (x.sum(), w), np.ones(3, "float32"), np.ones((5, 3), "float32"), replicas(2)) is None


def test_one_replica_stays_whole() -> None:
    assert partition(lambda w, x: (x.sum(), w), np.ones(3, "float32"), np.ones((4, 3), "float32"), replicas(1)) is None


def test_a_sum_is_taken_once_whoever_needs_it() -> None:
    """By what adds to it, and by what needs it whole; and not where numbers are added that all replicas know."""

    def step(w: Any, x: Any) -> Any:
        gradient = x.T @ (x @ w)
        return gradient + 0.1 * w, gradient * gradient, gradient / 2.0, -gradient, gradient.sum()

    found = _check(step, _normal(0, 3, 2), _normal(1, 4, 3), 2)
    assert found.sums == (1,)


def test_sums_of_sums_are_one_sum() -> None:
    """A table that is used twice: its gradient is exchanged once."""

    def loss(table: Any, ids: Any) -> Any:
        hidden = table[ids].mean(1) * 3.0
        return jnp.mean(jax.nn.logsumexp(hidden @ table.T, 1))

    found = _check(jax.value_and_grad(loss), _normal(0, 6, 4), _numbers(1, 6, 4, 3), 2)
    assert found.sums == (2,)


def test_sums_are_taken_as_late_as_possible() -> None:
    """What only the end needs goes together with what the end waits for."""

    def step(w: Any, x: Any) -> Any:
        early = x.sum(0)
        centred = x - x.mean(0)
        scaled = centred / jnp.sqrt((centred**2).mean(0))
        return early * w, scaled.max(1).sum()

    found = _check(step, _normal(0, 3), _normal(1, 4, 3), 2)
    # The sum for the mean is the early one; the mean's comes first, then the variance's.
    assert found.sums == (1, 1, 1)


def test_gradients_are_summed_as_the_weights_lie() -> None:
    """Differentiation makes a kernel's gradient transposed, and turns it: XLA does so in the product, not in a sum."""

    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w))

    found = _planned(lambda w, x: jax.grad(loss)(w, x), np.ones((3, 5)), np.ones((4, 3)))
    (stage,) = [s for s in found._plan.stages if s.sums]
    assert [v.aval.shape for v in stage.sums] == [(3, 5)]


def test_sums_that_are_used_in_two_ways_are_taken_as_they_are_made() -> None:
    def step(w: Any, x: Any) -> Any:
        gradient = x.T @ (x @ w)
        return gradient.T * 2.0, gradient * gradient

    assert _check(step, _normal(0, 3, 2), _normal(1, 4, 3), 2).sums == (1,)


def test_gradients_of_the_first_layers_come_first() -> None:
    """As `Reduction` expects it: it takes them from the last, which is ready first."""

    def loss(w: Any, x: Any) -> Any:
        for kernel in w:
            x = jnp.tanh(x @ kernel)
        return jnp.sum(x)

    w = [np.ones((2, 3)), np.ones((3, 4)), np.ones((4, 5))]
    found = _planned(lambda w, x: jax.grad(loss)(w, x), w, np.ones((4, 2)))
    (stage,) = [s for s in found._plan.stages if s.sums]
    assert [sorted(v.aval.shape) for v in stage.sums] == [[2, 3], [3, 4], [4, 5]]
