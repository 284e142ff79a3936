"""Names of TensorFlow 1: layers as classes, variables, assertions, files, and advice for what is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from tests.compat.test_model_fn import trained

v1 = tf.compat.v1


@pytest.mark.slow
def test_layers_are_classes(tmp_path: Path) -> None:
    names: list[str] = []

    def body(features: Any, labels: Any, mode: str) -> Any:
        net = v1.layers.Dense(4, tf.nn.relu, kernel_initializer=None)(features)
        net = v1.layers.BatchNormalization(-1, 0.9, fused=True)(net, training=mode == "train")
        net = v1.layers.Dropout(0.5)(net, training=mode == "train")
        net = v1.layers.Flatten()(net)
        out = v1.layers.Dense(1, name="last").apply(net)
        names[:] = [v.name for v in v1.trainable_variables()]
        loss = v1.losses.mean_squared_error(labels[:, None], out)
        return loss, v1.train.AdamOptimizer(0.1).minimize(loss)

    trained(tmp_path, body)
    assert names == [
        *("dense/kernel:0", "dense/bias:0", "batch_normalization/gamma:0", "batch_normalization/beta:0"),
        *("last/kernel:0", "last/bias:0"),
    ]


@pytest.mark.slow
def test_layers_outside_of_a_model_fn() -> None:
    image = np.ones((1, 4, 4, 2), np.float32)
    assert v1.layers.Conv2D(3, 2, 1, "same")(image).shape == (1, 4, 4, 3)
    assert v1.layers.MaxPooling2D(2, 2)(image).shape == (1, 2, 2, 2)
    # Not in training unless it is said, whatever Keras' learning phase is.
    np.testing.assert_array_equal(v1.layers.Dropout(0.9)(image), image)
    with pytest.raises(tf.errors.UnimplementedError, match="renorm"):
        v1.layers.BatchNormalization(renorm=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="by position"):
        v1.layers.Dense(1, None, True, None)


def test_collections_of_variables(tmp_path: Path) -> None:
    found: dict[str, Any] = {}

    def body(features: Any, labels: Any, mode: str) -> Any:
        weight = v1.get_variable("w", [3, 1], collections=["mine", v1.GraphKeys.GLOBAL_VARIABLES])
        local = v1.Variable(0.0, trainable=False, collections=[v1.GraphKeys.LOCAL_VARIABLES], name="local")
        v1.metrics.mean(labels)
        found["mine"] = v1.get_collection("mine") == [weight]
        found["local"] = v1.local_variables()[0] is local
        found["global"] = [v.name for v in v1.global_variables()]
        found["metric"] = [v.name for v in v1.get_collection(v1.GraphKeys.METRIC_VARIABLES)]
        found["class"] = isinstance(weight, v1.Variable)
        v1.get_collection_ref("list").append(1)
        v1.add_to_collections(("list", "other"), 2)
        found["list"] = v1.get_collection("list")
        loss = tf.reduce_mean(tf.square(tf.matmul(features, weight)[:, 0] - labels))
        return loss, v1.train.GradientDescentOptimizer(0.1).minimize(loss)

    _, variables = trained(tmp_path, body)
    assert found == {
        "mine": True,
        "local": True,
        "global": ["w:0"],
        "metric": ["mean/total:0", "mean/count:0"],
        "class": True,
        "list": [1, 2],
    }
    assert sorted(variables) == ["global_step", "w"]


def test_assertions_take_data_before_the_message() -> None:
    v1.assert_equal(1, 1, [1], 3, "never")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"as told\. Elements must be equal"):
        v1.assert_equal(1, 2, [1], 3, "as told")
    with pytest.raises(tf.errors.InvalidArgumentError):
        v1.Assert(False, [1])


def test_arguments_have_other_names() -> None:
    array = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(v1.reduce_sum(array, reduction_indices=1, keep_dims=True), [[3], [12]])
    np.testing.assert_array_equal(v1.argmax(array, dimension=1), [2, 2])
    assert v1.expand_dims(array, dim=0).shape == (1, 2, 3)
    assert v1.div(7, 2) == 3 and v1.div(-7, 2) == -4 and v1.div(7.0, 2.0) == 3.5
    image, kernel = np.ones((1, 3, 3, 1), np.float32), np.ones((2, 2, 1, 1), np.float32)
    np.testing.assert_array_equal(v1.nn.conv2d(image, filter=kernel, strides=1, padding="VALID")[0, 0, 0], [4])
    assert v1.nn.max_pool(value=image, ksize=2, strides=1, padding="VALID").shape == (1, 2, 2, 1)
    np.testing.assert_array_equal(
        v1.nn.xw_plus_b(array, np.ones((3, 1), np.float32), np.ones(1, np.float32)), [[4], [13]]
    )


def test_files(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "records")
    v1.gfile.MakeDirs(str(tmp_path / "a"))
    example = tf.train.Example(
        features=tf.train.Features(feature={"a": tf.train.Feature(int64_list=tf.train.Int64List(value=[3]))})
    ).SerializeToString()
    with v1.python_io.TFRecordWriter(path) as writer:
        writer.write(example)
    assert list(v1.python_io.tf_record_iterator(path)) == [example]
    assert v1.gfile.Stat(path).length == len(example) + 16 and v1.gfile.ListDirectory(str(tmp_path)) == ["a"]
    features = {"a": tf.io.FixedLenFeature([], tf.int64)}
    # Positions and names that TensorFlow has besides.
    np.testing.assert_array_equal(tf.io.parse_example([example, example], features, None, "name")["a"], [3, 3])
    assert tf.io.parse_single_example(example, features, name="name")["a"] == 3
    v1.gfile.DeleteRecursively(str(tmp_path / "a"))
    assert not v1.gfile.Exists(path)


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("Session", "feed_dict"),
        ("InteractiveSession", "docs/tensorflow.md"),
        ("estimator.experimental.LinearSDCA", "Ftrl"),
        ("estimator.experimental.RNNClassifier", "tf.keras.layers.LSTM"),
        ("estimator.BoostedTreesClassifier", "boosted trees"),
        ("nn.dynamic_rnn", "tf.keras.layers.RNN"),
        ("nn.raw_rnn", "tf.keras.layers.RNN"),
    ],
)
def test_what_is_not_there_says_what_is(path: str, advice: str) -> None:
    found: Any = v1
    with pytest.raises(AttributeError, match=advice):
        for name in path.split("."):
            found = getattr(found, name)


def test_a_program_parses_flags_that_it_has_not_defined(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []
    with pytest.raises(SystemExit):
        v1.app.run(lambda argv: seen.append(argv), ["program", "--unknown=1", "rest"])
    assert seen == [["program", "--unknown=1", "rest"]]
