"""minimize, compute_gradients and apply_gradients: which variables, which losses, which steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

from lockstep.errors import ArgumentError, StartupOrderError, UnsupportedError
from lockstep.estimator import train as t
from lockstep.estimator._model_fn.scope import demand
from tests.training.driver import Trained, spec, train

BATCHES = [np.random.default_rng(i).normal(size=(6, 2)).astype(np.float32) for i in range(4)]


def _loss(x: Any) -> Any:
    hidden = keras.layers.Dense(3, activation="tanh")(x)
    return jnp.mean((keras.layers.Dense(1)(hidden) - jnp.sin(x[:, :1])) ** 2)


def _train(update: Callable[[Any], Any], replicas: int = 1) -> Trained:
    def model(x: Any) -> Any:
        loss = _loss(x)
        return spec(update(loss), loss)

    return train(model, BATCHES, replicas)


def _same(a: Trained, b: Trained) -> None:
    assert set(a.values) == set(b.values)
    for key, value in a.values.items():
        np.testing.assert_allclose(value, b[key], rtol=2e-5, atol=1e-6, err_msg=key)


def _changed(done: Trained) -> set[str]:
    return {key for key, value in done.values.items() if not np.array_equal(value, done.first[key])} - {"global_step"}


@pytest.mark.slow
def test_minimize_is_gradients_applied() -> None:
    def by_hand(loss: Any) -> Any:
        optimizer = t.AdamOptimizer(0.01)
        return optimizer.apply_gradients(optimizer.compute_gradients(loss), t.get_global_step())

    _same(_train(lambda loss: t.AdamOptimizer(0.01).minimize(loss, t.get_global_step())), _train(by_hand))


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_follow_one(replicas: int) -> None:
    def clipped(loss: Any) -> Any:
        optimizer = t.MomentumOptimizer(t.exponential_decay(0.1, t.get_global_step(), 2, 0.5), 0.9)
        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        return optimizer.apply_gradients(zip(t.clip_by_global_norm(gradients, 0.3)[0], variables, strict=True))

    _same(_train(clipped, replicas), _train(clipped))


def test_var_list_is_what_changes() -> None:
    def update(loss: Any) -> Any:
        biases = [v for v in demand("a test").trainable_variables() if v.path.endswith("/bias")]
        return t.GradientDescentOptimizer(0.1).minimize(loss, var_list={"any": (biases[0], [biases[1]])})

    assert _changed(_train(update)) == {"dense/bias", "dense_1/bias"}


def test_a_loss_may_be_a_function_or_several_numbers() -> None:
    whole = _train(lambda loss: t.GradientDescentOptimizer(0.1).minimize(loss))
    _same(_train(lambda loss: t.GradientDescentOptimizer(0.1).minimize(lambda: loss)), whole)
    _same(_train(lambda loss: t.GradientDescentOptimizer(0.1).minimize(jnp.stack([loss, loss]) / 2)), whole)


def test_grad_loss_weighs_the_elements_of_a_loss() -> None:
    def update(loss: Any) -> Any:
        two = jnp.stack([loss, 7 * loss])
        return t.GradientDescentOptimizer(0.1).minimize(two, grad_loss=jnp.asarray([2.0, 0.0]))

    _same(_train(update), _train(lambda loss: t.GradientDescentOptimizer(0.2).minimize(loss)))


def test_several_updates_start_from_the_same_gradients() -> None:
    both = _train(
        lambda loss: t.group(
            t.GradientDescentOptimizer(0.1).minimize(loss, global_step=t.get_global_step()),
            None,
            t.GradientDescentOptimizer(0.2).minimize(loss),
        )
    )
    _same(both, _train(lambda loss: t.GradientDescentOptimizer(0.3).minimize(loss)))


def test_two_optimizers_of_a_name_have_variables_of_their_own() -> None:
    done = _train(lambda loss: t.group(t.AdamOptimizer().minimize(loss), t.AdamOptimizer().minimize(loss)))
    slots = {key.removeprefix("dense/bias/") for key in done.values if key.startswith("dense/bias/")}
    assert slots == {"Adam", "Adam_1", "Adam_2", "Adam_3"}
    assert {"beta1_power", "beta2_power", "beta1_power_1", "beta2_power_1"} < set(done.values)


def test_one_optimizer_may_train_in_two_parts() -> None:
    def update(loss: Any) -> Any:
        variables = demand("a test").trainable_variables()
        optimizer = t.AdagradOptimizer(0.1)
        return t.group(
            optimizer.minimize(loss, var_list=variables[:2]), optimizer.minimize(loss, var_list=variables[2:])
        )

    _same(_train(update), _train(lambda loss: t.AdagradOptimizer(0.1).minimize(loss)))


@pytest.mark.slow
def test_a_rate_may_follow_the_global_step() -> None:
    def rates(how: Callable[[Any], Any]) -> Trained:
        return _train(
            lambda loss: t.GradientDescentOptimizer(how(t.get_global_step())).minimize(loss, t.get_global_step())
        )

    computed = rates(lambda step: t.piecewise_constant(step, [0, 1], [0.5, 0.25, 0.0]))
    _same(rates(lambda step: lambda: t.piecewise_constant(step, [0, 1], [0.5, 0.25, 0.0])), computed)
    _same(rates(lambda step: keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [0.5, 0.25, 0.0])), computed)
    short = train(_model_of(0.5, 0.25), BATCHES[:2])
    for key in short.values.keys() - {"global_step"}:
        np.testing.assert_allclose(computed[key], short[key], rtol=1e-5)


def test_a_variable_may_hold_the_rate() -> None:
    held = _train(lambda loss: t.AdagradOptimizer(keras.Variable(0.3, trainable=False, name="rate")).minimize(loss))
    plain = _train(lambda loss: t.AdagradOptimizer(0.3).minimize(loss))
    np.testing.assert_allclose(held["dense/kernel"], plain["dense/kernel"], rtol=1e-6)
    assert held["rate"] == np.float32(0.3)


def _model_of(*rates: float) -> Callable[[Any], Any]:
    """A model_fn that trains with these rates, by a sum over steps of which all but one are zero."""

    def model(x: Any) -> Any:
        loss = _loss(x)
        step = t.get_global_step()
        rate = sum(jnp.where(step == i, r, 0.0) for i, r in enumerate(rates))
        return spec(t.GradientDescentOptimizer(rate).minimize(loss, step), loss)

    return model


def test_gradients_of_none_leave_variables_alone() -> None:
    def update(loss: Any) -> Any:
        optimizer = t.FtrlOptimizer(0.1)
        (first, *rest) = optimizer.compute_gradients(loss)
        return optimizer.apply_gradients([first, *((None, v) for _, v in rest)])

    done = _train(update)
    assert _changed(done) == {"dense/kernel", "dense/kernel/Ftrl", "dense/kernel/Ftrl_1"}
    assert "dense/bias/Ftrl" not in done.values


def test_a_variable_of_ones_own_may_count() -> None:
    def model(x: Any) -> Any:
        loss = _loss(x)
        mine = keras.Variable(10, dtype="int32", trainable=False, name="mine")
        return spec(t.AdamOptimizer().minimize(loss, global_step=mine), loss)

    done = train(model, BATCHES)
    assert done["mine"] == 14
    assert done["global_step"] == 4  # A step that nothing counts is counted once.


def test_slots_are_found_after_minimize() -> None:
    def update(loss: Any) -> Any:
        optimizer = t.MomentumOptimizer(0.1, 0.9)
        scope = demand("a test")
        (kernel, *_) = scope.trainable_variables()
        assert optimizer.get_slot(kernel, "momentum") is None
        op = optimizer.minimize(loss)
        assert optimizer.get_slot_names() == ["momentum"]
        assert optimizer.get_slot(kernel, "other") is None
        assert scope.key_of(optimizer.get_slot(kernel, "momentum")) == "dense/kernel/Momentum"
        names = [scope.key_of(v) for v in optimizer.variables()]
        assert names == sorted(f"{scope.key_of(v)}/Momentum" for v in scope.trainable_variables())
        scope.record("size", jnp.sum(jnp.abs(optimizer.get_slot(kernel, "momentum").value)))
        return op

    sizes = [named["size"] for named in _train(update).named]
    assert sizes[0] == 0
    assert all(size > 0 for size in sizes[1:])


@pytest.mark.slow
def test_an_optimizer_from_outside_serves_every_call() -> None:
    outside = t.AdamOptimizer(0.01)
    _same(_train(lambda loss: outside.minimize(loss), 2), _train(lambda loss: t.AdamOptimizer(0.01).minimize(loss), 2))
    _same(_train(lambda loss: outside.minimize(loss)), _train(lambda loss: t.AdamOptimizer(0.01).minimize(loss)))


def _first_kernel() -> Any:
    return demand("a test").trainable_variables()[0]


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (lambda o, loss: o.minimize(3), "loss must be an array of floats"),
        (lambda o, loss: o.minimize("loss"), "loss must be an array of floats"),
        (lambda o, loss: o.minimize(jnp.int32(1)), "Received: int32"),
        (lambda o, loss: o.minimize(loss, var_list=[]), "must be variables to optimize"),
        (lambda o, loss: o.minimize(loss, var_list=[1.0]), "Only variables of Keras"),
        (lambda o, loss: o.minimize(loss, gate_gradients=7), "gate_gradients is one of"),
        (lambda o, loss: o.minimize(loss, aggregation_method=1), "concern TensorFlow's graphs"),
        (lambda o, loss: o.minimize(loss, colocate_gradients_with_ops=True), "concern TensorFlow's graphs"),
        (lambda o, loss: o.minimize(loss, grad_loss=jnp.ones(3)), "grad_loss has the shape of the loss"),
        (lambda o, loss: o.minimize(loss, global_step=jnp.int32(0)), "global_step is what"),
        (lambda o, loss: o.minimize(loss, global_step=0), "global_step is what"),
        (lambda o, loss: o.apply_gradients([]), "must be variables to update"),
        (lambda o, loss: o.apply_gradients([(None, _first_kernel())]), "at least one variable|At least one variable"),
        (lambda o, loss: o.apply_gradients([(jnp.ones(7), _first_kernel())]), "A gradient has its variable's shape"),
        (lambda o, loss: o.apply_gradients([loss]), "holds \\(gradient, variable\\) pairs"),
        (lambda o, loss: o.apply_gradients([("g", _first_kernel())]), "gradient of dense/kernel must be an array"),
        (lambda o, loss: o.apply_gradients([], skip_gradients_aggregation=True), "averaged over the replicas"),
    ],
)
def test_what_cannot_be_done_is_refused(update: Callable[[Any, Any], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        _train(lambda loss: update(t.GradientDescentOptimizer(0.1), loss))


def test_variables_that_are_not_trainable_are_refused() -> None:
    def model(x: Any) -> Any:
        loss = _loss(x)
        still = keras.Variable(1.0, trainable=False, name="still")
        return spec(t.AdamOptimizer().minimize(loss, var_list=[still]), loss)

    with pytest.raises(ArgumentError, match="still, which is not trainable"):
        train(model, BATCHES)


def test_outside_of_a_model_fn_there_is_nothing_to_train() -> None:
    with pytest.raises(StartupOrderError, match=r"Optimizer\.minimize can only be used inside"):
        t.AdamOptimizer().minimize(jnp.ones(()))
    with pytest.raises(StartupOrderError, match=r"lockstep\.estimator\.train\.minimize can only be used inside"):
        t.minimize(jnp.ones(()), keras.optimizers.Adam())
    with pytest.raises(StartupOrderError, match=r"lockstep\.estimator\.train\.apply_gradients can only be used inside"):
        t.apply_gradients([], keras.optimizers.Adam())


def test_minimize_takes_optimizers_of_here() -> None:
    done = _train(lambda loss: t.minimize(loss, t.AdagradOptimizer(0.1), global_step=t.get_global_step()))
    _same(done, _train(lambda loss: t.AdagradOptimizer(0.1).minimize(loss)))

    def by_hand(loss: Any) -> Any:
        optimizer = t.AdagradOptimizer(0.1)
        return t.apply_gradients(optimizer.compute_gradients(loss), optimizer)

    _same(_train(by_hand), done)


def test_minimize_refuses_what_is_no_optimizer() -> None:
    with pytest.raises(ArgumentError, match=r"An optimizer is one of lockstep\.estimator\.train, of Keras, or"):
        _train(lambda loss: t.minimize(loss, "adam"))


def test_group_refuses_what_is_no_update() -> None:
    with pytest.raises(ArgumentError, match="A train_op is the result of minimize"):
        t.group(1)


def test_unsupported_is_an_argument_error() -> None:
    assert issubclass(UnsupportedError, ArgumentError)
