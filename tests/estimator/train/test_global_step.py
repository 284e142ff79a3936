"""The global step, in a model_fn and elsewhere."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep
from lockstep.errors import ArgumentError
from lockstep.estimator import train as t
from tests.training.driver import spec, train


def test_outside_it_is_a_name() -> None:
    for step in (t.get_global_step(), t.create_global_step(), t.get_or_create_global_step(), t.global_step()):
        assert step == "global_step"
        assert isinstance(step, t.GlobalStep)


def test_inside_it_counts_the_steps_done() -> None:
    def model(x: Any) -> Any:
        step = t.get_or_create_global_step()
        assert step is t.get_global_step() is t.create_global_step() is t.global_step()
        w = keras.Variable(0.0, name="w")
        loss = w.value * x + jnp.asarray(step, jnp.float32)
        return spec(t.GradientDescentOptimizer(0.0).minimize(loss, global_step=step), loss)

    assert train(model, [np.float32(0)] * 3).losses == [0, 1, 2]


def test_a_session_is_asked_for_it() -> None:
    class Session:
        def run(self, fetch: Any) -> Any:
            assert fetch == "global_step"
            return np.int64(7)

    assert t.global_step(Session(), t.get_global_step()) == 7
    assert t.global_step(Session()) == 7


def test_one_integer_can_be_a_global_step() -> None:
    t.assert_global_step(t.get_global_step())
    t.assert_global_step(jnp.int32(3))
    t.assert_global_step(keras.Variable(3, dtype="int32"))
    for other in (jnp.float32(3), jnp.arange(3), 3, None):
        with pytest.raises(ArgumentError, match="A global step is one integer"):
            t.assert_global_step(other)


def test_there_are_no_graphs() -> None:
    with pytest.raises(ArgumentError, match="There are no graphs"):
        t.get_global_step(object())  # type: ignore[arg-type]


def test_readers_of_checkpoints_are_those_of_their_package() -> None:
    for name in t._CHECKPOINTS:
        assert getattr(t, name) is getattr(lockstep.checkpoint, name)
        assert name in t.__all__
        assert name in dir(t)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        t.nothing  # noqa: B018
