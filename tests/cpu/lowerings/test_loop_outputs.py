"""Checks loops that write what they stack into arrays nobody has filled: the numbers stay XLA's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from lockstep._cpu.lowerings import loop_outputs
from tests.cpu.lowerings.both import assert_same, differs, lowered, random

LARGE = random((8, 512, 512), "float32", 0)


def loop(x: Any, reverse: bool = False, unroll: int = 1) -> Any:
    """Scans rows; stacks what is carried, what is read, a number, and another type."""

    def cell(state: Any, row: Any) -> Any:
        state = jnp.tanh(state + row)
        return state, (state, row, 1.5, state > 0)

    return lax.scan(cell, jnp.zeros_like(x[0]), x, reverse=reverse, unroll=unroll)


def gradient(x: Any) -> Any:
    """Returns a gradient through what is stacked, for which the loop saves what each round needs on the way back."""
    return jax.grad(lambda x: (loop(x)[1][0] ** 2).sum())(x)


@pytest.mark.slow
@given(st.integers(1, 6), st.integers(0, 3), st.booleans())
def test_results_are_the_same(rounds: int, columns: int, reverse: bool) -> None:
    x = random((rounds, 2, columns), "float32", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_outputs, "_LEAST_BYTES", 0)
        assert_same(lambda x: loop(x, reverse), x, exact=True)
        assert_same(lambda x: jax.vmap(gradient)(jnp.stack([x, -x])), x)


def test_a_gradient_copies_no_zeros() -> None:
    compiled = [lowered(gradient, LARGE, ours=ours).compile().as_text() for ours in (False, True)]
    copies = [sum("f32[8,512,512]" in line and " copy(" in line for line in text.splitlines()) for text in compiled]
    assert copies[0] > copies[1] == 0
    assert loop_outputs.NAME in compiled[1]


@pytest.mark.parametrize("f", [lambda x: loop(x[:, :16]), lambda x: loop(x, unroll=2)], ids=["small", "unrolled"])
def test_other_loops_stay(f: Any) -> None:
    assert not differs(f, LARGE)


def test_keys_of_random_numbers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_outputs, "_LEAST_BYTES", 0)

    def keys(x: Any) -> Any:
        found = lax.scan(lambda key, _: (jax.random.split(key)[0], key), jax.random.key(0), x)[1]
        return jax.random.key_data(found)

    assert_same(keys, LARGE[:, 0, 0], exact=True)


def test_a_loop_without_inputs_or_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_outputs, "_LEAST_BYTES", 0)
    assert_same(lambda x: lax.scan(lambda _, row: (None, row * 2), None, x)[1], LARGE[0], exact=True)
    assert_same(lambda x: lax.scan(lambda s, _: (s * 2, s), x, length=3), LARGE[0, 0], exact=True)
