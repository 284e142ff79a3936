"""What a model_fn uses of tf: names for hooks, updates, gradients, random numbers, variables, layers, optimizers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError, StartupOrderError, UnsupportedError
from lockstep.estimator._model_fn.records import GroupOp, TrainOp
from lockstep.estimator._model_fn.scope import ModelScope
from lockstep.estimator._model_fn.variables import Variables

v1 = tf.compat.v1
X = np.arange(24, dtype=np.float32).reshape(8, 3) / 24
Y = X @ np.array([1.0, -2.0, 0.5], np.float32)


def in_model_fn(function: Callable[[ModelScope, Any], Any]) -> ModelScope:
    """Calls a function as an Estimator's first call does; returns the scope, whose values are dead."""
    scopes = []

    def call(x: Any) -> Any:
        with ModelScope(Variables(0), "train", {}) as scope:
            scopes.append(scope)
            function(scope, x)
        return x

    jax.eval_shape(call, jax.ShapeDtypeStruct((4, 3), np.float32))
    return scopes[0]


def trained(
    model_dir: Path, body: Callable[..., Any], steps: int = 2, seed: int | None = 3, batch: int = 8
) -> tuple[Any, dict[str, np.ndarray]]:
    """Trains with a function of features, labels and mode that returns (loss, train_op); returns the variables, too."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss, train_op = body(features, labels, mode)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = tf.estimator.RunConfig(tf_random_seed=seed, log_step_count_steps=None)
    estimator = tf.estimator.Estimator(model_fn, str(model_dir), config)
    estimator.train(lambda: tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(batch), steps=steps)
    return estimator, {
        name: tf.train.load_variable(str(model_dir), name) for name, _ in v1.train.list_variables(model_dir)
    }


def fit(labels: Any, predictions: Any, rate: float = 0.1) -> tuple[Any, Any]:
    loss = tf.reduce_mean(tf.square(labels - predictions))
    return loss, v1.train.GradientDescentOptimizer(rate).minimize(loss, v1.train.get_global_step())


# Names.


def test_results_have_names_for_hooks() -> None:
    def body(scope: ModelScope, x: Any) -> None:
        tf.nn.softmax(x, name="softmax_tensor")
        tf.identity(x, "second_by_position")
        with tf.name_scope("outer"):
            tf.argmax(x, 1, name="classes")
            tf.reduce_mean(x, name="mean")
        tf.identity(x, name="twice")
        tf.identity(x, name="twice")
        tf.constant(3, name="constant")
        tf.no_op(name="nothing")

    named = in_model_fn(body).recorded.values
    assert list(named) == [
        *("softmax_tensor", "second_by_position", "outer/classes", "outer/mean", "twice", "twice_1", "constant"),
    ]
    assert (named["outer/classes"].shape, named["outer/mean"].shape) == ((4,), ())


def test_names_have_no_effect_elsewhere() -> None:
    assert tf.identity([1, 2], name="x").numpy().tolist() == [1, 2]
    layer = tf.nn.relu(keras.Input((2,)), name="symbolic")
    assert layer.shape == (None, 2)


def test_hooks_read_named_results(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    class Reader(tf.estimator.SessionRunHook):
        def __init__(self) -> None:
            self.names = ("train/error", "rows:0")

        def before_run(self, run_context: Any) -> Any:
            return tf.estimator.SessionRunArgs(dict(zip(("error", "rows"), self.names, strict=True)))

        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append(run_values.results)

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        w = tf.Variable(tf.zeros([3]), name="w")
        rows = tf.identity(tf.linalg.matvec(features, w), name="rows")
        with tf.name_scope("train"):
            tf.reduce_max(tf.abs(labels - rows), name="error")
        loss, op = fit(labels, rows)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=op)

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    estimator.train(lambda: tf.data.Dataset.from_tensors((X, Y)).repeat(2), hooks=[Reader()])
    assert seen[0]["error"] == pytest.approx(np.abs(Y).max())
    assert seen[1]["rows"].shape == (8,)
    assert seen[1]["rows"].any()


# Updates.


def test_groups_of_updates() -> None:
    def body(scope: ModelScope, x: Any) -> None:
        w = tf.Variable(1.0, name="w")
        loss = tf.reduce_sum(x) * w
        one, two = (v1.train.GradientDescentOptimizer(0.1).minimize(loss) for _ in range(2))
        assert isinstance(one, TrainOp)
        assert tf.group(one, [two], None, x, w) == (one, two)
        assert tf.no_op() == ()
        assert isinstance(tf.no_op(), GroupOp)
        with tf.control_dependencies([one, x]):
            assert tf.no_op() == (one,)
            with tf.control_dependencies([two]):
                assert tf.group() == (one, two)
        assert tf.no_op() == ()

    in_model_fn(body)


def test_groups_are_nothing_elsewhere() -> None:
    assert tf.group(1, 2) is None
    assert tf.no_op() is None
    with tf.control_dependencies([3]):
        assert tf.no_op() is None


# Gradients.


def by_gradients(loss: Any, variables: Any) -> Any:
    return tf.gradients(loss, variables)


def by_tape(loss: Any, variables: Any) -> Any:
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(variables)
    return tape.gradient({"loss": loss}, variables)


@pytest.mark.parametrize("derive", [by_gradients, by_tape])
def test_derivatives_by_variables(tmp_path: Path, derive: Any) -> None:
    def body(features: Any, labels: Any, mode: str) -> Any:
        w, b = tf.Variable(tf.zeros([3]), name="w"), tf.Variable(0.0, name="b")
        loss = tf.reduce_mean(tf.square(labels - tf.linalg.matvec(features, w) - b))
        variables = [w, b]
        gradients, _ = tf.clip_by_global_norm(derive(loss, variables), 1e9)
        optimizer = v1.train.GradientDescentOptimizer(0.5)
        return loss, optimizer.apply_gradients(zip(gradients, variables, strict=True), v1.train.get_global_step())

    _, values = trained(tmp_path, body, steps=1)
    np.testing.assert_allclose(values["w"], 0.5 * 2 * (Y[:, None] * X).mean(0), rtol=1e-5)
    np.testing.assert_allclose(values["b"], 0.5 * 2 * Y.mean(), rtol=1e-5)


def test_derivatives_need_a_model_fn() -> None:
    with pytest.raises(UnsupportedError, match="in a model_fn of an Estimator only"):
        tf.gradients(1.0, [tf.Variable(1.0)])
    with pytest.raises(ArgumentError, match="a function of no arguments, or a tensor with its tape"):
        keras.optimizers.SGD().minimize(1.0, [])


def test_what_is_no_derivative() -> None:
    def body(scope: ModelScope, x: Any) -> None:
        w = tf.Variable(1.0)
        with pytest.raises(UnsupportedError, match="takes derivatives by variables"):
            tf.gradients(x, [x])
        with pytest.raises(ArgumentError, match="multiply ys"):
            tf.gradients(w * x, w, grad_ys=[x])
        tape = tf.GradientTape()
        with pytest.raises(UnsupportedError, match="by variables"):
            tape.watch(x)
        with pytest.raises(ArgumentError, match="output_gradients must be None"):
            tape.gradient(x, w, output_gradients=x)
        assert [g.shape for g in tf.gradients(w * x, [w])] == [()]

    in_model_fn(body)


# Random numbers.

DRAWS: dict[str, Callable[[], Any]] = {
    "uniform": lambda: tf.random.uniform([1000], 2.0, 4.0),
    "integers": lambda: tf.random.uniform([1000], 0, 7, tf.int32),
    "normal": lambda: tf.random.normal([1000], 3.0, 0.5),
    "truncated_normal": lambda: tf.random.truncated_normal([1000], 3.0, 0.5),
    "gamma": lambda: tf.random.gamma([1000], 3.0, 2.0),
    "poisson": lambda: tf.random.poisson([1000], 3.0),
    "categorical": lambda: tf.random.categorical(tf.zeros([1, 7]), 1000)[0],
    "shuffle": lambda: tf.random.shuffle(tf.range(1000)),
}
MEANS = {"uniform": 3, "integers": 3, "normal": 3, "truncated_normal": 3, "gamma": 1.5, "poisson": 3, "categorical": 3}


@pytest.mark.slow
def test_random_numbers_differ_from_step_to_step(tmp_path: Path) -> None:
    def body(features: Any, labels: Any, mode: str) -> Any:
        w = tf.Variable(tf.zeros([3]), name="w")
        for name, draw in DRAWS.items():
            drawn = tf.cast(draw(), tf.float32)
            kept = [tf.Variable(np.zeros(1000, np.float32), trainable=False, name=f"{name}_{i}") for i in range(2)]
            kept[1].assign(kept[0])
            kept[0].assign(drawn)
        return fit(labels, tf.linalg.matvec(features, w))

    values = [trained(tmp_path / name, body, steps=2, seed=seed)[1] for name, seed in (("a", 5), ("b", 5), ("c", 6))]
    for name in DRAWS:
        now, before, other = values[0][f"{name}_0"], values[0][f"{name}_1"], values[2][f"{name}_0"]
        assert not np.array_equal(now, before), name
        assert not np.array_equal(now, other), name
        np.testing.assert_array_equal(now, values[1][f"{name}_0"])
        if name in MEANS:
            assert np.mean([now, before]) == pytest.approx(MEANS[name], abs=0.2), name
    assert sorted(values[0]["shuffle_0"]) == list(range(1000))


@pytest.mark.slow
def test_a_variable_may_begin_with_random_numbers(tmp_path: Path) -> None:
    def body(features: Any, labels: Any, mode: str) -> Any:
        one = tf.Variable(tf.random.normal([40, 50], 1.0, 0.1), name="one")
        two = tf.Variable(tf.random.normal([40, 50], 1.0, 0.1), name="two")
        seeded = tf.Variable(tf.random.uniform([40, 50], seed=7), name="seeded")
        w = tf.Variable(tf.zeros([3]), name="w")
        return fit(labels, tf.linalg.matvec(features, w) + 0 * (tf.reduce_sum(one) + tf.reduce_sum(two * seeded)))

    values = [trained(tmp_path / str(seed), body, steps=1, seed=seed)[1] for seed in (1, 2)]
    assert values[0]["one"].std() == pytest.approx(0.1, rel=0.1)
    for one, two in itertools.combinations([values[0]["one"], values[0]["two"], values[1]["one"]], 2):
        assert not np.array_equal(one, two)
    np.testing.assert_array_equal(values[0]["seeded"], values[1]["seeded"])


@pytest.mark.slow
def test_dropout_is_new_in_each_step_and_off_in_evaluation(tmp_path: Path) -> None:
    def body(features: Any, labels: Any, mode: str) -> Any:
        w = tf.Variable(tf.zeros([3]), name="w")
        ones = tf.ones([1000])
        kept = tf.Variable(np.zeros((2, 1000), np.float32), trainable=False, name="kept")
        dropped = v1.nn.dropout(ones, keep_prob=0.75) if mode == "train" else ones
        kept.assign(tf.stack([dropped, kept[0]]))
        layer = v1.layers.dropout(ones, 0.5, training=mode == "train")
        return fit(labels, tf.linalg.matvec(features, w) + 0 * tf.reduce_sum(layer))

    _, values = trained(tmp_path, body)
    now, before = values["kept"]
    assert not np.array_equal(now, before)
    assert set(np.unique(now)) == {np.float32(0), np.float32(1 / 0.75)}
    assert (now == 0).mean() == pytest.approx(0.25, abs=0.06)


# Variables.


def test_variables_by_name(tmp_path: Path) -> None:
    def body(features: Any, labels: Any, mode: str) -> Any:
        with v1.variable_scope("first", initializer=v1.constant_initializer(2.0)):
            w = v1.get_variable("w", [3])
            with v1.variable_scope("inner"):
                v1.get_variable("steps", initializer=np.int32(0), trainable=False).assign_add(1)
        with v1.variable_scope("first", reuse=True):
            assert v1.get_variable("w", [3]) is w
        with v1.variable_scope("second", reuse=v1.AUTO_REUSE) as scope:
            b = v1.get_variable("b", (), initializer=tf.zeros_initializer)
        with v1.variable_scope(scope):
            assert v1.get_variable("b") is b
        assert [v.name for v in v1.trainable_variables()] == ["first/w:0", "second/b:0"]
        assert [v.op.name for v in v1.trainable_variables()] == ["first/w", "second/b"]
        assert v1.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES, "first/") == [w]
        assert len(v1.global_variables()) == 3
        return fit(labels, tf.linalg.matvec(features, w) + b)

    _, values = trained(tmp_path, body, steps=3)
    assert {"first/w", "first/inner/steps", "second/b"} < set(values)
    assert values["first/inner/steps"] == 3
    assert not np.array_equal(values["first/w"], [2, 2, 2])


def test_names_of_variables_of_layers() -> None:
    def body(scope: ModelScope, x: Any) -> None:
        y = v1.layers.dense(x, 2, name="fc")
        tf.keras.layers.BatchNormalization()(y)
        variables = v1.trainable_variables()
        assert [v.name for v in variables if "batch_normalization" not in v.name] == ["fc/kernel:0", "fc/bias:0"]
        assert [v.get_shape().as_list() for v in variables] == [[3, 2], [2], [2], [2]]

    in_model_fn(body)
    outside = keras.Variable(1.0, name="outside")
    assert outside.name == "outside"
    assert not hasattr(outside, "op")


def test_variables_that_are_there_or_not() -> None:
    def body(scope: ModelScope, x: Any) -> None:
        v1.get_variable("w", [3])
        with pytest.raises(ArgumentError, match="Variable w already exists"):
            v1.get_variable("w", [3])
        with v1.variable_scope("s", reuse=True), pytest.raises(ArgumentError, match="s/w does not exist"):
            v1.get_variable("w", [3])
        with v1.variable_scope("", reuse=True), pytest.raises(ArgumentError, match="w has shape"):
            v1.get_variable("w", [4])
        with pytest.raises(ArgumentError, match="needs a shape"):
            v1.get_variable("v")
        with pytest.raises(UnsupportedError, match="Variables keep their shape"):
            v1.get_variable("v", [3], custom_getter=lambda: 1)
        with pytest.raises(UnsupportedError, match=r"along axis 0.*divides v of shape \(3, 4\) into \[1, 2\]"):
            v1.get_variable("v", [3, 4], partitioner=v1.fixed_size_partitioner(2, axis=1))
        with pytest.raises(ArgumentError, match="needs a name"), v1.variable_scope(None):
            pass
        with v1.variable_scope(None, "auto") as one, v1.variable_scope(None, "auto"):
            pass
        with v1.variable_scope(None, "auto") as other:
            assert (one.name, other.name) == ("auto", "auto_1")
        assert v1.get_variable("n", [2], tf.int32).dtype == "int32"
        regularized = v1.get_variable("r", [3], regularizer=keras.regularizers.L2(0.5), initializer=tf.ones([3]))
        assert regularized.shape == (3,)
        assert len(v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)) == 1

    in_model_fn(body)


def test_collections_need_a_model_fn() -> None:
    for call in (
        v1.trainable_variables,
        v1.global_variables,
        lambda: v1.get_collection("losses"),
        lambda: v1.add_to_collection("mine", 1),
    ):
        with pytest.raises(StartupOrderError, match="inside of a model_fn"):
            call()


def test_collections() -> None:
    def body(scope: ModelScope, x: Any) -> None:
        assert v1.get_collection(v1.GraphKeys.UPDATE_OPS) == []
        v1.add_to_collection("mine", 1)
        v1.add_to_collection("mine", 2)
        assert v1.get_collection("mine") == [1, 2]
        v1.losses.mean_squared_error(x, x * 2)
        assert len(v1.get_collection(v1.GraphKeys.LOSSES)) == 1
        assert v1.get_collection(v1.GraphKeys.GLOBAL_STEP)[0] is v1.train.get_global_step()
        with pytest.raises(UnsupportedError, match="follows from the model_fn"):
            v1.add_to_collection(v1.GraphKeys.TRAINABLE_VARIABLES, x)
        v1.summary.scalar("s", tf.reduce_sum(x))
        tf.summary.scalar("t", tf.reduce_sum(x), step=v1.train.get_global_step())
        assert [s.tag for s in v1.get_collection(v1.GraphKeys.SUMMARIES)] == ["s", "t"]
        with pytest.raises(ArgumentError, match="are of its global step"):
            tf.summary.histogram("h", x, step=3)

    in_model_fn(body)


def test_variables_are_set_where_it_is_written(tmp_path: Path) -> None:
    def body(features: Any, labels: Any, mode: str) -> Any:
        w = tf.Variable(tf.zeros([3]), name="w")
        a, b = (tf.Variable(1.0, trainable=False, name=n) for n in "ab")
        assert v1.assign(a, a * 2) is a
        v1.assign_sub(v1.assign_add(b, 3.0), 1.0)
        loss, op = fit(labels, tf.linalg.matvec(features, w))
        step = v1.assign_add(v1.train.get_global_step(), 1)
        with pytest.raises(UnsupportedError, match="whole number that is known"):
            v1.assign_add(v1.train.get_global_step(), tf.reduce_sum(labels))
        with pytest.raises(ArgumentError, match="changes a variable"):
            v1.assign(loss, 1.0)
        return loss, tf.group(op, step, a)

    _, values = trained(tmp_path, body, steps=3)
    # Both updates count, as in TensorFlow: the second step is beyond the third.
    assert (values["a"], values["b"], values["global_step"]) == (4, 5, 4)


def test_there_is_nothing_to_initialise() -> None:
    def body(scope: ModelScope, x: Any) -> None:
        for name in ("global_variables_initializer", "local_variables_initializer", "tables_initializer"):
            assert getattr(v1, name)() == ()
        v1.train.Scaffold(local_init_op=tf.group(v1.tables_initializer()))

    in_model_fn(body)
    assert v1.global_variables_initializer() is None


# Layers.


@pytest.mark.slow
def test_layers_as_functions(tmp_path: Path) -> None:
    def body(features: Any, labels: Any, mode: str) -> Any:
        images = tf.reshape(features, [-1, 3, 1, 1])
        x = v1.layers.conv2d(images, 4, [2, 1], padding="same", activation=tf.nn.relu)
        x = v1.layers.max_pooling2d(x, pool_size=[2, 1], strides=1)
        x = v1.layers.batch_normalization(x, training=mode == "train", momentum=0.5, name="norm")
        with v1.variable_scope("top", reuse=v1.AUTO_REUSE):
            first = v1.layers.dense(v1.layers.flatten(x), 1, name="out")
            second = v1.layers.dense(v1.layers.flatten(x), 1, name="out")
        return fit(labels, tf.squeeze(first + second, 1))

    estimator, values = trained(tmp_path, body)
    layers = {"conv2d/kernel", "conv2d/bias", "norm/gamma", "norm/moving_mean", "top/out/kernel", "top/out/bias"}
    assert layers < set(values)
    assert not [name for name in values if name.startswith("top/out_")]
    assert values["norm/moving_mean"].any()
    assert estimator.evaluate(lambda: tf.data.Dataset.from_tensors((X, Y)))["global_step"] == 2


def test_layers_are_not_made_twice() -> None:
    def body(scope: ModelScope, x: Any) -> None:
        v1.layers.dense(x, 2, name="d")
        with pytest.raises(ArgumentError, match="Layer d already exists"):
            v1.layers.dense(x, 2, name="d")
        v1.layers.dense(x, 2, name="d", reuse=True)
        with pytest.raises(ArgumentError, match="Layer e does not exist"):
            v1.layers.dense(x, 2, name="e", reuse=True)
        with pytest.raises(ArgumentError, match=r"by position. Received 4"):
            v1.layers.dense(x, 2, None, True, "zeros")
        assert v1.layers.dense(x, 2, tf.nn.relu).shape == (4, 2)

    in_model_fn(body)


# Optimizers of Keras.

WAYS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "minimize": lambda optimizer, loss, variables: optimizer.minimize(loss, variables),
    "minimize with a tape": lambda optimizer, loss, variables: optimizer.minimize(
        loss, lambda: variables, tape=tf.GradientTape()
    ),
    "get_updates": lambda optimizer, loss, variables: tf.group(optimizer.get_updates(loss, variables)[0], []),
    "apply_gradients": lambda optimizer, loss, variables: optimizer.apply_gradients(
        zip(tf.gradients(loss, variables), variables, strict=True)
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_optimizers_of_keras(tmp_path: Path, way: str) -> None:
    def body(features: Any, labels: Any, mode: str) -> Any:
        layer = tf.keras.layers.Dense(1, kernel_initializer="zeros", kernel_regularizer="l2")
        model = tf.keras.Sequential([layer])
        predictions = tf.squeeze(model(features), 1)
        optimizer = tf.keras.optimizers.SGD(0.5)
        optimizer.iterations = v1.train.get_or_create_global_step()
        loss = tf.reduce_mean(tf.square(labels - predictions))
        total = tf.add_n([loss, *model.get_losses_for(None), *model.get_losses_for(features)])
        assert model.get_updates_for(features) == []
        return total, WAYS[way](optimizer, total, v1.trainable_variables())

    _, values = trained(tmp_path, body, steps=1)
    (kernel,) = [v for name, v in values.items() if name.endswith("dense/kernel")]
    np.testing.assert_allclose(kernel[:, 0], 0.5 * 2 * (Y[:, None] * X).mean(0), rtol=1e-5)
    assert values["global_step"] == 1


def test_a_computed_rate_of_an_optimizer_of_keras(tmp_path: Path) -> None:
    def body(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", (), initializer=tf.zeros_initializer())
        step = v1.train.get_global_step()
        optimizer = tf.keras.optimizers.SGD(learning_rate=v1.train.exponential_decay(1.0, step, 1, 0.5))
        return w, optimizer.minimize(w, [w])

    _, values = trained(tmp_path, body, steps=3)
    assert values["w"] == -1.75


def test_optimizers_of_keras_elsewhere() -> None:
    optimizer = keras.optimizers.SGD(0.5)
    variable = keras.Variable(1.0)
    optimizer.apply_gradients([(jnp.asarray(1.0), variable)])
    assert float(variable.value) == 0.5
    with pytest.raises(UnsupportedError, match="can be set to the global step"):
        optimizer.iterations = 3


# Input, export, settings.


def test_iterators_in_an_input_fn(tmp_path: Path) -> None:
    def input_fn() -> Any:
        dataset = tf.data.Dataset.from_tensor_slices(({"x": X}, Y)).batch(4)
        assert v1.data.get_output_types(dataset) == ({"x": tf.float32}, tf.float32)
        assert v1.data.get_output_shapes(dataset)[0]["x"][1] == 3
        features, labels = v1.data.make_one_shot_iterator(dataset).get_next()
        return features, labels

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss, op = fit(labels, tf.linalg.matvec(features["x"], tf.Variable(tf.zeros([3]), name="w")))
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=op)

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    estimator.train(input_fn)
    assert estimator.get_variable_value("global_step") == 2
    iterator = v1.data.make_initializable_iterator(tf.data.Dataset.range(3))
    assert iterator.initializer is None
    with pytest.raises(ArgumentError, match="not shared"):
        v1.data.make_initializable_iterator(tf.data.Dataset.range(3), shared_name="x")
    assert v1.data.Dataset is tf.data.Dataset


def test_placeholders_say_what_an_exported_model_takes(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        predictions = tf.linalg.matvec(features["x"], tf.Variable(tf.ones([3]), name="w"))
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"y": predictions})
        loss, op = fit(labels, predictions, 0.0)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=op)

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path / "model"))
    estimator.train(lambda: tf.data.Dataset.from_tensors(({"x": X}, Y)))
    raw = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": v1.placeholder(tf.float32, [None, 3])})

    def parsing() -> Any:
        examples = v1.placeholder(dtype=tf.string, shape=[None], name="examples")
        features = tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([3], tf.float32)})
        return tf.estimator.export.ServingInputReceiver(features, {"examples": examples})

    loaded = tf.saved_model.load(estimator.export_saved_model(str(tmp_path / "raw"), raw))
    signature = loaded.signatures[tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY]
    np.testing.assert_allclose(signature(x=tf.constant(X))["y"].numpy(), X.sum(1), rtol=1e-6)
    np.testing.assert_allclose(loaded(tf.constant(X))["y"].numpy(), X.sum(1), rtol=1e-6)
    assert signature.structured_input_signature == ((), {"x": tf.TensorSpec([None, 3], tf.float32, "x")})
    assert signature.structured_outputs["y"].shape.as_list() == [None]
    with pytest.raises(ArgumentError, match=r"options is a tf\.saved_model\.LoadOptions"):
        tf.saved_model.load(tmp_path, options=3)
    loaded = v1.saved_model.load_v2(estimator.export_saved_model(str(tmp_path / "parsing"), parsing))
    feature = tf.train.Feature(float_list=tf.train.FloatList(value=X[1]))
    example = tf.train.Example(features=tf.train.Features(feature={"x": feature})).SerializeToString()
    served = loaded.signatures[v1.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY](examples=[example])
    np.testing.assert_allclose(served["y"].numpy(), X[1:2].sum(1), rtol=1e-6)


def test_older_losses_on_logits() -> None:
    labels, logits = tf.constant([[0.0, 1.0]]), tf.constant([[1.0, 3.0]])
    expected = tf.nn.softmax_cross_entropy_with_logits(labels, logits).numpy()
    assert v1.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits).numpy() == expected
    assert v1.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits).numpy() == expected
    assert v1.nn.softmax(logits, dim=0).numpy().tolist() == [[1, 1]]
    assert v1.nn.log_softmax(logits, dim=-1).numpy().tolist() == tf.nn.log_softmax(logits).numpy().tolist()
    with pytest.raises(ArgumentError, match="by name"):
        v1.nn.softmax_cross_entropy_with_logits(labels, logits)
    with pytest.raises(ArgumentError, match="One of keep_prob and rate"):
        v1.nn.dropout(logits)
    assert v1.nn.relu is tf.nn.relu


@pytest.mark.slow
def test_initializers() -> None:
    assert np.asarray(v1.zeros_initializer()((2,), "float32")).tolist() == [0, 0]
    assert np.asarray(v1.ones_initializer()((2,), "float32")).tolist() == [1, 1]
    assert np.asarray(v1.constant_initializer(3.0)((2,), "float32")).tolist() == [3, 3]
    assert np.asarray(v1.random_uniform_initializer(2.0, 3.0)((9,), "float32")).min() >= 2
    assert np.asarray(v1.truncated_normal_initializer(5.0, 0.1)((9,), "float32")).min() > 4
    assert np.asarray(v1.random_normal_initializer(5.0, 0.1)((9,), "float32")).mean() > 4
    assert np.asarray(tf.constant_initializer(2.0)((2,))).tolist() == [2, 2]
    assert np.abs(np.asarray(tf.random_uniform_initializer()((99,)))).max() <= 0.05
    for name in ("glorot_uniform", "glorot_normal", "orthogonal", "variance_scaling"):
        assert np.asarray(getattr(v1, f"{name}_initializer")()((3, 3), "float32")).shape == (3, 3)
    with pytest.raises(ArgumentError, match="floating-point"):
        v1.random_normal_initializer(dtype=tf.int32)
    with pytest.raises(ArgumentError, match="check shapes"):
        v1.constant_initializer(3.0, verify_shape=False)


def test_settings_of_sessions() -> None:
    settings = v1.ConfigProto(allow_soft_placement=True, gpu_options=v1.GPUOptions(force_gpu_compatible=True))
    assert tf.estimator.RunConfig(session_config=settings).session_config is settings


# Where names are.


@pytest.mark.parametrize(
    "path",
    [
        *("compat.v1.disable_eager_execution", "estimator.ModeKeys.TRAIN", "cast", "float32", "keras.Sequential"),
        *("keras.layers.Conv2D", "keras.losses.SparseCategoricalCrossentropy", "keras.losses.Reduction.NONE"),
        *("compat.v1.train.GradientDescentOptimizer", "compat.v1.train.get_or_create_global_step", "reduce_sum"),
        *("estimator.EstimatorSpec", "distribute.experimental.MultiWorkerMirroredStrategy", "estimator.RunConfig"),
        *("estimator.Estimator", "estimator.train_and_evaluate", "estimator.TrainSpec", "estimator.EvalSpec"),
        *("estimator.export.ServingInputReceiver", "estimator.experimental.stop_if_no_decrease_hook"),
        *(
            "compat.v1.estimator.inputs.numpy_input_fn",
            "compat.v1.estimator.Estimator",
            "feature_column.numeric_column",
        ),
        *("compat.v1.feature_column.input_layer", "compat.v1.metrics.accuracy", "compat.v1.losses.get_total_loss"),
        *("compat.v1.train.SessionRunHook", "compat.v1.train.Scaffold", "compat.v1.train.NewCheckpointReader"),
        *("train.AdamOptimizer", "train.SessionRunHook", "train.list_variables", "compat.v1.summary.FileWriter"),
        *("compat.v1.train.Example", "compat.v1.saved_model.SERVING", "compat.v1.saved_model.tag_constants.SERVING"),
    ],
)
def test_names_of_programs(path: str) -> None:
    found: Any = tf
    for part in path.split("."):
        found = getattr(found, part)
    assert found is not None


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        ("compat.v1.train", "Saver", "WarmStartSettings"),
        ("compat.v1.train", "MonitoredTrainingSession", "SessionRunHook"),
        ("compat.v1.train", "shuffle_batch", "tf.data.Dataset"),
        ("compat.v1.train", "QueueRunner", "optimizers and hooks"),
        ("compat.v1.saved_model", "load", "docs/tensorflow_names.md"),
        ("estimator", "tpu", "docs/tensorflow_names.md"),
    ],
)
def test_names_that_are_not_there(module: str, name: str, advice: str) -> None:
    found: Any = tf
    for part in module.split("."):
        found = getattr(found, part)
    with pytest.raises(AttributeError, match=advice):
        getattr(found, name)


def test_the_newest_checkpoint_of_either_kind(tmp_path: Path) -> None:
    from lockstep.checkpoint import CheckpointStore

    assert tf.train.latest_checkpoint(tmp_path) is None
    with CheckpointStore(tmp_path / "estimator") as store:
        prefix = store.save(3, {"v": np.float32(1)})
    assert tf.train.latest_checkpoint(tmp_path / "estimator") == prefix
    assert v1.train.latest_checkpoint(str(tmp_path / "estimator")) == prefix
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    (tmp_path / "keras").mkdir()
    model.save_weights(str(tmp_path / "keras" / "cp.ckpt"))
    assert tf.train.latest_checkpoint(tmp_path / "keras") == str(tmp_path / "keras" / "cp.ckpt")


def test_text_is_looked_up_for_numbers_and_back(tmp_path: Path) -> None:
    words = np.array([b"a", b"b", b"x", b"c"], object)
    forward = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b", "c"], [10.0, 20.0, 30.0]), -1.0)
    counted = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], [0, 1], tf.string, tf.int64), num_oov_buckets=1
    )
    back = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], ["no", "yes"]), "other")

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        w = tf.Variable(tf.ones([]), name="w")
        looked_up = forward.lookup(features["text"]) * w
        predictions = {
            "value": looked_up,
            "number": counted.lookup(features["text"]),
            "bucket": tf.strings.to_hash_bucket_fast(features["text"], 7),
            "word": back.lookup(counted.lookup(features["text"])),
        }
        loss = tf.reduce_mean(looked_up)
        op = v1.train.GradientDescentOptimizer(0.0).minimize(loss)
        return tf.estimator.EstimatorSpec(mode, predictions=predictions, loss=loss, train_op=op)

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    estimator.train(lambda: tf.data.Dataset.from_tensors({"text": words}))
    found = list(estimator.predict(lambda: tf.data.Dataset.from_tensors({"text": words})))
    assert [p["value"] for p in found] == [10, 20, -1, 30]
    assert [p["number"] for p in found] == [0, 1, 2, 2]
    assert [p["word"] for p in found] == [b"no", b"yes", b"other", b"other"]
    assert [p["bucket"] for p in found] == tf.strings.to_hash_bucket_fast(words, 7).numpy().tolist()


def test_tables_that_a_model_fn_cannot_use() -> None:
    names = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([3, 4], ["a", "b"]), "c")

    def body(scope: ModelScope, x: Any) -> None:
        with pytest.raises(UnsupportedError, match="numbers from 0 up"):
            names.lookup(tf.cast(x, tf.int32))

    in_model_fn(body)
