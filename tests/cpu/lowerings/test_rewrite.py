"""The rewriting of programs, and the setting that switches it off."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxpr_as_fun

from lockstep._cpu.backend import VARIABLE, are_lowerings_enabled
from lockstep._cpu.lowerings.rewrite import RULES, rewrite
from lockstep.errors import ArgumentError
from tests.cpu.lowerings.both import differs, random

X = random((2, 8, 8, 4), "float32", 0)


def _pooled(x: Any) -> Any:
    return lax.reduce_window(x, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


@pytest.mark.parametrize("value,expected", [(None, True), ("", True), ("1", True), ("0", False)])
def test_the_setting(monkeypatch: pytest.MonkeyPatch, value: str | None, expected: bool) -> None:
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    assert are_lowerings_enabled() is expected


@pytest.mark.parametrize("value", ["off", "true", "2", " 1"])
def test_any_other_setting_is_an_error(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(ArgumentError, match="must be 1") as caught:
        are_lowerings_enabled()
    assert repr(value) in str(caught.value)


def test_a_program_without_such_operations_is_the_same_object() -> None:
    jaxpr = jax.make_jaxpr(lambda x: lax.scan(lambda c, v: (jnp.tanh(c + v), jnp.where(v > 0, c, v)), x, x[None]))(
        X[0, 0]
    )
    assert rewrite(jaxpr) is jaxpr


def test_a_function_that_is_called_twice_is_rewritten_once() -> None:
    inner = jax.jit(_pooled)
    jaxpr = rewrite(jax.make_jaxpr(lambda x: (inner(x), inner(-x)))(X))
    one, other = [eqn.params["jaxpr"] for eqn in jaxpr.jaxpr.eqns if "jaxpr" in eqn.params]
    assert one is other
    assert "reduce_window" not in str(one)


def test_equal_operations_share_a_call() -> None:
    jaxpr = rewrite(jax.make_jaxpr(lambda x: (_pooled(x), _pooled(-x), _pooled(x[:1])))(X))
    # It stays one in the program that is compiled, which jax traces from this one.
    traced = jax.make_jaxpr(jaxpr_as_fun(jaxpr))(X)
    one, other, smaller = [eqn.params["jaxpr"] for eqn in traced.jaxpr.eqns if "jaxpr" in eqn.params]
    assert one is other
    assert smaller is not one


def test_operations_are_rewritten_while_jit_is_switched_off() -> None:
    with jax.disable_jit():
        assert "reduce_window" not in str(rewrite(jax.make_jaxpr(_pooled)(X)))


def test_only_programs_that_go_through_it_change() -> None:
    before = jax.jit(lambda x: _pooled(x)).lower(X).as_text()
    assert differs(_pooled, X)
    assert jax.jit(lambda x: _pooled(x)).lower(X).as_text() == before


def test_rules_look_at_shapes_only() -> None:
    """The processes of a cluster must compile the same program."""
    aval = jax.core.ShapedArray((2, 4, 4, 3), np.dtype("float32"))
    params = {"select_prim": jax.lax.ge_p, "window_dimensions": (1, 2, 2, 1), "window_strides": (1, 2, 2, 1)}
    source = jax.core.ShapedArray((2, 2, 2, 3), np.dtype("float32"))
    rule = RULES[jax.lax.select_and_scatter_add_p]
    compute = rule(source, aval, padding=((0, 0),) * 4, **params)
    assert compute is not None
    assert jax.eval_shape(compute, source, aval).shape == aval.shape
