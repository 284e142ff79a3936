"""Tables' gradients are summed by rows where the batch's rows are fewer, with one device's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu.partitioner.divided import assert_equal, both, compiled, divided, float64

_ROWS, _WIDTH = 64, 3
Loss = Callable[[Any, Any], Any]


def _step(loss: Loss) -> Callable[[Any, Any], tuple[Any, Any]]:
    return lambda table, batch: (loss(table, batch), table - 0.1 * jax.grad(loss)(table, batch))


def _table(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(_ROWS, _WIDTH))


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, _ROWS, shape).astype("int32")


def _shapes_of_sums(loss: Loss, batch: Any, count: int = 2) -> list[tuple[int, ...]]:
    """Returns the shapes of what replicas sum, all in one call."""
    with float64():
        found = divided(_step(loss), _table(), batch, count)
    (stage,) = [stage for stage in found._plan.stages if stage.sums]
    return sorted(value.aval.shape for value in stage.sums)


def _squares(table: Any, numbers: Any) -> Any:
    return jnp.sum(table[numbers] ** 2)


def _twice(table: Any, numbers: Any) -> Any:
    return jnp.sum(table[numbers[:, 0]] * table[numbers[:, 1]])


def _filled(table: Any, numbers: Any) -> Any:
    return jnp.sum(jnp.take(table, numbers, axis=0, mode="fill", fill_value=0.5) ** 2)


def _clipped(table: Any, numbers: Any) -> Any:
    return jnp.sum(jnp.take(table, numbers, axis=0, mode="clip") ** 3)


@pytest.mark.parametrize(
    ("loss", "rows"),
    [(_squares, [(8,)]), (_twice, [(4,), (4,)])],
    ids=["once", "twice"],
)
def test_rows_are_summed(loss: Loss, rows: list[tuple[int, ...]]) -> None:
    """With the loss, in one call; what is summed has the size of the batch, whatever the size of the table."""
    sizes = [np.prod(shape) for shape in _shapes_of_sums(loss, _numbers(4, 2))]
    assert sorted(sizes) == sorted([1, *(n for (count,) in rows for n in (count, count * _WIDTH))])


def test_many_rows_are_summed_as_a_table() -> None:
    assert (_ROWS, _WIDTH) in _shapes_of_sums(_squares, _numbers(32, 4))


def test_what_is_divided_along_the_width_is_not_summed() -> None:
    """Examples that lie along the width of a table, not among its lookups, stay each replica's own."""

    def gradient(_: Any, batch: Any) -> tuple[Any, Any]:
        return jax.grad(lambda x: jnp.sum(x.T[jnp.array([3, 1])] ** 2))(batch), ()

    batch = np.random.default_rng(0).normal(size=(4, 64))
    with float64():
        expected, found, how = both(gradient, (), batch, 2)
        assert_equal(found, expected, 0)
    assert how.calls == 0


@pytest.fixture(scope="module")
def programs() -> dict[str, Any]:
    """Compiles one device's step and that of four replicas, for each kind of lookup."""
    made: dict[str, Any] = {}
    for loss in (_squares, _twice, _filled, _clipped):
        step, batch = _step(loss), _numbers(4, 2)
        with float64():
            how = divided(step, _table(), batch, 4)
            assert (_ROWS, _WIDTH) not in {v.aval.shape for s in how._plan.stages for v in s.sums}
            made[loss.__name__] = jax.jit(step), compiled(how, batch, 4)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["_squares", "_twice", "_filled", "_clipped"])
@given(
    numbers=st.lists(st.integers(-_ROWS - 2, _ROWS + 2), min_size=8, max_size=8),
    table=st.sampled_from([0, 1]),
)
def test_any_numbers(programs: dict[str, Any], loss: str, numbers: list[int], table: int) -> None:
    """Rows are added in one device's order: the same bits, also of rows that several replicas have looked up."""
    one, four = programs[loss]
    batch = np.asarray(numbers, np.int32).reshape(4, 2)
    with float64():
        expected, found = (run(_table(table), batch) for run in (one, four))
    np.testing.assert_array_equal(found[1], expected[1])
    assert_equal(found[0], expected[0], 1e-12)
