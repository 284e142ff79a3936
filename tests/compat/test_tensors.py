"""Tensors on the host, their types and shapes, variables, and the methods that JAX's arrays get."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError, UnsupportedError


def test_constants_have_tensorflows_types() -> None:
    assert tf.constant([1.0, 2.0]).dtype == tf.float32
    assert tf.constant(3).dtype == tf.int32
    assert tf.constant(2**40).dtype == tf.int64
    assert tf.constant(True).dtype == tf.bool
    assert tf.constant("é").numpy() == "é".encode()
    assert tf.constant(np.zeros(2)).dtype == tf.float64
    assert tf.constant([1, 2], dtype=tf.int64).dtype == tf.int64
    assert tf.constant(7, shape=[2, 2]).numpy().tolist() == [[7, 7], [7, 7]]


def test_bytes_keep_trailing_zeros() -> None:
    assert tf.constant([b"a\0", b"bc"]).numpy().tolist() == [b"a\0", b"bc"]


def test_computing_narrows_to_32_bits_as_jax_does() -> None:
    assert (tf.constant(np.arange(3)) + 1).dtype == np.int32
    assert (tf.constant(np.zeros(3)) * 2).dtype == np.float32
    assert (tf.constant(np.array([1, 2], np.uint8)) / 255).dtype == np.float32
    with pytest.raises(ArgumentError, match="jax_enable_x64"):
        tf.constant(2**40) + 1


def test_a_tensor_is_not_changed_in_place() -> None:
    first = tf.constant([4, 6])
    second = first
    second /= 2
    assert second.numpy().tolist() == [2.0, 3.0]
    assert first.numpy().tolist() == [4, 6]
    with pytest.raises(TypeError, match="tensor_scatter_nd_update"):
        first[0] = 1


def test_indexing_and_iterating_give_tensors() -> None:
    rows = tf.constant([[1, 2], [3, 4]])
    assert rows[1, 0].numpy() == 3
    assert [r.numpy().tolist() for r in rows] == [[1, 2], [3, 4]]
    assert rows[..., tf.newaxis].shape == (2, 2, 1)
    assert f"{rows[0, 0]:03d}" == "001"
    assert repr(rows[0]) == "<tf.Tensor: shape=(2,), dtype=int32, numpy=array([1, 2], dtype=int32)>"


def test_text_compares_with_str() -> None:
    parts = tf.strings.split("data/cat/1.jpg", "/")
    assert (parts[-2] == np.array(["dog", "cat"])).numpy().tolist() == [False, True]
    assert bool(parts[-2] == "cat")
    assert (parts[0] + "!").numpy() == b"data!"


def test_shapes_have_tensorflows_methods() -> None:
    shape = tf.zeros([2, 3, 4]).shape
    assert shape.as_list() == [2, 3, 4]
    assert shape.rank == 3
    assert shape[1:].num_elements() == 12
    assert tf.TensorShape([None, 3]).is_compatible_with([5, 3])
    assert not tf.TensorShape([None, 3]).is_compatible_with([5, 4])


def test_set_shape_checks() -> None:
    image = tf.zeros([4, 5, 3])
    image.set_shape([None, None, 3])
    with pytest.raises(ArgumentError, match="must have shape"):
        image.set_shape([4, 5, 1])


def test_types_serve_numpy_jax_and_keras() -> None:
    assert np.zeros(3).astype(tf.float16).dtype == np.float16
    assert jnp.zeros(3, tf.int32).dtype == np.int32
    assert jnp.zeros(3).astype(tf.bfloat16).dtype == jnp.bfloat16
    assert keras.Input((3,), dtype=tf.int32).dtype == "int32"
    assert keras.Input((), dtype=tf.string).dtype == "string"
    assert keras.layers.Dense(2, dtype=tf.float16).compute_dtype == "float16"
    assert keras.ops.cast(np.zeros(2), tf.int32).dtype == np.int32


def test_types_know_what_they_are() -> None:
    assert tf.as_dtype("float32") is tf.float32
    assert tf.as_dtype(float) is tf.float32
    assert tf.as_dtype(np.dtype("U3")) is tf.string
    assert tf.uint8.max == 255
    assert tf.float32.is_floating
    assert tf.float32.as_numpy_dtype is np.float32
    assert tf.int64 == "int64"
    assert tf.int64 != tf.int32
    with pytest.raises(ArgumentError, match="must be one of"):
        tf.as_dtype("float31")


def test_what_is_a_tensor() -> None:
    assert isinstance(tf.constant(1), tf.Tensor)
    assert isinstance(jnp.zeros(1), tf.Tensor)
    assert not isinstance(np.zeros(1), tf.Tensor)
    assert tf.is_tensor(tf.Variable(1.0))
    assert not tf.is_tensor([1])


def test_tensors_mix_with_jax_and_keras() -> None:
    host = tf.constant([1.0, 2.0])
    assert isinstance(host + jnp.ones(2), jax.Array)
    assert isinstance(jnp.ones(2) * host, jax.Array)
    variable = tf.Variable([3.0, 4.0])
    assert np.asarray(host * variable).tolist() == [3.0, 8.0]
    assert np.asarray(tf.reduce_sum(variable)).tolist() == 7.0
    assert jax.jit(lambda x: x + host)(host).numpy().tolist() == [2.0, 4.0]


def test_jax_arrays_have_numpy() -> None:
    assert jnp.float32(2.5).numpy() == 2.5
    assert jnp.zeros((2, 3)).get_shape().as_list() == [2, 3]
    with pytest.raises(UnsupportedError, match=r"tf\.print"):
        jax.jit(lambda x: x.numpy())(1.0)


@pytest.mark.slow
def test_jax_is_left_alone_without_this_package() -> None:
    code = (
        "import lockstep, jax.numpy as jnp, sys; assert not hasattr(jnp.zeros(1), 'numpy'); "
        "import lockstep.compat.tensorflow as tf; assert jnp.zeros(1).numpy() == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.slow
def test_import_does_not_start_jax() -> None:
    code = (
        "import lockstep.compat.tensorflow as tf; from jax._src import xla_bridge; tf.constant(1) + 1; "
        "tf.random.set_seed(1); tf.config.list_physical_devices('GPU'); tf.random.normal([2]); "
        "assert not xla_bridge.backends_are_initialized()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_variables() -> None:
    count = tf.Variable(3, name="count", trainable=False)
    assert count.assign_add(2) is count
    assert count.numpy() == 5
    assert count.dtype == "int32"
    count.assign_sub(1.0)
    assert int(count.numpy()) == 4
    table = tf.Variable(lambda: tf.zeros([2, 2]))
    table.scatter_nd_update([[0]], [[1.0, 2.0]])
    assert table.numpy().tolist() == [[1.0, 2.0], [0.0, 0.0]]
    with pytest.raises(UnsupportedError, match="text"):
        tf.Variable("a")


def test_layers_track_variables() -> None:
    class Scale(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.factor = tf.Variable(2.0)

        def call(self, x):
            return tf.math.multiply(x, self.factor)

    layer = Scale()
    assert len(layer.trainable_variables) == 1
    assert layer(np.ones((1, 2), np.float32)).numpy().tolist() == [[2.0, 2.0]]


@pytest.mark.slow
def test_functional_models_take_operations() -> None:
    inputs = keras.Input((4, 6))
    x = tf.transpose(tf.nn.relu(inputs), [0, 2, 1])
    x = tf.concat([x, tf.cast(tf.expand_dims(inputs[:, 0], -1), tf.float32)], axis=-1)
    x = tf.reshape(x, [-1, tf.shape(x)[1] * 5]) / 2.0
    x = tf.reduce_mean(tf.nn.l2_normalize(x, -1), axis=-1, keepdims=True)
    model = keras.Model(inputs, tf.where(x > 0.1, x, tf.math.rsqrt(x)))
    assert model(np.ones((2, 4, 6), np.float32)).shape == (2, 1)


def test_symbolic_tensors_that_cannot_be_looked_into() -> None:
    with pytest.raises(UnsupportedError, match=r"tf\.where"):
        tf.boolean_mask(keras.Input((3,)), [True])


def test_function_calls_the_function() -> None:
    total = tf.Variable(0.0)

    @tf.function
    def add(x):
        total.assign_add(x)
        return total.read_value()

    assert float(add(2.0)) == 2.0
    assert float(add(3.0)) == 5.0

    @tf.function(jit_compile=True)
    def read(x):
        return x + total.value

    assert float(read(jnp.float32(1.0))) == 6.0
    total.assign(10.0)
    assert float(read(jnp.float32(1.0))) == 11.0


def test_function_checks_its_signature() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def double(x):
        return x * 2

    assert double([[1, 2]]).dtype == tf.float32
    with pytest.raises(ArgumentError, match="shape"):
        double([1.0, 2.0])
    with pytest.raises(ArgumentError, match="graphs"):
        tf.function(double, experimental_implements="x")


def test_random_numbers() -> None:
    tf.random.set_seed(3)
    first = tf.random.normal([4]).numpy()
    initial = keras.initializers.GlorotUniform()((3, 3))
    tf.random.set_seed(3)
    assert np.array_equal(tf.random.normal([4]).numpy(), first)
    assert np.array_equal(keras.initializers.GlorotUniform()((3, 3)), initial)
    drawn = tf.random.uniform([1000], 5, 8, tf.int32).numpy()
    assert set(drawn.tolist()) == {5, 6, 7}
    assert abs(tf.random.truncated_normal([1000]).numpy()).max() <= 2
    assert sorted(tf.random.shuffle(tf.range(9)).numpy().tolist()) == list(range(9))


def test_random_numbers_of_a_seed_are_the_same_compiled() -> None:
    eager = tf.random.stateless_normal([3], seed=[1, 2])
    compiled = jax.jit(lambda s: tf.random.stateless_normal([3], seed=s))(jnp.array([1, 2]))
    np.testing.assert_allclose(eager, compiled, rtol=1e-6)
    with pytest.raises(UnsupportedError, match="SeedGenerator"):
        jax.jit(lambda x: x + tf.random.normal([3]))(1.0)


def test_operations_refuse_what_they_cannot_do() -> None:
    with pytest.raises(ArgumentError, match=r"range \[0, 3\)"):
        tf.gather([1, 2, 3], [3])
    with pytest.raises(ArgumentError, match="equal parts"):
        tf.split([1, 2, 3], 2)
    with pytest.raises(UnsupportedError, match="Text stays on the host"):
        tf.concat([jnp.zeros(1), ["a"]], 0)
    with pytest.raises(UnsupportedError, match="when it compiles"):
        jax.jit(lambda n: tf.zeros(n))(3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="equal"):
        tf.debugging.assert_equal(1, 2)


def test_text() -> None:
    assert tf.strings.to_number(["1.5", "2"]).numpy().tolist() == [1.5, 2.0]
    assert tf.strings.regex_replace("a1b22", "[0-9]+", "<\\0>").numpy() == b"a<1>b<22>"
    assert tf.strings.join(["a", ["b", "c"]], "-").numpy().tolist() == [b"a-b", b"a-c"]
    assert tf.strings.substr("hello", -3, 2).numpy() == b"ll"
    assert tf.strings.length(["é", ""], unit="UTF8_CHAR").numpy().tolist() == [1, 0]
    assert tf.strings.as_string([1.5, -2.0], precision=2).numpy().tolist() == [b"1.50", b"-2.00"]
    assert tf.strings.reduce_join([["a", "b"], ["c", "d"]], axis=0).numpy().tolist() == [b"ac", b"bd"]
    hashed = tf.strings.to_hash_bucket_fast(["a", "b", "a"], 100).numpy()
    assert hashed[0] == hashed[2]
    assert (hashed < 100).all()


def test_print(capsys: pytest.CaptureFixture[str]) -> None:
    tf.print("loss", tf.constant(1.5), [1, 2], output_stream=sys.stdout)
    jax.jit(lambda x: tf.print("x =", x, output_stream=sys.stdout))(2)
    jax.effects_barrier()
    assert capsys.readouterr().out == "loss 1.5 [1, 2]\nx = 2\n"


def test_a_generator_goes_on_from_a_state() -> None:
    tf.random.set_seed(None)
    generator = tf.random.Generator.from_seed(7)
    first = generator.normal([3]).numpy().tolist()
    state = generator.state
    assert (state.shape, state.dtype) == ([8], tf.uint64)
    drawn = generator.uniform([2]).numpy().tolist()
    assert tf.random.Generator.from_state(state).uniform([2]).numpy().tolist() == drawn
    generator.reset(state)
    assert generator.uniform([2]).numpy().tolist() == drawn
    generator.reset_from_seed(7)
    assert generator.normal([3]).numpy().tolist() == first
    with pytest.raises(ArgumentError, match="eight numbers"):
        generator.reset([1, 2])
