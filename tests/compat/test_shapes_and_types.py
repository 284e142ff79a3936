"""Shapes, specs and types of tensors behave as TensorFlow's, on all classes of tensors, and in programs alone."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf

TENSORS: dict[str, Any] = {
    "host": lambda: tf.constant([[1.0, 2.0, 3.0]] * 2),
    "jax": lambda: jnp.ones((2, 3)),
    "symbolic": lambda: keras.KerasTensor((2, 3)),
    "variable": lambda: tf.Variable(np.zeros((2, 3), np.float32)),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_every_tensor_has_tensorflows_shape_and_type(kind: str) -> None:
    x = TENSORS[kind]()
    assert x.shape == [2, 3]
    assert x.shape.as_list() == x.get_shape().as_list() == [2, 3]
    assert (x.shape.rank, x.shape.ndims, x.shape.num_elements()) == (2, 2, 6)
    assert x.dtype is tf.float32
    assert x.dtype.is_floating
    assert (x.dtype.name, x.dtype) == ("float32", "float32")
    assert len({x.ref(), x.ref()}) == 1
    assert x.ref().deref() is x


def test_compiled_code_sees_them_too() -> None:
    @jax.jit
    def double(x: Any) -> Any:
        assert x.shape == [2, 3]
        assert x.shape.as_list() == [2, 3]
        assert x.dtype is tf.int32
        assert x.name == "Tensor:0"
        return jnp.reshape(x * 2, x.shape).astype(x.dtype)

    assert double(jnp.ones((2, 3), jnp.int32)).shape == [2, 3]


def test_other_modules_see_what_jax_and_keras_have() -> None:
    for x, dtype in ((jnp.ones(2), np.dtype), (tf.constant([1.0]), np.dtype), (keras.KerasTensor((2,)), str)):
        # In a list: a name that has a tensor of this package counts as an import of it.
        names: dict[str, Any] = {"__name__": "a_library", "xs": [x]}
        exec("shape, dtype = xs[0].shape, xs[0].dtype", names)
        assert isinstance(names["dtype"], dtype)
        assert type(names["shape"]) is (tf.TensorShape if isinstance(x, np.ndarray) else tuple)
    names = {"__name__": "a_library", "variables": [tf.Variable(1.0)]}
    with pytest.raises(TypeError, match="callable"):
        exec("variables[0].value()", names)


def test_a_function_that_imports_the_package_sees_them() -> None:
    within: dict[str, Any] = {"__name__": "a_late_program", "x": jnp.ones(1)}
    exec(
        "before = type(x.shape)\ndef f():\n import lockstep.compat.tensorflow as tf\n return x.dtype.is_floating",
        within,
    )
    assert within["before"] is tuple
    assert within["f"]()
    exec("import lockstep.compat.tensorflow as tf\nshape = x.shape.as_list()", within)
    assert within["shape"] == [1]


def test_a_variables_value_is_a_method_and_an_attribute() -> None:
    v = tf.Variable([1.0, 2.0])
    called = v.value()  # Not in the assert, which pytest takes apart.
    assert called.numpy().tolist() == [1.0, 2.0]
    assert v.value.tolist() == [1.0, 2.0]


def test_scalars_in_text() -> None:
    loss = tf.constant(1.5)
    assert (f"{loss}", f"{loss:.3f}", f"{jnp.float32(0.25):.1f}") == ("1.5", "1.500", "0.2")
    assert tf.constant([1, 2]).device == jnp.ones(1).device == "/job:localhost/replica:0/task:0/device:CPU:0"


def test_shapes_of_unknown_rank() -> None:
    unknown = tf.TensorShape(None)
    assert (unknown.rank, unknown.ndims, unknown.dims, unknown.num_elements()) == (None,) * 4
    assert (repr(unknown), str(unknown)) == ("TensorShape(None)", "<unknown>")
    assert unknown == tf.TensorShape(None) != [2]
    assert unknown[1:3] == [None, None]
    assert unknown[0] is None
    assert unknown.is_compatible_with([3])
    assert unknown.merge_with([3]) == [3]
    assert tf.TensorShape([1]).concatenate(None) == unknown
    for ask in (len, list, lambda s: s.as_list()):
        with pytest.raises(ValueError, match="number of dimensions"):
            ask(unknown)


def test_shapes_are_compared_and_joined() -> None:
    shape = tf.TensorShape([1, None])
    assert shape.merge_with([1, 2]) == [1, 2]
    assert shape.most_specific_compatible_shape([1, 2]) == [1, None]
    assert shape.most_specific_compatible_shape([1]).rank is None
    assert tf.TensorShape([1, 2]).is_subtype_of(shape)
    assert tf.TensorShape(5) == (5,) == tf.TensorShape([tf.constant(5)])
    assert (shape + [3]).as_list() == [1, None, 3]  # noqa: RUF005
    assert [d.value for d in shape.dims] == [1, None]
    assert copy.deepcopy(shape) == pickle.loads(pickle.dumps(shape)) == shape
    for wrong in (lambda: shape.merge_with([2, 2]), lambda: shape.with_rank(3), lambda: shape.assert_has_rank(1)):
        with pytest.raises(ValueError, match="Received"):
            wrong()
    with pytest.raises(TypeError, match="integer"):
        tf.TensorShape([3.5])
    with pytest.raises(ValueError, match="negative"):
        tf.TensorShape([1, -2])


def test_specs_compare() -> None:
    spec = tf.TensorSpec([None, 2], tf.string, "n")
    assert repr(spec) == "TensorSpec(shape=(None, 2), dtype=tf.string, name='n')"
    assert spec == tf.TensorSpec((None, 2), str, "n")
    assert spec != tf.TensorSpec([None, 2], tf.string)
    assert spec.is_compatible_with(tf.TensorSpec([3, 2], tf.string))
    assert not spec.is_compatible_with(tf.constant([[1, 2]]))
    assert tf.TensorSpec([None]).is_compatible_with(jnp.ones(3))
    assert tf.type_spec_from_value(jnp.ones(3)) == tf.TensorSpec([3], tf.float32)
    assert repr(tf.TensorSpec(None)) == "TensorSpec(shape=<unknown>, dtype=tf.float32, name=None)"
    assert tf.TensorSpec([1]).most_specific_compatible_type(tf.TensorSpec([2])) == tf.TensorSpec([None])
    with pytest.raises(ValueError, match="type and name"):
        spec.most_specific_compatible_type(tf.TensorSpec([3, 2], tf.string))


def test_elements_of_datasets_have_specs_of_tensors() -> None:
    dataset = tf.data.Dataset.from_tensor_slices({"a": [[1.0, 2.0]], "b": ["x"]}).batch(2)
    assert dataset.element_spec == {"a": tf.TensorSpec([None, 2]), "b": tf.TensorSpec([None], tf.string)}
    assert dataset.element_spec["b"].dtype is tf.string
    assert dataset.element_spec["a"].shape.as_list() == [None, 2]
    free = tf.data.Dataset.from_generator(lambda: iter([[1], [1, 2]]), output_signature=tf.TensorSpec(None, tf.int32))
    assert free.element_spec.shape.rank is None
    assert [e.shape.as_list() for e in free] == [[1], [2]]


def test_types_know_what_they_are() -> None:
    assert (tf.float32.as_datatype_enum, int(tf.string), tf.as_dtype(3)) == (1, 7, tf.int32)
    assert (tf.string.size, tf.bool.limits, tf.bfloat16.is_floating) == (0, (False, True), True)
    assert np.issubdtype(jnp.ones(1).dtype, np.floating)
    assert tf.int32.kind == "i"
    assert pickle.loads(pickle.dumps(tf.string)) == tf.string
    with pytest.raises(TypeError, match="float32"):
        tf.as_dtype("foo")
    with pytest.raises(TypeError, match="limits"):
        _ = tf.string.max
