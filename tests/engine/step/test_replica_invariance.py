"""What varies between replicas, by the flow of data: what is said to be equal is equal."""

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
from jax.sharding import PartitionSpec

import lockstep as ls
from lockstep._engine.step import replica_invariance
from lockstep._engine.step.replicas import AXIS

COUNT = 4
Function = Callable[..., Any]


def told(function: Function, *own: bool) -> list[bool]:
    """What `varying` says of a function of arrays of shape (3,)."""
    record = jax.make_jaxpr(function, axis_env=[(AXIS, COUNT)])(*[jnp.ones(3)] * len(own))
    return replica_invariance.find_varying(record, own, AXIS)


def _psum(x: Any) -> Any:
    return lax.psum(x, AXIS)


@jax.custom_vjp
def _own_rule(x: Any) -> Any:
    return _psum(x)


_own_rule.defvjp(lambda x: (_psum(x), None), lambda _, g: (_psum(g),))


EQUAL: dict[str, Function] = {
    "psum": _psum,
    "pmean": lambda x: lax.pmean(x, AXIS),
    "pmax": lambda x: lax.pmax(x, AXIS),
    "all_gather": lambda x: lax.all_gather(x, AXIS),
    "jit": jax.jit(_psum),
    "nested jit": jax.jit(lambda x: jax.jit(_psum)(x) + 1),
    "remat": jax.checkpoint(_psum),
    "custom rule": _own_rule,
    "marked": replica_invariance.mark_invariant,
    "gradient": jax.grad(lambda x: (_psum(x) ** 2).sum()),
    "scan": lambda x: lax.scan(lambda c, v: (c + _psum(v), c), 0.0, x),
    "cond on what is equal": lambda x: lax.cond(_psum(x).sum() > 0, lambda v: _psum(v), lambda v: v * 0, _psum(x)),
    "random numbers": lambda x: jax.random.normal(jax.random.key(0), (3,)) * _psum(x),
}
VARIES: dict[str, Function] = {
    "itself": lambda x: x,
    "axis_index": lambda x: lax.axis_index(AXIS),
    "sums in groups": lambda x: lax.psum(x, AXIS, axis_index_groups=[[0, 1], [2, 3]]),
    "ppermute": lambda x: lax.ppermute(_psum(x), AXIS, [(0, 1)]),
    "reduce_scatter": lambda x: lax.psum_scatter(jnp.tile(_psum(x), 4), AXIS, tiled=True),
    "carried": lambda x: lax.scan(lambda c, _: (c + x, c * 0), jnp.zeros(3), None, length=3)[0],
    "carried, later": lambda x: lax.fori_loop(0, 3, lambda i, c: (c[1], x), (jnp.zeros(3), jnp.zeros(3)))[0],
    "as often as differs": lambda x: lax.while_loop(lambda c: c < x[0], lambda c: c + 1.0, 0.0),
    "branch": lambda x: lax.cond(x[0] > 0, lambda: 1.0, lambda: 2.0),
    "number in a loop": lambda x: lax.fori_loop(0, 2, lambda i, c: c + lax.axis_index(AXIS), 0),
    "jit": jax.jit(lambda x: x + _psum(x)),
    "own gradient": jax.grad(lambda x: (_psum(x) * x**3).sum()),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal(name: str) -> None:
    assert not any(told(EQUAL[name], True))


@pytest.mark.parametrize("name", VARIES)
def test_varies(name: str) -> None:
    assert all(told(VARIES[name], True))


def test_outputs_are_told_apart() -> None:
    assert told(lambda x, y: (x + 1, y, x + y, _psum(y) + x), False, True) == [False, True, True, False]


def test_what_is_asked_for_is_noted() -> None:
    def function(x: Any) -> Any:
        return replica_invariance.probe(x, "own"), jax.jit(lambda v: replica_invariance.probe(_psum(v), "sum"))(x)

    notes: dict[str, bool] = {}
    replica_invariance.find_varying(jax.make_jaxpr(function, axis_env=[(AXIS, COUNT)])(1.0), [True], AXIS, notes)
    assert notes == {"own": True, "sum": False}


STEPS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: _psum(a) - b,
    lambda a, b: lax.pmax(a * b, AXIS),
    lambda a, b: lax.all_gather(a, AXIS)[1] + 0 * b,
    lambda a, b: a * lax.axis_index(AXIS),
    lambda a, b: lax.ppermute(b, AXIS, [(i, (i + 1) % COUNT) for i in range(COUNT)]),
    lambda a, b: lax.fori_loop(0, 2, lambda i, c: c * 0.5 + a, b),
    lambda a, b: lax.scan(lambda c, v: (c + v, None), 0.0, _psum(a))[0] + b,
    lambda a, b: lax.cond(a[0] > b[0], lambda: a, lambda: b),
    lambda a, b: jax.grad(lambda v: (_psum(v * b) * v).sum())(a),
    lambda a, b: jax.jit(lambda v: jnp.sort(v) * 2)(a),
    lambda a, b: replica_invariance.mark_invariant(_psum(b)),
]


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from(range(len(STEPS))), st.integers(0, 9), st.integers(0, 9)), max_size=6),
)
@settings(max_examples=20)
def test_what_is_said_to_be_equal_is(plan: list[tuple[int, int, int]]) -> None:
    def function(own: Any, whole: Any) -> list[Any]:
        values = [own, whole]
        for step, a, b in plan:
            values.append(STEPS[step](values[a % len(values)], values[b % len(values)]))
        return values

    own = jnp.asarray(np.random.default_rng(0).normal(size=(COUNT, 3)).astype("float32"))
    whole = jnp.arange(3.0)
    record = jax.make_jaxpr(function, axis_env=[(AXIS, COUNT)])(whole, whole)
    varies = replica_invariance.find_varying(record, [True, False], AXIS)
    mesh, spec = ls.distribute.MirroredStrategy()._replicas.mesh, PartitionSpec(AXIS)
    run = jax.shard_map(
        lambda own, whole: [v[None] for v in function(own[0], whole)],
        mesh=mesh,
        in_specs=(spec, PartitionSpec()),
        out_specs=spec,
        check_vma=False,
    )
    for of_each, differs in zip(jax.jit(run)(own, whole), varies, strict=True):
        rows = np.asarray(of_each)
        assert differs or all(np.array_equal(row, rows[0], equal_nan=True) for row in rows)
