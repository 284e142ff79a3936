"""map, filter, take_while, scan and reduce: what functions get, what they may return, and what errors say."""

from __future__ import annotations

import threading
from collections import namedtuple
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from lockstep.data import AUTOTUNE, UNKNOWN_CARDINALITY, Dataset, TensorSpec
from lockstep.errors import ArgumentError, InputError

Pair = namedtuple("Pair", "x y")


def values(dataset: Dataset) -> list[int]:
    return [int(v) for v in dataset]


def test_what_a_function_gets() -> None:
    pairs = Dataset.zip((Dataset.range(2), Dataset.zip((Dataset.range(2), Dataset.range(2)))))
    assert values(pairs.map(lambda a, b: a + b[0] + b[1])) == [0, 3]
    assert values(Dataset.from_tensor_slices({"a": [1, 2]}).map(lambda d: d["a"])) == [1, 2]
    assert values(Dataset.from_tensors(Pair(1, 2)).map(lambda p: p.x + p.y)) == [3]
    assert values(Dataset.from_tensors((1,)).map(lambda a: a)) == [1]
    with pytest.raises(InputError, match="takes 1 positional argument but 2 were given"):
        list(pairs.map(lambda a: a))


def test_what_a_function_returns() -> None:
    source = Dataset.from_tensor_slices(np.float32([1, 2]))
    assert list(source.map(lambda x: {"z": x, "a": (x, "t")})) == [{"z": 1, "a": (1, b"t")}, {"z": 2, "a": (2, b"t")}]
    assert list(source.map(lambda x: Pair(x, None))) == [Pair(1, None), Pair(2, None)]
    assert list(source.map(lambda x: [x, x * 2])) == [(1, 2), (2, 4)]
    assert [v[1].tolist() for v in source.map(lambda x: (x, [x, x * 2]))] == [[1, 2], [2, 4]]
    assert list(source.map(lambda x: ["a", "b"])) == [(b"a", b"b")] * 2
    assert list(source.map(lambda x: ())) == [(), ()]
    assert list(source.map(lambda x: None)) == [None, None]
    assert [b.tolist() for b in source.map(lambda x: (x, 1)).map(lambda a, b: a + b).batch(2)] == [[2, 3]]


def test_a_map_that_changes_the_structure_twice() -> None:
    dataset = (
        Dataset.range(3).map(lambda x: {"a": x}).map(lambda d: (d["a"], {"q": d["a"] + 1})).map(lambda a, b: b["q"])
    )
    assert values(dataset) == [1, 2, 3]
    assert len(dataset) == 3
    assert dataset.element_spec == TensorSpec((), np.int32)


def test_element_spec_without_computing() -> None:
    seen: list[int] = []

    def generator() -> Any:
        seen.append(1)
        yield np.zeros(3, np.float32)

    dataset = Dataset.from_generator(generator, output_signature=TensorSpec((3,), np.float32)).map(lambda x: (x[0], x))
    assert dataset.element_spec == (TensorSpec((), np.float32), TensorSpec((3,), np.float32))
    assert seen == []


def test_a_structure_that_changes_from_element_to_element_is_refused() -> None:
    def changing(x: Any) -> Any:
        return {"a": x} if int(x) < 2 else (x, x)

    with pytest.raises(InputError, match=r"changing must return the same structure"):
        list(Dataset.range(4).map(changing).batch(4))


@pytest.mark.parametrize("calls", [None, 1, 4, AUTOTUNE])
@pytest.mark.parametrize("deterministic", [None, True, False])
def test_parallel_calls_keep_the_order(calls: int | None, deterministic: bool | None) -> None:
    dataset = Dataset.range(200).map(lambda x: int(x) * 2, num_parallel_calls=calls, deterministic=deterministic)
    assert values(dataset) == list(range(0, 400, 2))


@pytest.mark.parametrize(("calls", "is_parallel"), [(None, False), (1, False), (2, True), (AUTOTUNE, True)])
def test_parallel_calls_begin_with_the_first_element(
    monkeypatch: pytest.MonkeyPatch, calls: int | None, is_parallel: bool
) -> None:
    monkeypatch.setattr("lockstep.data._blocks.cores", lambda: 2)
    dataset = Dataset.range(1).map(lambda x: f"{threading.current_thread().name} {int(x)}", num_parallel_calls=calls)
    (name,) = dataset
    assert name.startswith(b"lockstep-data") == is_parallel


