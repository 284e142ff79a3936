"""Errors are those that TensorFlow raises, by class and attributes, and end iterations as Python expects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError
from lockstep.testing import TaskError

INVALID: dict[str, Callable[[], Any]] = {
    "index": lambda: tf.constant([1, 2])[5],
    "reshape": lambda: tf.reshape(tf.zeros(6), [7, -1]),
    "operator": lambda: tf.zeros([2, 3]) + tf.zeros([4]),
    "add": lambda: tf.add(tf.zeros([2, 3]), tf.zeros([4])),
    "matmul": lambda: tf.matmul(tf.zeros([2, 3]), tf.zeros([2, 3])),
    "matmul_jax": lambda: tf.matmul(jnp.zeros([2, 3]), jnp.zeros([2, 3])),
    "concat": lambda: tf.concat([tf.zeros([2, 3]), tf.zeros([2, 2])], 0),
    "stack": lambda: tf.stack([tf.zeros(2), tf.zeros(3)]),
    "squeeze": lambda: tf.squeeze(tf.zeros([2, 3]), 0),
    "split": lambda: tf.split(tf.zeros(5), 2),
    "gather": lambda: tf.gather([1, 2], [5]),
    "to_number": lambda: tf.strings.to_number("abc"),
    "assert_equal": lambda: tf.debugging.assert_equal(1, 2),
    "decode": lambda: tf.io.decode_jpeg(b"xx"),
    "batch": lambda: list(tf.data.Dataset.from_generator(lambda: iter([[1], [1, 2]]), tf.int32).batch(2)),
}


@pytest.mark.parametrize("name", INVALID)
def test_what_tensorflow_calls_an_invalid_argument(name: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        INVALID[name]()
    error = caught.value
    assert isinstance(error, tf.errors.OpError)
    assert error.error_code == tf.errors.INVALID_ARGUMENT == 3
    assert error.message == str(error)
    assert (error.op, error.node_def) == (None, None)


def test_an_error_of_a_programs_own_function_passes() -> None:
    class OwnError(ValueError):
        pass

    def fail(_: Any) -> Any:
        raise OwnError("mine")

    with pytest.raises(OwnError, match="mine"):
        tf.map_fn(fail, tf.constant([1]))
    with pytest.raises(TypeError) as caught:
        tf.add(1, 2, bogus=3)
    assert not isinstance(caught.value, tf.errors.OpError)


def test_programs_raise_them_with_tensorflows_arguments() -> None:
    error = tf.errors.OutOfRangeError(None, "op", "the end")
    assert (str(error), error.message, error.op) == ("the end", "the end", "op")
    assert error.error_code == tf.errors.OUT_OF_RANGE
    assert [tf.errors.NotFoundError(None, None, "x").error_code, ArgumentError("x").error_code] == [5, 3]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(tf.errors.OpError):
        raise tf.errors.InvalidArgumentError(None, None, "wrong")


def test_errors_with_arguments_of_their_own_keep_their_text() -> None:
    error = TaskError({"worker 1": "disk gone"}, {"worker 1": "output"}, {"worker 0": "done"})
    assert str(error).startswith("worker 1 failed.\ndisk gone")
    assert (error.op, error.results) == (None, {"worker 0": "done"})  # pyright: ignore[reportAttributeAccessIssue]


def test_the_end_of_a_dataset() -> None:
    iterator = iter(tf.data.Dataset.range(1))
    assert iterator.get_next().numpy() == 0
    with pytest.raises(tf.errors.OutOfRangeError) as caught:
        iterator.get_next()
    assert isinstance(caught.value, StopIteration)
    with pytest.raises(StopIteration) as plain:
        next(iterator)
    assert not isinstance(plain.value, tf.errors.OpError)


def test_files(tmp_path: Path) -> None:
    missing, there = str(tmp_path / "missing"), str(tmp_path / "there")
    tf.io.write_file(there, "text")
    for ask in (
        *(tf.io.read_file, tf.io.gfile.listdir, tf.io.gfile.remove, tf.io.gfile.rmtree, tf.io.gfile.stat),
        lambda path: tf.io.gfile.GFile(path).read(),
        lambda path: list(tf.data.TFRecordDataset(path)),
    ):
        with pytest.raises(tf.errors.NotFoundError):
            ask(missing)
    with pytest.raises(tf.errors.AlreadyExistsError):
        tf.io.gfile.copy(there, there)
    tf.io.gfile.mkdir(str(tmp_path))


def test_types_of_values() -> None:
    for make in (
        lambda: tf.constant(1.5, tf.int32),
        lambda: tf.constant("abc", tf.int32),
        lambda: tf.constant(1, tf.string),
    ):
        with pytest.raises(TypeError, match="must be made of such values"):
            make()
    with pytest.raises(ValueError, match="Received: None"):
        tf.convert_to_tensor(None)
    assert tf.constant([], tf.string).dtype is tf.string
    assert tf.constant(np.array([1.5]), tf.int32).numpy().tolist() == [1]
    assert repr(tf.constant(2.3)) == "<tf.Tensor: shape=(), dtype=float32, numpy=2.3>"
    assert repr(tf.constant("a")) == "<tf.Tensor: shape=(), dtype=string, numpy=b'a'>"
