"""Replicas one after the other in one program do what they do together, and more: their shares may differ in size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from lockstep._engine.step import sequential_emulation
from lockstep._engine.step.replicas import AXIS
from lockstep.errors import ArgumentError, UnsupportedError

COUNT = 4
REPLICAS = ls.distribute.MirroredStrategy()._replicas
SHARES = [(jnp.arange(3.0) + i,) for i in range(COUNT)]


def _emulate(function: Callable[..., Any], shards: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Returns what each replica's function returns for its shard."""
    jaxprs, structure = sequential_emulation.trace_replicas(function, shards, ())
    results = sequential_emulation.evaluate(jaxprs, [jax.tree.leaves(shard) for shard in shards])
    return [jax.tree.unflatten(structure, leaves) for leaves in results]


def _index(x: Any) -> Any:
    return lax.axis_index(AXIS)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sums": lambda x: {"a": lax.psum(x, AXIS), "b": lax.pmean(x.sum(), AXIS)},
    "extremes": lambda x: (lax.pmax(x, AXIS), lax.pmin(x, AXIS)),
    "gathered": lambda x: (lax.all_gather(x, AXIS), lax.all_gather(x, AXIS, axis=0, tiled=True)),
    "moved": lambda x: lax.ppermute(x, AXIS, [(0, 1), (1, 2)]),
    "scattered": lambda x: lax.psum_scatter(jnp.tile(x, 4), AXIS, tiled=True),
    "numbers": lambda x: (_index(x), lax.fori_loop(0, 3, lambda i, c: c + _index(x), 0), lax.axis_size(AXIS)),
    "numbers in branches": lambda x: lax.cond(x[0] > 0, lambda: _index(x) + 1, lambda: _index(x) - 1),
    "jit": jax.jit(lambda x: jax.jit(lambda v: lax.psum(v, AXIS))(x) * 2 + x),
    "gradients": jax.grad(lambda x: (lax.psum(x, AXIS) ** 2 * (1.0 + _index(x))).sum()),
    "remat": jax.grad(jax.checkpoint(lambda x: jnp.sin(lax.psum(x, AXIS)).sum())),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_as_together(name: str) -> None:
    function = FUNCTIONS[name]
    found = jax.jit(lambda shares: _emulate(function, shares))(SHARES)
    spec = PartitionSpec(AXIS)
    run = jax.shard_map(
        lambda x: jax.tree.map(lambda v: jnp.asarray(v)[None], function(x[0])),
        mesh=REPLICAS.mesh,
        in_specs=spec,
        out_specs=spec,
        check_vma=False,
    )
    expected = jax.jit(run)(jnp.stack([s[0] for s in SHARES]))
    for i in range(COUNT):
        jax.tree.map(
            lambda e, f: np.testing.assert_allclose(f, e[i], rtol=1e-6),  # noqa: B023
            expected,
            found[i],
        )


def test_what_is_no_collective_cannot_meet() -> None:
    def function(x: Any) -> Any:
        return lax.psum(x, AXIS) if x.shape[0] > 2 else lax.pmax(x, AXIS)

    with pytest.raises(ArgumentError, match=r"same collectives.*replica 0: psum; replica 1: pmax.*size of a share"):
        _emulate(function, [(jnp.ones(3),), (jnp.ones(2),)])
    with pytest.raises(ArgumentError, match="replica 1: nothing more"):
        _emulate(lambda x: lax.psum(x, AXIS) if len(x) > 2 else x, [(jnp.ones(3),), (jnp.ones(2),)])
    with pytest.raises(ArgumentError, match=r"must have one shape\. Received: \[\(3,\), \(2,\)\] in psum"):
        _emulate(lambda x: lax.psum(x, AXIS), [(jnp.ones(3),), (jnp.ones(2),)])
    with pytest.raises(ArgumentError, match="must return the same structure"):
        _emulate(lambda x: x if len(x) > 2 else (x,), [(jnp.ones(3),), (jnp.ones(2),)])


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x: lax.fori_loop(0, 2, lambda i, c: lax.psum(c, AXIS), 1.0), "inside of a loop.*drop_remainder"),
        (lambda x: lax.cond(x.sum() > 0, lambda: lax.psum(1.0 * x.sum(), AXIS), lambda: 0.0), "loop or a condition"),
        (lambda x: lax.psum(x, AXIS, axis_index_groups=[[0], [1]]), "can exchange sums"),
        (lambda x: lax.all_to_all(jnp.ones(2), AXIS, 0, 0), "can exchange sums"),
    ],
    ids=["loop", "condition", "groups", "all_to_all"],
)
def test_what_cannot_be_is_refused(function: Any, told: str) -> None:
    with pytest.raises(UnsupportedError, match=told):
        _emulate(function, [(jnp.ones(1),), (jnp.ones(1),)])


@given(st.integers(0, 30), st.integers(1, 9))
def test_cuts(count: int, parts: int) -> None:
    cuts = sequential_emulation.shard_slices(count, parts)
    sizes = [c.stop - c.start for c in cuts]
    assert len(cuts) == parts and [i for c in cuts for i in range(c.start, c.stop)] == list(range(count))
    assert sizes == sorted(sizes, reverse=True) and sum(s not in (0, sizes[0]) for s in sizes) <= 1


def _equal(differs: Any, shapes: Any) -> None:
    assert not any(jax.tree.leaves(differs)) and len(jax.tree.leaves(shapes)) == 3


@pytest.mark.slow
@given(st.integers(1, 11))
@settings(max_examples=8)
def test_a_whole_batch_in_shares(rows: int) -> None:
    """Sums over all rows, and means that count by their rows, are those of the whole batch; nobody waits."""

    def step(state: Any, x: Any) -> Any:
        turn = sequential_emulation.current()
        assert turn is not None
        mean = lax.pmean(turn.weight_mean(x.mean()), AXIS)
        return (lax.psum(x.sum(), AXIS), mean), state + lax.psum(jnp.float32(len(x)), AXIS)

    x = np.random.default_rng(rows).normal(size=rows).astype("float32")
    (total, mean), state = jax.jit(sequential_emulation.emulate_step(step, REPLICAS, _equal))(jnp.float32(1), x)
    np.testing.assert_allclose([total, mean, state], [x.sum(), x.mean(), rows + 1], rtol=1e-4, atol=1e-5)
