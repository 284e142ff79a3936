"""Where elements come from, and what their arrays look like."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lockstep.data import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Dataset, TensorSpec
from lockstep.errors import ArgumentError, InputError

Pair = namedtuple("Pair", "x y")
TEXT = np.dtype(object)


def only(value: Any) -> Any:
    return Dataset.from_tensors(value).as_numpy_iterator().get_next()


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (3, np.int32, ()),
        (3.5, np.float32, ()),
        (True, np.bool_, ()),
        (2**40, np.int64, ()),
        ([1, 2], np.int32, (2,)),
        ([1, 2.5], np.float32, (2,)),
        ([[True], [False]], np.bool_, (2, 1)),
        ([np.float64(1), np.float64(2)], np.float64, (2,)),
        (np.float64(3), np.float64, ()),
        (np.arange(3), np.int64, (3,)),
        (np.ones(2, np.float16), np.float16, (2,)),
        (jnp.ones(2), np.float32, (2,)),
        ([], np.float32, (0,)),
    ],
)
def test_dtypes(value: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    found = only(value)
    assert (found.dtype, found.shape) == (np.dtype(dtype), shape)
    assert Dataset.from_tensors(value).element_spec == TensorSpec(shape, dtype)
    np.testing.assert_array_equal(found, np.asarray(value))


@pytest.mark.parametrize("value", ["é", b"\xc3\xa9", np.str_("é"), np.bytes_(b"\xc3\xa9")])
def test_text_is_bytes(value: Any) -> None:
    assert only(value) == b"\xc3\xa9"
    assert type(only(value)) is bytes
    assert Dataset.from_tensors(value).element_spec == TensorSpec((), "string")


@pytest.mark.parametrize(
    "texts", [["a", "bc"], np.array(["a", "bc"]), np.array(["a", b"bc"], object), np.array([b"a", b"bc"])]
)
def test_rows_of_text(texts: Any) -> None:
    dataset = Dataset.from_tensor_slices(texts)
    assert list(dataset) == [b"a", b"bc"]
    assert dataset.element_spec == TensorSpec((), str)
    batch = dataset.batch(2).get_single_element()
    assert (batch.dtype, batch.tolist()) == (TEXT, [b"a", b"bc"])


def test_no_text() -> None:
    dataset = Dataset.from_tensor_slices(np.array([], object))
    assert (list(dataset), len(dataset), dataset.element_spec) == ([], 0, TensorSpec((), "string"))


def test_structures() -> None:
    value = {"b": (1, Pair("t", [2.0])), "a": {"c": None}}
    found = only(value)
    assert found["b"][0] == 1
    assert isinstance(found["b"][1], Pair)
    assert found["b"][1].x == b"t"
    assert found["a"] == {"c": None}
    spec = Dataset.from_tensors(value).element_spec
    assert spec["b"][1] == Pair(TensorSpec((), str), TensorSpec((1,), np.float32))
    assert spec["a"] == {"c": None}


def test_slices_of_structures() -> None:
    rows = list(Dataset.from_tensor_slices(Pair([1, 2], {"k": ["a", "b"], "n": None})))
    assert rows == [Pair(1, {"k": b"a", "n": None}), Pair(2, {"k": b"b", "n": None})]


def test_a_list_is_an_array_and_a_tuple_is_not() -> None:
    assert [r.tolist() for r in Dataset.from_tensor_slices([(1, 2), (3, 4)])] == [[1, 2], [3, 4]]
    assert [(int(a), int(b)) for a, b in Dataset.from_tensor_slices(([1, 2], [3, 4]))] == [(1, 3), (2, 4)]


def test_arrays_are_not_copied() -> None:
    array = np.zeros((4, 2))
    dataset = Dataset.from_tensor_slices(array)
    array[1] = 7
    assert list(dataset)[1].tolist() == [7, 7]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (([1, 2], [1, 2, 3]), "2, 3 rows"),
        (3, "at least one axis"),
        ((), "no array rows"),
        (None, "no array rows"),
        ([[1], [1, 2]], "one shape"),
        ([1, "a"], "numbers, text"),
        ([object()], "numbers, text"),
    ],
)
def test_what_has_no_rows_is_refused(value: Any, error: str) -> None:
    with pytest.raises(InputError, match=error):
        Dataset.from_tensor_slices(value)


@pytest.mark.parametrize("arguments", [(5,), (2, 5), (5, 2), (5, 2, -1), (0, 10, 3), (10, 0, -3), (-3,), (0,)])
def test_range(arguments: tuple[int, ...]) -> None:
    dataset = Dataset.range(*arguments)
    assert [int(v) for v in dataset] == list(range(*arguments))
    assert len(dataset) == len(range(*arguments))
    assert dataset.element_spec == TensorSpec((), np.int64)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float32, np.float64])
def test_range_of_a_dtype(dtype: Any) -> None:
    found = Dataset.range(3, output_type=dtype).batch(3).get_single_element()
    assert (found.dtype, found.tolist()) == (np.dtype(dtype), [0, 1, 2])


@pytest.mark.parametrize("arguments", [(), (0, 5, 0), (1, 2, 3, 4), ("x",), (1.5,)])
def test_no_such_range(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ArgumentError, match="range"):
        Dataset.range(*arguments)


def test_counter() -> None:
    assert [int(v) for v in Dataset.counter(5, -3).take(4)] == [5, 2, -1, -4]
    assert Dataset.counter().cardinality() == INFINITE_CARDINALITY
    assert [v.dtype for v in Dataset.counter(dtype=np.int32).skip(3).take(1)] == [np.int32]
    with pytest.raises(ArgumentError, match="start must be a whole number"):
        Dataset.counter(0.5)  # type: ignore[arg-type]


def test_random_numbers() -> None:
    dataset = Dataset.random(seed=3)
    first = [int(v) for v in dataset.take(600)]
    assert first == [int(v) for v in Dataset.random(seed=3).take(600)]
    assert first != [int(v) for v in Dataset.random(seed=4).take(600)]
    assert len(set(first)) > 595
    assert min(first) >= 0
    assert 2**31 < max(first) < 2**32
    again = Dataset.random(seed=3, rerandomize_each_iteration=True).take(3)
    assert [int(v) for v in again] != [int(v) for v in again]


def numbers(n: int = 3) -> Iterator[Any]:
    yield from range(n)


@pytest.mark.parametrize(
    ("values", "signature", "expected"),
    [
        ([1, 2], TensorSpec((), np.float32), [1.0, 2.0]),
        ([np.float64(1.5)], TensorSpec((), np.float32), [1.5]),
        ([np.int64(3)], TensorSpec((), np.float32), [3.0]),
        ([np.zeros(2)], TensorSpec((2,), np.float32), [[0.0, 0.0]]),
        ([[1, 2], [3]], TensorSpec((None,), np.int32), [[1, 2], [3]]),
        ([[1], [[2, 3]]], TensorSpec(None, np.int32), [[1], [[2, 3]]]),
        ([True, 0], TensorSpec((), np.bool_), [True, False]),
        (["a", np.str_("b")], TensorSpec((), "string"), [b"a", b"b"]),
        ([["a", "b"]], TensorSpec((2,), "string"), [[b"a", b"b"]]),
    ],
)
def test_what_a_generator_gives_takes_the_declared_dtype(values: Any, signature: TensorSpec, expected: Any) -> None:
    dataset = Dataset.from_generator(lambda: iter(values), output_signature=signature)
    found = list(dataset)
    assert [v if isinstance(v, bytes) else v.tolist() for v in found] == expected
    assert all(signature.is_compatible_with(v) for v in found)
    assert dataset.element_spec == signature
    assert dataset.cardinality() == UNKNOWN_CARDINALITY


def test_structures_of_a_generator() -> None:
    spec = {"a": TensorSpec((), np.int32), "b": (TensorSpec((2,), np.float32), TensorSpec((), "string"))}
    dataset = Dataset.from_generator(lambda: iter([{"b": ([1, 2], "t"), "a": 3}]), output_signature=spec)
    found = dataset.get_single_element()
    assert found["a"] == 3
    assert found["b"][0].tolist() == [1.0, 2.0]
    assert found["b"][1] == b"t"
    named = Dataset.from_generator(lambda: iter([Pair(1, 2)]), output_signature=Pair(spec["a"], spec["a"]))
    assert named.get_single_element() == Pair(1, 2)


@pytest.mark.parametrize(
    ("value", "signature"),
    [
        ("x", TensorSpec((), np.int32)),
        (3, TensorSpec((), "string")),
        (None, TensorSpec((), np.int32)),
        (2**40, TensorSpec((), np.int32)),
        (1, TensorSpec((2,), np.int32)),
        ([1, 2, 3], TensorSpec((2,), np.int32)),
        ([[1], [1, 2]], TensorSpec((None, None), np.int32)),
        ((1, 2, 3), (TensorSpec((), np.int32), TensorSpec((), np.int32))),
        ({"a": 1}, {"a": TensorSpec((), np.int32), "b": TensorSpec((), np.int32)}),
        ({"a": 1, "b": 2}, {"a": TensorSpec((), np.int32)}),
    ],
)
def test_another_value_than_declared_is_refused(value: Any, signature: Any) -> None:
    good = jax.tree.map(lambda s: np.zeros([n or 1 for n in s.shape], s.dtype) if s.dtype != TEXT else "", signature)
    dataset = Dataset.from_generator(lambda: iter([good, value]), output_signature=signature)
    elements = iter(dataset)
    next(elements)
    with pytest.raises(InputError, match=r"output_signature.*Received as number 1"):
        next(elements)


def test_the_older_way_to_declare() -> None:
    dataset = Dataset.from_generator(lambda: iter([(1, [2.0, 3.0])]), (np.int32, np.float32), ((), (None,)))
    assert dataset.element_spec == (TensorSpec((), np.int32), TensorSpec((None,), np.float32))
    assert Dataset.from_generator(numbers, np.int64).element_spec == TensorSpec(None, np.int64)
    assert [int(v) for v in Dataset.from_generator(numbers, np.int64, [])] == [0, 1, 2]


def test_wrong_arguments_of_from_generator() -> None:
    spec = TensorSpec((), np.int32)
    with pytest.raises(ArgumentError, match="function that returns a new iterable"):
        Dataset.from_generator([1, 2])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="output_types"):
        Dataset.from_generator(numbers, np.int32, output_signature=spec)
    with pytest.raises(ArgumentError, match="output_types"):
        Dataset.from_generator(numbers, output_shapes=())
    with pytest.raises(ArgumentError, match="output_shapes"):
        Dataset.from_generator(numbers, (np.int32, np.int32), ((),))
    with pytest.raises(InputError, match="must return an iterable"):
        list(Dataset.from_generator(lambda: 3, output_signature=spec))  # type: ignore[arg-type, return-value]


def test_arguments_for_the_generator() -> None:
    dataset = Dataset.from_generator(numbers, args=(4,), output_signature=TensorSpec((), np.int64))
    assert [int(v) for v in dataset] == [0, 1, 2, 3]
    assert [int(v) for v in dataset] == [0, 1, 2, 3]


def test_a_generator_without_a_signature() -> None:
    dataset = Dataset.from_generator(lambda: ({"a": i, "t": "x"} for i in range(2)))
    assert dataset.element_spec == {"a": TensorSpec((), np.int32), "t": TensorSpec((), "string")}
    assert list(dataset) == [{"a": 0, "t": b"x"}, {"a": 1, "t": b"x"}]
    with pytest.raises(InputError, match="output_signature"):
        _ = Dataset.from_generator(lambda: iter([])).element_spec
    with pytest.raises(InputError, match="one structure"):
        list(Dataset.from_generator(lambda: iter([1, (2, 3)])).batch(2))


class Taken:
    """Endless numbers; counts how many were taken."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> Iterator[int]:
        while True:
            self.count += 1
            yield self.count


