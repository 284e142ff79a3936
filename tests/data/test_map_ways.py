"""The result of a map function does not depend on the way it is computed: many elements at once, or each by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.data import Dataset, TensorSpec
from lockstep.data._transforms.map import Map
from lockstep.errors import InputError

SCALARS: dict[str, Callable[[Any], Any]] = {
    "x + 1": lambda x: x + 1,
    "x + 1.5": lambda x: x + 1.5,
    "1 - x": lambda x: 1 - x,
    "x * 2": lambda x: x * 2,
    "x / 255": lambda x: x / 255,
    "x // 2": lambda x: x // 2,
    "x % 3": lambda x: x % 3,
    "x ** 2": lambda x: x**2,
    "x + x": lambda x: x + x,
    "x / (x + 1)": lambda x: x / (x + 1),
    "x < 2": lambda x: x < 2,
    "x == x": lambda x: x == x,
    "astype": lambda x: x.astype("uint8"),
    "astype float": lambda x: x.astype(np.float32),
    "jnp cast": lambda x: jnp.asarray(x, jnp.int32),
    "keras cast": lambda x: keras.ops.cast(x, "float32"),
    "where": lambda x: jnp.where(x > 1, x, 0),
    "minimum": lambda x: jnp.minimum(x, 1),
    "sqrt": lambda x: jnp.sqrt(x),
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "max": lambda x: x.max(),
    "jnp sum": lambda x: jnp.sum(x, axis=0),
    "keras mean": lambda x: keras.ops.mean(x),
    "argmax": lambda x: jnp.argmax(x),
    "one hot": lambda x: jax.nn.one_hot(x.astype("int32"), 4),
    "keras one hot": lambda x: keras.ops.one_hot(keras.ops.cast(x, "int32"), 4),
    "reshape": lambda x: x.reshape(3, 1),
    "new axis": lambda x: x[None, :, None],
    "reversed": lambda x: x[::-1],
    "first": lambda x: x[0],
    "stack": lambda x: jnp.stack([x, x]),
    "concatenate": lambda x: keras.ops.concatenate([x, x + 1]),
    "dict": lambda x: {"b": x, "a": x + 1},
    "tuple": lambda x: (x, (x * 2.0, x)),
    "list": lambda x: [x, x + 1],
    "list inside": lambda x: {"l": [x[0], x[1]]},
    "constant": lambda x: 3,
    "constants": lambda x: (x, 1.5, True, np.float64(2), np.arange(2)),
    "none": lambda x: (x, None),
    "passed on": lambda x: x,
    "numpy constant": lambda x: x * np.array([1, 2, 3], np.float32),
}
DTYPES = ("uint8", "int64", "float64")


def ways(function: Callable[..., Any], values: np.ndarray[Any, Any]) -> list[Dataset]:
    """The same elements: of a known shape, of an unknown one, and from a generator that says nothing."""
    free = TensorSpec((None,) * (values.ndim - 1), values.dtype)
    return [
        Dataset.from_tensor_slices(values).map(function),
        Dataset.from_generator(lambda: iter(values), output_signature=free).map(function),
        Dataset.from_generator(lambda: iter(values)).map(function),
        Dataset.from_tensor_slices(values).filter(lambda x: int(np.size(x)) > 0).map(function),
    ]


def results(dataset: Dataset) -> list[Any] | type[Exception]:
    try:
        return list(dataset)
    except InputError as error:
        return type(error)


def check_alike(found: Any, expected: Any) -> None:
    if isinstance(expected, type):
        assert found is expected
        return
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        half = a.dtype == np.float16
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-3 if half else 1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*(divide by zero|invalid value|overflow).*:RuntimeWarning")
@pytest.mark.parametrize("name", SCALARS)
def test_every_way_gives_the_same(name: str) -> None:
    for dtype in DTYPES:
        values = np.array([[1, 0, 3], [2, 2, 1], [0, 1, 1]]).astype(dtype)
        first, *others = ways(SCALARS[name], values)
        expected = results(first)
        for other in others:
            check_alike(results(other), expected)


def test_what_is_known_is_vectorised() -> None:
    for name, function in SCALARS.items():
        node = Dataset.from_tensor_slices(np.ones((3, 3), np.float32)).map(function)._plan
        assert isinstance(node, Map)
        assert node.program.is_vectorized, name


@settings(max_examples=15)
@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=9), st.integers(1, 5))
def test_batching_does_not_change_elements(numbers: list[int], size: int) -> None:
    values = np.array(numbers)
    dataset = Dataset.from_tensor_slices(values).map(lambda x: x * 0.1)
    rows = [r for b in dataset.batch(size) for r in b]
    assert rows == list(dataset) == list(dataset.shuffle(1))
    np.testing.assert_allclose(rows, values.astype(np.float32) * np.float32(0.1), rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "name", "expected"),
    [
        ("uint8", "x / 255", "float32"),
        ("uint8", "x + 1", "uint8"),
        ("int64", "x + 1", "int32"),
        ("int64", "passed on", "int64"),
        ("float64", "x * 2", "float32"),
        ("float64", "passed on", "float64"),
        ("int32", "x / 255", "float32"),
        ("bool", "x + 1", "int32"),
        ("int32", "mean", "float32"),
        ("float16", "x + 1.5", "float16"),
    ],
)
def test_dtypes_are_jaxs(dtype: str, name: str, expected: str) -> None:
    for dataset in ways(SCALARS[name], np.ones((2, 3), dtype)):
        assert [v.dtype for v in dataset] == [np.dtype(expected)] * 2


def test_whole_numbers_that_jax_has_no_room_for() -> None:
    """They are passed on as they are; computing with them must not silently give something else."""
    values = np.array([1, 2**40])
    for dataset in ways(lambda x: (x, 2), values):
        assert [int(v) for v, _ in dataset] == [1, 2**40]
    for dataset in ways(lambda x: x % 10, values):
        with pytest.raises(InputError, match=r"computes with in 32. Received: 1099511627776 at"):
            list(dataset)
    for dataset in ways(lambda x: x.astype("float32"), np.array([2**33], np.uint64)):
        with pytest.raises(InputError, match="JAX_ENABLE_X64"):
            list(dataset)
    constant = Dataset.range(2).map(lambda x: (x + 1, np.int64(2**40)))
    assert [int(v) for _, v in constant] == [2**40] * 2


def test_text_beside_numbers() -> None:
    rows = {"t": ["a", "b"], "n": [1, 2]}
    known = Dataset.from_tensor_slices(rows).map(lambda e: (e["t"], e["n"] * 2))
    assert isinstance(known._plan, Map)
    assert known._plan.program.is_vectorized
    assert list(known) == [(b"a", 2), (b"b", 4)]
    changed = Dataset.from_tensor_slices(rows).map(lambda e: (e["t"].decode() + "!", e["n"] * 2))
    assert list(changed) == [(b"a!", 2), (b"b!", 4)]
    assert changed.element_spec == (TensorSpec((), str), TensorSpec((), np.int32))
