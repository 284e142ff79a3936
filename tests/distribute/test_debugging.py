"""Replicas one after the other: known values, one at a time, and an end for all when one fails."""

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lockstep as ls
from lockstep.errors import ArgumentError, UnsupportedError
from tests.distribute.loops import context

STRATEGY = ls.distribute.MirroredStrategy()


def test_values_are_known_and_one_replica_runs_at_a_time() -> None:
    seen: list[Any] = []

    @jax.jit
    def inner(x: Any) -> Any:
        seen.append((context().replica_id_in_sync_group, float(x)))
        return x

    def function(x: Any, factor: float) -> Any:
        inner(x)
        total = context().all_reduce("sum", x)
        inner(total)
        return x * factor, total

    own = STRATEGY.experimental_distribute_values_from_function(lambda c: np.float32(c.replica_id_in_sync_group))
    found, total = STRATEGY.experimental_run_for_debugging(function, args=(own,), kwargs={"factor": 2.0})
    assert seen == [(i, i) for i in range(4)] + [(i, 6) for i in range(4)]
    assert [float(v) for v in found.values] == [0, 2, 4, 6] and float(total) == 6
    # Results go into the next call, of either kind.
    assert float(STRATEGY.run(lambda t: t + 1, args=(total,))) == 7
    assert float(STRATEGY.experimental_run_for_debugging(lambda t, f: t + f[0], args=(total, {0: 1.0}))) == 7


def test_shares_of_different_sizes() -> None:
    (batch,) = STRATEGY.experimental_distribute_dataset(ls.data.Dataset.range(6).batch(8))
    shapes: list[Any] = []

    def function(x: Any) -> Any:
        shapes.append(x.shape)
        return context().all_gather(x, 0), x

    everything, own = STRATEGY.experimental_run_for_debugging(function, args=(batch,))
    assert shapes == [(2,), (2,), (2,), (0,)]
    assert everything.tolist() == list(range(6)) and [v.tolist() for v in own.values] == [[0, 1], [2, 3], [4, 5], []]


def test_one_failure_ends_all() -> None:
    before = set(threading.enumerate())

    def function() -> Any:
        if context().replica_id_in_sync_group == 2:
            raise KeyError("mine")
        return context().all_reduce("sum", 1)

    with pytest.raises(KeyError, match="mine") as caught:
        STRATEGY.experimental_run_for_debugging(function)
    assert caught.value.__notes__ == ["It was raised by replica 2 of this process."]
    # Threads of earlier tests may end meanwhile.
    assert set(threading.enumerate()) <= before


def test_replicas_that_part_are_told_so() -> None:
    def function() -> Any:
        number = context().replica_id_in_sync_group
        return context().all_reduce("sum", number) if number else number

    with pytest.raises(ArgumentError, match=r"same collectives.*replica 0: the end; replica 1: all_reduce"):
        STRATEGY.experimental_run_for_debugging(function)


def test_loops_of_jax_do_not_know_their_values() -> None:
    def function() -> Any:
        return jax.vmap(lambda x: context().all_reduce("sum", x))(jnp.ones(3))

    with pytest.raises(UnsupportedError, match="values that are known"):
        STRATEGY.experimental_run_for_debugging(function)
    with pytest.raises(ArgumentError, match="args must be a tuple"):
        STRATEGY.experimental_run_for_debugging(function, args=3)


def test_a_single_replica() -> None:
    one = ls.distribute.OneDeviceStrategy("cpu:1")
    found = one.experimental_run_for_debugging(lambda x: (context().all_reduce("mean", x), x), args=(jnp.ones(2),))
    assert [f.tolist() for f in found] == [[1, 1], [1, 1]]