def test_wrong_arguments_of_map() -> None:
    with pytest.raises(ArgumentError, match="num_parallel_calls must be at least 1"):
        Dataset.range(3).map(lambda x: x, num_parallel_calls=0)
    with pytest.raises(ArgumentError, match="bounded number of threads"):
        Dataset.range(3).map(lambda x: x, use_unbounded_threadpool=True)
    for method in ("map", "filter", "take_while"):
        with pytest.raises((ArgumentError, InputError), match=r"needs a function|function of an element"):
            getattr(Dataset.range(3), method)(None)


@pytest.mark.parametrize(
    "predicate",
    [
        lambda x: x % 2 == 0,
        lambda x: jnp.equal(x % 2, 0),
        lambda x: bool(x % 2 == 0),
        lambda x: np.bool_(int(x) % 2 == 0),
        lambda x: np.array(int(x) % 2 == 0),
        lambda x: 1 - x % 2,
    ],
)
def test_filter(predicate: Any) -> None:
    dataset = Dataset.range(7).filter(predicate)
    assert values(dataset) == [0, 2, 4, 6]
    assert dataset.cardinality() == UNKNOWN_CARDINALITY
    assert dataset.element_spec == TensorSpec((), np.int64)


def test_filters_of_structures_and_constants() -> None:
    pairs = Dataset.zip((Dataset.range(5), Dataset.from_tensor_slices(["a", "b", "a", "b", "a"])))
    assert [int(n) for n, _ in pairs.filter(lambda n, t: t == b"a")] == [0, 2, 4]
    assert values(Dataset.range(5).filter(lambda x: True)) == list(range(5))
    assert values(Dataset.range(5).filter(lambda x: False)) == []


@pytest.mark.parametrize("result", [lambda x: [x > 1, x > 2], lambda x: np.array([True]), lambda x: "x", lambda x: ()])
def test_what_is_no_verdict(result: Any) -> None:
    with pytest.raises(InputError, match="must return one truth value"):
        list(Dataset.range(3).filter(result))


def test_take_while() -> None:
    assert values(Dataset.range(10).take_while(lambda x: x < 3)) == [0, 1, 2]
    assert values(Dataset.from_tensor_slices([1, 5, 1]).take_while(lambda x: x < 3)) == [1]
    assert values(Dataset.range(10).repeat().take_while(lambda x: int(x) < 3)) == [0, 1, 2]
    assert values(Dataset.range(3).take_while(lambda x: False)) == []


def test_scan() -> None:
    dataset = Dataset.range(1, 5).scan(np.int64(0), lambda s, x: (s + x, {"sum": s + x, "x": x}))
    assert [(int(e["sum"]), int(e["x"])) for e in dataset] == [(1, 1), (3, 2), (6, 3), (10, 4)]
    assert dataset.element_spec["sum"] == TensorSpec((), np.int64)
    fibonacci = Dataset.range(6).scan((0, 1), lambda s, _: ((s[1], s[0] + s[1]), s[0]))
    assert values(fibonacci) == values(fibonacci) == [0, 1, 1, 2, 3, 5]
    with pytest.raises(InputError, match=r"must return \(state, output\)"):
        list(Dataset.range(3).scan(0, lambda s, x: s))


def test_reduce() -> None:
    assert Dataset.range(5).reduce(0, lambda s, x: s + x) == 10
    pairs = Dataset.zip((Dataset.range(5), Dataset.range(5)))
    total, count = pairs.reduce((np.int64(0), 0), lambda s, x: (s[0] + x[0] * x[1], s[1] + 1))
    assert (total, count) == (30, 5)
    assert Dataset.range(0).reduce(np.float32(7), lambda s, x: s) == 7


def test_get_single_element() -> None:
    assert Dataset.range(5).batch(10).get_single_element().tolist() == [0, 1, 2, 3, 4]
    for count, found in ((0, "none"), (2, "more")):
        with pytest.raises(InputError, match=f"Received: {found}"):
            Dataset.range(count).get_single_element()


def bad_function(x: Any) -> Any:
    if int(x) == 3:
        raise ZeroDivisionError("mine")
    return x


def test_errors_name_the_function_and_the_element() -> None:
    dataset = Dataset.range(10).map(bad_function)
    with pytest.raises(InputError, match="bad_function failed at element 3: ZeroDivisionError: mine"):
        list(dataset)
    with pytest.raises(InputError, match="bad_function failed at element 3"):
        list(dataset.shuffle(10).batch(4))
    names = Dataset.from_tensor_slices((np.arange(4), ["a.png", "b.png", "c.png", "d.png"]))
    with pytest.raises(InputError, match=r"failed at element 3 \(d.png\): ZeroDivisionError"):
        list(names.map(lambda x, name: bad_function(x)))


def test_elements_before_the_one_that_fails_come_out() -> None:
    elements = iter(Dataset.range(10).map(bad_function))
    assert [int(next(elements)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(InputError):
        next(elements)
