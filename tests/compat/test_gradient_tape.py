"""Training steps of TensorFlow's programs: tapes in functions of `strategy.run`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError, StartupOrderError, UnsupportedError
from lockstep.summary import scalars

FOUR = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3"])
ONE = tf.distribute.OneDeviceStrategy("/cpu:0")
X = np.random.default_rng(0).normal(size=(14, 3)).astype(np.float32)
Y = X.sum(1, keepdims=True)


def network(units: int = 5, inputs: int = 3, seed: int = 0) -> Any:
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((inputs,)),
            keras.layers.Dense(units, "tanh", kernel_regularizer=keras.regularizers.L2(0.1)),
            keras.layers.Dense(1),
        ]
    )


def trained(strategy: Any, batch: int = 8) -> tuple[list[float], list[Any]]:
    """Two passes; the last batch does not divide."""
    with strategy.scope():
        model, optimizer, seen = network(), tf.keras.optimizers.Adam(0.05), tf.keras.metrics.Mean()

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            each = tf.reduce_mean((model(x, training=True) - y) ** 2, axis=1)
            loss = tf.nn.compute_average_loss(each, global_batch_size=batch)
            loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        seen.update_state(each)
        return loss

    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((X, Y)).batch(batch))
    losses = [float(strategy.reduce("SUM", strategy.run(step, b), axis=None)) for _ in range(2) for b in data]
    return [*losses, float(seen.result())], model.get_weights()


def by_hand(batch: int = 8) -> tuple[list[float], list[Any]]:
    """The same in plain JAX, on one device."""
    model, optimizer, losses = network(), keras.optimizers.Adam(0.05), []
    optimizer.build(model.trainable_variables)
    weights, state, squares = [v.value for v in model.trainable_variables], [v.value for v in optimizer.variables], []

    def loss_of(weights: Any, x: Any, y: Any) -> Any:
        each = (model.stateless_call(weights, [], x)[0] - y) ** 2
        return each.sum() / batch + 0.1 * (weights[0] ** 2).sum(), each

    for _ in range(2):
        for i in (0, batch):
            take = jax.value_and_grad(loss_of, has_aux=True)
            (loss, each), gradients = take(weights, X[i : i + batch], Y[i : i + batch])
            weights, state = optimizer.stateless_apply(state, gradients, weights)
            losses.append(float(loss))
            squares.append(np.ravel(each))
    return [*losses, float(np.concatenate(squares).mean())], weights


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [ONE, FOUR], ids=["one", "four"])
def test_a_step_is_what_one_device_does(strategy: Any) -> None:
    losses, weights = trained(strategy)
    expected, values = by_hand()
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    for ours, theirs in zip(weights, values, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def run(function: Any, *args: Any) -> Any:
    """What the first replica returns."""
    return FOUR.experimental_local_results(FOUR.run(function, args=args))[0]


@pytest.mark.slow
@given(st.data())
@settings(max_examples=8, deadline=None)
def test_derivatives_of_any_path_are_those_of_the_function(data: Any) -> None:
    """Operations between sources and target, some before the tape, some that no derivative passes."""
    names = data.draw(st.lists(st.sampled_from(["mul", "sin", "add", "cond", "stop", "scan", "early"]), max_size=6))
    first = {"a": 0.7, "b": -1.3}

    def path(a: Any, b: Any) -> Any:
        x, y = a, b
        for name in names:
            if name == "mul":
                x, y = x * y, y
            elif name == "sin":
                x, y = y + 0.5, jnp.sin(x)
            elif name == "add":
                x = x + a
            elif name == "cond":
                y = jax.lax.cond(x > 0, lambda v: v * 2, lambda v: v - 1, y)
            elif name == "stop":
                y = jax.lax.stop_gradient(x) * y
            elif name == "scan":
                x, _ = jax.lax.scan(lambda c, _: (c * b, None), x, None, 2)
            else:
                y = y + early
        return x + y * y

    early = 2.0
    expected = jax.grad(path, (0, 1))(*first.values())
    a, b = tf.Variable(first["a"]), tf.Variable(first["b"])

    def step() -> Any:
        nonlocal early
        early = a.value * 0 + 2.0  # Before the tape: it counts as a number.
        with tf.GradientTape() as tape:
            total = path(a.value, b.value)
        return tape.gradient(total, [a, b], unconnected_gradients="zero")

    np.testing.assert_allclose(run(step), expected, rtol=1e-5)


def test_none_by_what_the_target_does_not_depend_on() -> None:
    used, unused, frozen = tf.Variable(2.0), tf.Variable(3.0), tf.Variable(4.0, trainable=False)

    def step() -> Any:
        with tf.GradientTape() as tape:
            rest = unused * frozen
            loss = used * used
        both = tape.gradient(loss, {"used": used, "unused": unused})
        return both, tape.gradient(rest, [used, unused, frozen])

    both, (none, of_rest, of_frozen) = run(step)
    assert float(both["used"]) == 4 and float(of_rest) == 4
    assert (both["unused"], none, of_frozen) == (None, None, None)


def test_what_is_watched_counts() -> None:
    v, other = tf.Variable(3.0, trainable=False), tf.Variable(5.0)

    def step(x: Any) -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([x, v])
            y = x * x * v * other
        return tape.gradient(y, [x, v, other], output_gradients=jnp.asarray([1.0, 10.0]))

    of_x, of_v, of_other = run(step, np.asarray([1.0, 2.0], np.float32))
    np.testing.assert_allclose(of_x, [30, 600])
    assert float(of_v) == 5 + 200 and of_other is None


def test_derivatives_of_derivatives() -> None:
    w = tf.Variable(2.0)

    def step(x: Any) -> Any:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = w * x**3
            slope = inner.gradient(y, x)
            penalty = (slope - 1.0) ** 2
        return slope, outer.gradient(penalty, w)

    slope, found = run(step, np.float32(1.5))
    at = 3 * 2 * 1.5**2
    assert float(slope) == pytest.approx(at) and float(found) == pytest.approx(2 * (at - 1) * 3 * 1.5**2)


def test_each_tape_begins_with_what_variables_are_then() -> None:
    v, optimizer = tf.Variable(1.0), tf.keras.optimizers.SGD(0.25)

    def two_steps() -> None:
        for _ in range(2):
            with tf.GradientTape() as tape:
                loss = v * v / FOUR.num_replicas_in_sync
            optimizer.apply_gradients([(tape.gradient(loss, v), v)])

    run(two_steps)
    assert float(v) == 0.25


def test_two_tapes_share_what_they_record() -> None:
    g, d = tf.Variable(2.0), tf.Variable(3.0)

    def step() -> Any:
        with tf.GradientTape() as of_g, tf.GradientTape() as of_d:
            fake = g * 5.0
            score = fake * d
            loss_g, loss_d = -score, score + d
        return of_g.gradient(loss_g, [g]), of_d.gradient(loss_d, [d])

    assert [float(v) for (v,) in run(step)] == [-15, 11]


def test_gradients_can_be_applied_as_they_are() -> None:
    sums, own = tf.Variable(0.0), tf.Variable(0.0)
    one, another = tf.keras.optimizers.SGD(1.0), tf.keras.optimizers.SGD(1.0)

    def step(x: Any) -> None:
        context = tf.distribute.get_replica_context()
        mean = context.all_reduce("MEAN", tf.reduce_sum(x))
        one.apply_gradients([(mean, own)], experimental_aggregate_gradients=False)
        another.apply_gradients([(tf.reduce_sum(x), sums)], name="apply")

    FOUR.run(step, (next(iter(FOUR.experimental_distribute_dataset(tf.data.Dataset.range(8).map(float).batch(8)))),))
    assert (float(own), float(sums)) == (-7, -28)


def test_losses_can_be_scaled() -> None:
    v = tf.Variable(1.0)
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), initial_scale=1024.0)

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = v * x / FOUR.num_replicas_in_sync
            scaled = optimizer.get_scaled_loss(loss)
        gradients = optimizer.get_unscaled_gradients(tape.gradient(scaled, [v]))
        optimizer.apply_gradients([(tf.clip_by_norm(gradients[0], 100.0), v)])
        return scaled

    assert float(FOUR.reduce("SUM", FOUR.run(step, (np.float32(1.0),)), axis=None)) == 1024 and float(v) == 0.5
    run(step, np.float32(np.inf))
    assert float(v) == 0.5 and float(optimizer.loss_scale) == 512


def test_a_tf_function_takes_derivatives_on_one_device() -> None:
    v = tf.Variable(1.0)

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = v * x
        v.assign_sub(tape.gradient(loss, v) * 0.1)
        return loss

    assert [round(float(step(x)), 4) for x in (1.0, 2.0, 3.0)] == [1.0, 1.8, 2.1]

    class Trainer:
        calls = 0

        @tf.function
        def step(self, x: Any) -> Any:
            self.calls += 1
            with tf.GradientTape() as tape:
                loss = v * x
            return tape.gradient(loss, v)

    trainer = Trainer()
    assert [float(trainer.step(tf.constant(x))) for x in (2.0, 3.0)] == [2, 3]
    before = trainer.calls
    assert float(trainer.step(tf.constant(4.0))) == 4 and trainer.calls == before


def test_what_tapes_do_not_do() -> None:
    v = tf.Variable(1.0)

    def in_a_loop() -> Any:
        def body(total: Any, _: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = v * total
            return total + tape.gradient(loss, v), None

        return jax.lax.scan(body, 1.0, None, 2)

    def by_a_constant() -> Any:
        x = tf.constant(1.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = v * x
        return tape.gradient(loss, x)

    def of_integers() -> Any:
        with tf.GradientTape() as tape:
            pass
        return tape.gradient(tf.constant(1), v)

    with pytest.raises(UnsupportedError, match="inside of a loop"):
        run(in_a_loop)
    with pytest.raises(UnsupportedError, match=r"Pass it to strategy\.run as an argument"):
        run(by_a_constant)
    with pytest.raises(ArgumentError, match="has floats"):
        run(of_integers)
    with pytest.raises(UnsupportedError, match=r"jax\.jacrev"):
        run(lambda: tf.GradientTape().jacobian(v.value, v))


@pytest.mark.slow
def test_random_numbers_are_others_in_each_step_and_replica() -> None:
    def draw() -> Any:
        return tf.random.normal((2,)), tf.random.uniform((1,), seed=7)

    tf.random.set_seed(1)
    seen = [FOUR.gather(FOUR.run(draw), axis=0) for _ in range(2)]
    numbers = np.concatenate([np.concatenate([np.asarray(a), np.asarray(b)]) for a, b in seen])
    assert len(np.unique(numbers)) == len(numbers) == 24
    tf.random.set_seed(1)
    np.testing.assert_array_equal(FOUR.gather(FOUR.run(draw), axis=0)[0], seen[0][0])


def test_variables_that_are_added_to_know_it() -> None:
    total = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)

    def step() -> Any:
        total.assign_add(3.0)
        return total.assign_sub(1.0) is total, total.assign_add(0.0, read_value=False)

    assert run(step) == (True, None) and float(total) == 1 + 4 * 2


def test_local_results_are_as_many_as_replicas() -> None:
    whole = FOUR.run(lambda: tf.ones(2))
    assert len(FOUR.experimental_local_results(whole)) == 4
    assert len(FOUR.experimental_local_results({"a": whole, "b": 1})) == 4
    v = tf.Variable(1.0)
    assert [one is v for one in FOUR.experimental_local_results(v)] == [True] * 4
    assert FOUR.experimental_local_results(3) == (3,)


def test_structures_and_names_of_other_versions() -> None:
    per_replica = {"a": FOUR.run(tf.ones, (3,)), "b": [FOUR.run(tf.zeros, (2,))]}
    sums = tf.nest.map_structure(lambda v: FOUR.reduce("SUM", v, axis=None), per_replica)
    np.testing.assert_array_equal(sums["a"], [4, 4, 4])
    assert len(tf.nest.flatten(sums)) == 2 and tf.nest.pack_sequence_as({"x": 0}, [5]) == {"x": 5}
    for name, advice in (
        ("experimental_run_v2", "called run"),
        ("experimental_make_numpy_dataset", "experimental_distribute_dataset"),
        ("none_such", "no attr"),
    ):
        with pytest.raises(AttributeError, match=advice):
            getattr(FOUR, name)


def test_optimizers_minimize() -> None:
    v, sgd = tf.Variable(1.0), tf.keras.optimizers.SGD(0.25)

    def step() -> None:
        sgd.minimize(lambda: v * v / FOUR.num_replicas_in_sync, [v])
        with tf.GradientTape() as tape:
            loss = v * v / FOUR.num_replicas_in_sync
        sgd.minimize(loss, [v], tape=tape)

    run(step)
    assert float(v) == 0.25
    with pytest.raises(ArgumentError, match="Pass tape=tape"):
        run(lambda: sgd.minimize(v * v, [v]))


def test_modules_know_their_variables() -> None:
    class Inner(tf.Module):
        def __init__(self) -> None:
            super().__init__(name="inner")
            self.z = tf.Variable(1.0)

    class Outer(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [Inner(), {"b": tf.Variable(2.0), "a": tf.Variable(3.0, trainable=False)}]
            self.again = self.parts[0].z

    module = Outer()
    assert [float(v) for v in module.variables] == [1, 3, 2] and module.name == "outer"
    assert [float(v) for v in module.trainable_variables] == [1, 2]
    assert [float(v) for v in module.non_trainable_variables] == [3] and module.submodules == (module.parts[0],)
    # One that two attributes lead to is saved once.
    assert len(tf.train.Checkpoint(module=module)._state()[0]) == 3


def test_summaries_of_a_loop(tmp_path: Any) -> None:
    writer = tf.summary.create_file_writer(str(tmp_path))
    for step in range(2):
        with writer.as_default(step=step):
            tf.summary.scalar("loss", run(lambda: tf.ones(()) * 2))
            tf.summary.text("words", "x", step=step)
            with pytest.raises(UnsupportedError, match="Return the value"):
                run(lambda: tf.summary.scalar("loss", tf.distribute.get_replica_context().replica_id_in_sync_group))
    writer.close()
    assert {step: of["loss"] for step, of in scalars(tmp_path).items()} == {0: 2.0, 1: 2.0}
    # Programs leave the writer out to log nothing.
    tf.summary.scalar("loss", 5.0, step=1)
    tf.summary.scalar("loss", 5.0)
    assert {step: of["loss"] for step, of in scalars(tmp_path).items()} == {0: 2.0, 1: 2.0}
    with writer.as_default(), pytest.raises(StartupOrderError, match="without one"):
        tf.summary.scalar("loss", 1.0)
    with writer.as_default(), pytest.raises(ArgumentError, match="shows one number"):
        tf.summary.scalar("loss", [1.0, 2.0], step=1)


class OwnStep(tf.keras.Sequential):
    """A model with a step of Keras 2, which changes its variables."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        return {"loss": loss}


@pytest.mark.slow
def test_a_step_of_keras_2_on_four_replicas_is_that_of_one() -> None:
    after: list[list[Any]] = []
    for strategy in (ONE, FOUR):
        with strategy.scope():
            model = OwnStep([tf.keras.layers.Dense(1, kernel_initializer="zeros")])
            model.compile(tf.keras.optimizers.SGD(0.05), "mse")
        history = model.fit(X, Y, batch_size=len(X), epochs=3, verbose=0)
        after.append([*model.get_weights(), history.history["loss"]])
    for one, four in zip(*after, strict=True):
        np.testing.assert_allclose(one, four, rtol=1e-5)
    # What the step returns, and not the metric of the compiled loss, which it has not called.
    np.testing.assert_allclose(after[0][-1], [2.398321, 1.8526461, 1.4391145], rtol=1e-6)
