"""tf.train.ExponentialMovingAverage, with TensorFlow 2.15's numbers; generators' draws and their checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf


def test_averages_follow_their_variables() -> None:
    variable, average = tf.Variable([1.0, 2.0], name="v"), tf.train.ExponentialMovingAverage(0.9)
    assert average.average(variable) is None
    average.apply([variable])
    variable.assign([3.0, 3.0])
    average.apply([variable])
    np.testing.assert_allclose(average.average(variable).numpy(), [1.2, 2.1], rtol=1e-6)
    assert average.average_name(variable) == "v/ExponentialMovingAverage"
    assert average.variables_to_restore([variable]) == {"v/ExponentialMovingAverage": variable}


def test_the_decay_grows_with_the_updates() -> None:
    variable, average = tf.Variable([3.0]), tf.train.ExponentialMovingAverage(0.9, num_updates=1)
    average.apply([variable])
    variable.assign([0.0])
    average.apply([variable])
    np.testing.assert_allclose(average.average(variable).numpy(), [0.5454545], rtol=1e-6)


def test_what_is_no_variable_of_floats_is_refused() -> None:
    average = tf.train.ExponentialMovingAverage(0.9)
    for value in (tf.Variable(1), tf.constant(1.0)):
        with pytest.raises(TypeError):
            average.apply([value])
    with pytest.raises(ValueError, match="needs a list"):
        average.variables_to_restore()


def test_a_generator_draws_and_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    generator = tf.random.Generator.from_seed(1)
    assert generator.uniform_full_int([2]).dtype == tf.uint64
    drawn = generator.truncated_normal([1000]).numpy()
    assert np.abs(drawn).max() <= 2 and abs(drawn.std() - 0.88) < 0.05
    assert generator.binomial([2], counts=[5.0, 5.0], probs=[0.0, 1.0]).numpy().tolist() == [0, 5]
    first, second = generator.split(2)
    assert (first.normal([3]).numpy() != second.normal([3]).numpy()).all()
    checkpoint = tf.train.Checkpoint(generator=generator)
    path = checkpoint.save(tmp_path / "ck")
    expected = generator.normal([2]).numpy()
    checkpoint.restore(path).run_restore_ops()
    assert (generator.normal([2]).numpy() == expected).all()


def test_init_scope_computes_at_once() -> None:
    seen = []

    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        with tf.init_scope():
            seen.append(int(tf.constant(2) + 1))
        return x + 1

    assert function(tf.constant(1.0)).numpy() == 2 and set(seen) == {3}


def test_an_optimizer_with_keras_2s_rule_is_refused() -> None:
    class Own(tf.keras.optimizers.legacy.Optimizer):
        def _resource_apply_dense(self, grad, var, apply_state=None):  # type: ignore[no-untyped-def]
            return var.assign_sub(grad)

    with pytest.raises(ValueError, match="update_step"):
        Own(name="own")