def read_by(dataset: Any, elements: int) -> None:
    iterator = iter(dataset)
    for _ in range(elements):
        next(iterator)


@pytest.mark.parametrize(
    ("change", "elements", "expected"),
    [
        (lambda d: d, 5, 5),
        (lambda d: d.map(lambda x: x * 2), 5, 5),
        (lambda d: d.batch(4), 3, 12),
        (lambda d: d.take(7).batch(3), 2, 6),
        (lambda d: d.shuffle(10), 5, 14),
        (lambda d: d.batch(2).shuffle(3), 2, 8),
        (lambda d: d.skip(3), 2, 5),
        (lambda d: d.shard(3, 1), 2, 5),
        (lambda d: d.filter(lambda x: x % 2 == 0), 3, 6),
        (lambda d: d.window(3, shift=1).flat_map(lambda w: w.batch(3)), 2, 4),
        (lambda d: d.enumerate().repeat().cache(), 4, 4),
        (lambda d: Dataset.zip((d, Dataset.range(100))), 4, 4),
        (lambda d: d.interleave(lambda x: Dataset.from_tensors(x).repeat(), cycle_length=3), 4, 3),
        (lambda d: d.padded_batch(2).unbatch(), 3, 4),
        (lambda d: d.take_while(lambda x: x < 100), 5, 5),
    ],
)
def test_a_generator_is_not_read_further_than_needed(change: Any, elements: int, expected: int) -> None:
    taken = Taken()
    read_by(change(Dataset.from_generator(taken, output_signature=TensorSpec((), np.int32))), elements)
    assert taken.count == expected


def test_an_error_in_a_generator_comes_after_what_it_gave() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise ZeroDivisionError("mine")

    dataset = Dataset.from_generator(failing, output_signature=TensorSpec((), np.int32))
    elements = iter(dataset)
    assert [int(next(elements)), int(next(elements))] == [1, 2]
    with pytest.raises(ZeroDivisionError, match="mine"):
        next(elements)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"id": [1, 2], "name": np.array([b"a", None], object)}, r" in the field \['name'\]\."),
        ({"id": [1, 2], "name": [None, "a"]}, r" in the field \['name'\]\."),
        (([1, 2], {"name": np.array([None, None], object)}), r" in the field \[1\]\['name'\]\."),
        (Pair(["a", None], [1, 2]), r" in the field \['x'\]\."),
        (np.array(["a", None], object), r"\."),
    ],
)
def test_none_is_no_text(data: Any, field: str) -> None:
    with pytest.raises(InputError, match=f"Received: NoneType{field}.*Replace each None"):
        Dataset.from_tensor_slices(data)
