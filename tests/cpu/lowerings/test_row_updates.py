"""Updates of tables by rows: taken where rows depend on their own gradients alone, and equal to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep as ls
from lockstep._cpu.backend import VARIABLE
from lockstep._cpu.lowerings import rewrite, row_updates
from tests.cpu.lowerings.both import assert_same, lowered, python_environment, random

_ROWS, _WIDTH = 40_000, 8
_ARITHMETIC = ("subtract ", "multiply ", "divide ", "sqrt ")
Step = Callable[..., Any]


def _is_by_rows(step: Step, *operands: Any) -> bool:
    """Returns whether no operation is left that makes a whole table of numbers."""
    table = f"tensor<{'x'.join(map(str, operands[0].shape))}x"
    text = lowered(step, *operands, ours=True).as_text()
    return not any(f"stablehlo.{name}" in line and table in line for line in text.splitlines() for name in _ARITHMETIC)


def _adds_to_rows_alone(step: Step, *operands: Any) -> bool:
    """Returns whether no gradient is left that is as large as the table: rows are added to fewer rows."""
    table = f"tensor<{'x'.join(map(str, operands[0].shape))}x"
    lines = lowered(step, *operands, ours=True).as_text().splitlines()
    starts = [number for number, line in enumerate(lines) if "stablehlo.scatter" in line]
    scatters = ["".join(lines[start : start + 5]) for start in starts]
    assert scatters
    return not any("stablehlo.add" in text and table in text for text in scatters)


def _step(update: Callable[..., Any], look_up: Callable[..., Any] | None = None) -> Step:
    def step(table: Any, slot: Any, places: Any, target: Any) -> Any:
        def loss(table: Any) -> Any:
            return jnp.sum(((look_up or _take)(table, places) - target) ** 2)

        return update(table, slot, jax.grad(loss)(table))

    return step


def _take(table: Any, places: Any) -> Any:
    return jnp.take(table, places, 0)


def _adagrad(table: Any, slot: Any, gradient: Any) -> Any:
    slot = slot + gradient**2
    return table - 0.1 * gradient / jnp.sqrt(slot + 1e-7), slot


def _operands(count: int = 24, dtype: str = "float32", shape: tuple[int, ...] = (_ROWS, _WIDTH)) -> list[Any]:
    places = np.random.default_rng(0).integers(0, shape[0], count, np.int32)
    places[: count // 3] = 7
    return [random(shape, dtype, 0), np.abs(random(shape, dtype, 1)), places, random(shape[1:], dtype, 2)]


# Of the table, its slot and the gradient; rows without gradient stay as they are.
_BY_ROWS: dict[str, Callable[..., Any]] = {
    "adagrad": _adagrad,
    "sgd": lambda t, s, g: (t - 0.1 * g, s),
    "clipped": lambda t, s, g: _adagrad(t, s, jnp.clip(g, -0.5, 0.5)),
    "one of two": lambda t, s, g: jax.tree.map(
        lambda new, old: jnp.where(s[0, 0] > 0, new, old), _adagrad(t, s, g), (t, s)
    ),
    "scaled by a function": lambda t, s, g: (t - jax.jit(lambda v: v * 0.1 + 0.0)(g), s),
    "summed too": lambda t, s, g: (t - 0.1 * g, s, jnp.sum(t - 0.1 * g)),
}


def _adam(table: Any, slot: Any, gradient: Any) -> Any:
    mean, square = slot + (gradient - slot) * 0.1, slot + (gradient**2 - slot) * 0.01
    return table - 0.1 * mean / (jnp.sqrt(jnp.abs(square)) + 1e-7), mean, square


# Rows without gradient change, too.
_MOVING: dict[str, Callable[..., Any]] = {
    "momentum": lambda t, s, g: (t - (0.9 * s + g), 0.9 * s + g),
    "nesterov": lambda t, s, g: (t - (0.9 * (0.9 * s + g) + g), 0.9 * s + g),
    "decay": lambda t, s, g: (t - 0.1 * (g + 0.01 * t), s),
    "decay before": lambda t, s, g: (t * 0.99 - 0.1 * g, s),
    "exponential": lambda t, s, g: (t - jnp.exp(g), s),
    "adam": _adam,
    "adam, clipped": lambda t, s, g: _adam(t, s, jnp.clip(g, -0.5, 0.5)),
    "adam, one of two": lambda t, s, g: jax.tree.map(
        lambda new, old: jnp.where(s[0, 0] > 0, new, old), _adam(t, s, g), (t, s, s)
    ),
}
_WHOLE: dict[str, Callable[..., Any]] = {
    "norm": lambda t, s, g: (t - 0.1 * g / jnp.sqrt(jnp.sum(g**2)), s),
    "gradient": lambda t, s, g: (t - 0.1 * g, g),
    "sums of columns": lambda t, s, g: (t - 0.1 * g, s, jnp.sum(g, 0)),
    "no table": lambda t, s, g: (t, jnp.exp(g)),
}


@pytest.mark.slow
@pytest.mark.parametrize("update", _BY_ROWS.values(), ids=_BY_ROWS)
def test_by_rows(update: Callable[..., Any]) -> None:
    step, operands = _step(update), _operands()
    assert _is_by_rows(step, *operands)
    assert_same(step, *operands, exact=True)


@pytest.mark.slow
@pytest.mark.parametrize("update", _MOVING.values(), ids=_MOVING)
def test_rows_that_move_without_a_gradient_are_not_given_one(update: Callable[..., Any]) -> None:
    step, operands = _step(update), _operands(shape=(4 * _ROWS, _WIDTH))
    assert _adds_to_rows_alone(step, *operands)
    assert_same(step, *operands, exact=True)
    # They gain less.
    assert not _adds_to_rows_alone(step, *_operands())


@pytest.mark.slow
def test_rows_that_move_are_updated_in_place() -> None:
    operands = _operands(shape=(4 * _ROWS, _WIDTH))

    def loop(table: Any, slot: Any, places: Any, target: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            table, mean, square = carry
            gradient = jax.grad(lambda t: jnp.sum((_take(t, places) - target) ** 2))(table)
            mean, square = mean + (gradient - mean) * 0.1, square + (gradient**2 - square) * 0.01
            return (table - 0.1 * mean / (jnp.sqrt(square) + 1e-7), mean, square), None

        return jax.lax.scan(body, (table, slot, slot), None, length=3)[0]

    compiled = lowered(loop, *operands, ours=True).compile()
    copies = [
        line for line in compiled.as_text().splitlines() if " copy(" in line and f"[{4 * _ROWS},{_WIDTH}]" in line
    ]
    # What comes in is not given away here: one for each table.
    assert len(copies) <= 3
    assert_same(loop, *operands, exact=True)


@pytest.mark.parametrize("update", _WHOLE.values(), ids=_WHOLE)
def test_whole_where_rows_depend_on_each_other(update: Callable[..., Any]) -> None:
    step, operands = _step(update), _operands(shape=(4 * _ROWS, _WIDTH))
    assert not _adds_to_rows_alone(step, *operands)
    assert_same(step, *operands)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(400_000,), (300_000, 1), (20_000, 4, 6)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tables_of_any_rank(shape: tuple[int, ...], dtype: str) -> None:
    step, operands = _step(_adagrad), _operands(dtype=dtype, shape=shape)
    assert _is_by_rows(step, *operands)
    assert_same(step, *operands, exact=dtype == "float32")


def test_small_tables_and_many_lookups_stay_whole() -> None:
    step = _step(_adagrad)
    assert not _is_by_rows(step, *_operands(shape=(1_000, 8)))
    assert not _is_by_rows(step, *_operands(count=8_000))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fill", "clip", "wrap"])
def test_numbers_beyond_the_table(mode: str) -> None:
    step = _step(_adagrad, lambda table, places: jnp.take(table, places, 0, mode=mode, fill_value=0.0))
    operands = _operands()
    operands[2][4:10] = [-1, -_ROWS, -_ROWS - 1, _ROWS, _ROWS + 5, 2**31 - 1]
    assert _is_by_rows(step, *operands)
    assert_same(step, *operands, exact=True)


def test_a_number_of_lookups_that_is_not_known_is_left_alone() -> None:
    table, slot, _, target = _operands()
    (count,) = jax.export.symbolic_shape("n")
    places = jax.ShapeDtypeStruct((count,), np.int32)
    jaxpr = jax.make_jaxpr(_step(_adagrad))(table, slot, places, target)
    assert row_updates.update_rows(jaxpr) is jaxpr


@pytest.mark.slow
def test_a_table_that_is_looked_up_twice() -> None:
    step = _step(_adagrad, lambda table, places: _take(table, places) * _take(table, places[::-1] // 2))
    operands = _operands()
    assert _is_by_rows(step, *operands)
    assert_same(step, *operands, exact=True)


@pytest.mark.slow
def test_two_tables_of_one_shape() -> None:
    def step(first: Any, second: Any, places: Any, target: Any) -> Any:
        def loss(tables: Any) -> Any:
            return jnp.sum((_take(tables[0], places) * _take(tables[1], places + 1) - target) ** 2)

        gradients = jax.grad(loss)((first, second))
        return [t - 0.1 * g for t, g in zip((first, second), gradients, strict=True)]

    operands = _operands()
    assert _is_by_rows(step, *operands)
    assert_same(step, *operands, exact=True)


@pytest.fixture(scope="module")
def compiled() -> list[Any]:
    return [lowered(_step(_adagrad), *_operands(), ours=ours).compile() for ours in (False, True)]


@pytest.mark.slow
@given(st.lists(st.sampled_from([-_ROWS - 2, -_ROWS, -1, 0, 1, 2, 3, _ROWS - 1, _ROWS]), min_size=24, max_size=24))
def test_any_numbers(compiled: list[Any], places: list[int]) -> None:
    table, slot, _, target = _operands()
    expected, found = (run(table, slot, np.asarray(places, np.int32), target) for run in compiled)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


def _one_device() -> ls.distribute.Strategy:
    return ls.distribute.OneDeviceStrategy("/cpu:0")


def _trained(strategy: ls.distribute.Strategy, optimizer: Any) -> list[np.ndarray]:
    quiet: Any = 0
    keras.utils.set_random_seed(0)
    with strategy.scope():
        layers = [keras.Input((3,)), keras.layers.Embedding(4 * _ROWS, _WIDTH), keras.layers.Flatten()]
        model = keras.Sequential([*layers, keras.layers.Dense(1)])
        model.compile(optimizer, "mse")
    random = np.random.default_rng(0)
    x, y = random.integers(0, 4 * _ROWS, (32, 3)), random.random((32, 1))
    x[:5] = 7
    model.fit(x, y, batch_size=8, epochs=2, verbose=quiet)
    return [np.asarray(w) for w in model.get_weights()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "by_rows"),
    [
        (keras.optimizers.Adagrad(0.1), True),
        (keras.optimizers.Adagrad(0.1, clipvalue=0.01), True),
        (keras.optimizers.SGD(0.1), True),
        (keras.optimizers.SGD(0.1, momentum=0.9), True),
        (keras.optimizers.SGD(0.1, weight_decay=0.01), True),
        (keras.optimizers.Adagrad(0.1, global_clipnorm=1.0), False),
        (keras.optimizers.Adam(0.1), True),
        (keras.optimizers.AdamW(0.1, amsgrad=True), True),
        (keras.optimizers.RMSprop(0.1, momentum=0.9, centered=True), True),
        (keras.optimizers.Lion(0.01), True),
        (keras.optimizers.Ftrl(0.1), True),
        (keras.optimizers.Adafactor(0.1), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_optimizers_of_keras(optimizer: Any, by_rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[bool] = []

    def update_rows(jaxpr: Any) -> Any:
        made = row_updates.update_rows(jaxpr)
        changed.append(made is not jaxpr)
        return made

    for name in ("LOCAL_PASSES", "LIBRARY_PASSES"):
        passes = getattr(rewrite, name)
        assert row_updates.update_rows in passes
        watched = tuple(update_rows if each is row_updates.update_rows else each for each in passes)
        monkeypatch.setattr(rewrite, name, watched)
    settings = optimizer.get_config()
    ours = _trained(_one_device(), type(optimizer).from_config(settings))
    assert changed
    assert any(changed) is by_rows
    if by_rows:
        with python_environment({VARIABLE: "0"}):
            theirs = _trained(_one_device(), type(optimizer).from_config(settings))
        for value, expected in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(value, expected)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_replicas_follow_one_device(optimizer: str) -> None:
    """Several update the whole table, one some rows."""
    one, four = (_trained(strategy, optimizer) for strategy in (_one_device(), ls.distribute.MirroredStrategy()))
    for value, expected in zip(four, one, strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-6, atol=2e-7)
