"""Optimizers that users write, as they do for TensorFlow 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

from lockstep.errors import ArgumentError
from lockstep.estimator import train as t
from tests.training.driver import Trained, spec, train

GRADIENTS = [np.array([0.5, -1.0], np.float32), np.array([0.25, 2.0], np.float32), np.array([-1.0, 1.0], np.float32)]


def _train(make: Callable[[], t.Optimizer], replicas: int = 1) -> Trained:
    def model(rows: Any) -> Any:
        gradient = jnp.mean(rows, 0)
        w = keras.Variable([1.0, 2.0], name="w")
        loss = jnp.sum(w.value * gradient)
        return spec(make().minimize(loss, t.get_global_step()), loss)

    return train(model, [np.tile(g, (5, 1)) for g in GRADIENTS], replicas)


class SignDescent(t.Optimizer):
    """All that an optimizer of one's own needs, in TensorFlow 1's words."""

    def __init__(self, rate: Any, use_locking: bool = False, name: str = "Sign") -> None:
        super().__init__(use_locking, name)
        self._rate = rate
        self._rates: dict[str, Any] = {}

    def _create_slots(self, var_list: Any) -> None:
        self._create_non_slot_variable(initial_value=3.0, name="steps_left", colocate_with=var_list[0])
        for variable in var_list:
            self._zeros_slot(variable, "signs", self._name)
            self._get_or_make_slot(variable, np.full((2,), 5.0, np.float32), "fives", self._name)
            self._get_or_make_slot_with_initializer(
                variable, keras.initializers.Ones(), variable.shape, variable.dtype, "ones", self._name
            )

    def _prepare(self) -> None:
        # Traced values in structures are kept for the update.
        self._rates = {"here": [self._call_if_callable(self._rate), "a note"]}

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        signs = self.get_slot(var, "signs")
        signs.assign_add(jnp.sign(grad))
        return var.assign_sub(self._rates["here"][0] * jnp.sign(grad))

    def _finish(self, update_ops: Any, name_scope: str) -> Any:
        assert len(update_ops) == 1
        left = self._get_non_slot_variable("steps_left")
        left.assign(left - 1)


def test_an_optimizer_of_ones_own() -> None:
    done = _train(lambda: SignDescent(lambda: 1.0 / jnp.asarray(t.get_global_step() + 1, jnp.float32)))
    np.testing.assert_allclose(done["w"], [1 - 1 - 1 / 2 + 1 / 3, 2 + 1 - 1 / 2 - 1 / 3], rtol=1e-6)
    np.testing.assert_array_equal(done["w/Sign"], [1, 1])
    np.testing.assert_array_equal(done["w/Sign_1"], [5, 5])
    np.testing.assert_array_equal(done["w/Sign_2"], [1, 1])
    assert done["steps_left"] == 0


class Decayed(t.AdamOptimizer):
    """Adds decay of weights to an optimizer, by the method that resource variables use in TensorFlow."""

    def _resource_apply_dense(self, grad: Any, handle: Any) -> Any:
        handle.assign(handle.value * 0.9)
        return super()._resource_apply_dense(grad, handle)


def test_an_update_may_be_extended() -> None:
    plain, decayed = _train(lambda: t.AdamOptimizer(0.0)), _train(lambda: Decayed(0.0))
    np.testing.assert_allclose(decayed["w"], plain["w"] * 0.9**3, rtol=1e-6)
    np.testing.assert_array_equal(decayed["w/Adam"], plain["w/Adam"])


class Clipped(t.Optimizer):
    """Changes gradients on their way to another optimizer."""

    def __init__(self, inner: t.Optimizer) -> None:
        super().__init__(False, "Clipped")
        self._inner = inner

    def compute_gradients(self, loss: Any, var_list: Any = None, **kwargs: Any) -> Any:
        return [(jnp.clip(g, -0.5, 0.5), v) for g, v in self._inner.compute_gradients(loss, var_list, **kwargs)]

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        return self._inner.apply_gradients(*args, **kwargs)


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_optimizer_may_wrap_another(replicas: int) -> None:
    done = _train(lambda: Clipped(t.GradientDescentOptimizer(0.1)), replicas)
    np.testing.assert_allclose(done["w"], [1 - 0.1 * (0.5 + 0.25 - 0.5), 2 - 0.1 * (-0.5 + 0.5 + 0.5)], rtol=1e-6)


def test_without_an_update_there_is_an_error() -> None:
    with pytest.raises(ArgumentError, match=r"Define _apply_dense\(self, grad, var\)"):
        _train(lambda: t.Optimizer(False, "Nothing"))


def test_a_slot_cannot_start_from_a_traced_value() -> None:
    class Traced(SignDescent):
        def _create_slots(self, var_list: Any) -> None:
            self._get_or_make_slot(var_list[0], var_list[0].value * 2, "doubled", self._name)

    with pytest.raises(ArgumentError, match="The first value of a slot must be known"):
        _train(lambda: Traced(0.1))
