"""Map functions with side effects are called once for each element, in order; pure ones are vectorised."""

from __future__ import annotations

import collections
import functools
import itertools
import logging
import math
import random
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from lockstep.data import Dataset
from lockstep.data._transforms.map import Map

COUNT = 30
TABLE = {"a": 2.0}
NAMES = ["a", "b"]
LOG: list[float] = []
STORE: dict[str, float] = {}
ARRAY = np.zeros(3)
SEEN: collections.Counter[str] = collections.Counter()
GLOBAL = 0
KEY = jax.random.PRNGKey(0)
RESCALING = keras.layers.Rescaling(1 / 255)
FLIP = keras.layers.RandomFlip(seed=1)
DROPOUT = keras.layers.Dropout(0.5, seed=1)
SEEDS = keras.random.SeedGenerator(3)
COUNTER = itertools.count()
PYTHONS = random.Random(0)
NUMPYS = np.random.default_rng(0)


def elements() -> Dataset:
    rows = np.arange(COUNT * 3, dtype=np.float32).reshape(COUNT, 3)
    return Dataset.from_tensor_slices({"a": rows, "b": np.arange(COUNT, dtype=np.int32)})


def program(function: Callable[..., Any]) -> Any:
    node = elements().map(function)._plan
    assert isinstance(node, Map)
    return node.program


class Scale:
    """Pure methods, and others."""

    def __init__(self) -> None:
        self.weight = 2.0
        self.calls = 0
        self.seen: list[float] = []
        self.last: dict[str, float] = {}

    def __call__(self, e: Any) -> Any:
        return e["a"] * self.weight

    def method(self, e: Any) -> Any:
        return e["a"] * self.weight

    def counting(self, e: Any) -> Any:
        self.calls += 1
        return e["b"]

    def collecting(self, e: Any) -> Any:
        self.seen.append(float(e["b"]))
        return e["b"]

    def storing(self, e: Any) -> Any:
        self.last["x"] = float(e["b"])
        return e["b"]


class Collector(list[float]):
    """A callable object with state."""

    def __call__(self, e: Any) -> Any:
        self.append(0.0)
        return e["b"]


def helper(x: Any) -> Any:
    return x * 2


def popped(features: Any) -> Any:
    label = features.pop("b")
    return features, label


def built(e: Any) -> Any:
    out = {}
    for name in NAMES:
        out[name] = e[name] * TABLE["a"]
    parts: list[Any] = []
    parts.append(jnp.sum(out["a"]))
    return jnp.stack(parts)


def nested(e: Any) -> Any:
    found: list[Any] = []

    def add(value: Any) -> None:
        found.append(value)

    add(e["a"])
    return tuple(found)


PURE: dict[str, Callable[..., Any]] = {
    "item": lambda e: e["a"][0],
    "helper": lambda e: helper(e["a"]),
    "callable object": Scale(),
    "method": Scale().method,
    "partial": functools.partial(lambda k, e: e["a"] + k, 2),
    "popped": popped,
    "item set": lambda e: dict(e, c=1),
    "built": built,
    "nested function": nested,
    "comprehension": lambda e: {k: v + 1 for k, v in e.items()},
    "list comprehension": lambda e: jnp.stack([jnp.sum(e[k]) for k in NAMES]),
    "numpy constant": lambda e: e["a"] * np.array([1.0, 2.0, 3.0], np.float32),
    "captured array": lambda e: e["a"] + ARRAY,
    "math": lambda e: e["a"] * math.pi + math.sqrt(2),
    "keras.ops": lambda e: keras.ops.one_hot(e["b"], 4),
    "keras layer": lambda e: RESCALING(e["a"]),
    "where": lambda e: jnp.where(e["a"] > 1, e["a"], 0),
    "resize": lambda e: jax.image.resize(e["a"], (6,), "linear"),
    "random with a fixed key": lambda e: e["a"] + jax.random.normal(KEY, (3,)),
    "captured loop variable": [lambda e, k=k: e["a"] + k for k in range(3)][2],
    "at set": lambda e: e["a"].at[0].set(1),
    "cond": lambda e: jax.lax.cond(e["b"] > 1, lambda: 1.0, lambda: 2.0),
    "length": lambda e: e["a"] / len(e["a"]),
    "shape": lambda e: e["a"] if e["a"].shape == (3,) else 0,
}


@pytest.mark.parametrize("name", PURE)
def test_pure_functions_are_vectorised(name: str) -> None:
    assert program(PURE[name]).is_vectorized


def global_count(e: Any) -> Any:
    global GLOBAL
    GLOBAL += 1
    return e["b"]


def array_item(e: Any) -> Any:
    ARRAY[0] = 0
    return e["b"]


def aliased(e: Any) -> Any:
    log = LOG
    log.append(1)
    return e["b"]


def counted(e: Any) -> Any:
    SEEN["calls"] += 1
    return e["b"]


def with_default(e: Any, seen: list[int] = []) -> Any:  # noqa: B006  That is what is tested.
    seen.append(1)
    return e["b"]


def helped(e: Any) -> Any:
    return aliased(e)


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(e: Any) -> Any:
        LOG.append(1)
        return function(e)

    return wrapper


IMPURE: dict[str, Callable[..., Any]] = {
    "global": global_count,
    "attribute": Scale().counting,
    "list of an object": Scale().collecting,
    "dict of an object": Scale().storing,
    "callable object": Collector(),
    "append": lambda e: (LOG.append(1), e["b"])[1],
    "alias": aliased,
    "helper": helped,
    "default argument": with_default,
    "decorator": decorated(lambda e: e["b"]),
    "partial": functools.partial(lambda k, e: (LOG.append(k), e["b"])[1], 1),
    "dict": lambda e: (STORE.update(a=1), e["b"])[1],
    "array item": array_item,
    "counter": counted,
    "print": lambda e: (print(end=""), e["b"])[1],
    "log": lambda e: (logging.getLogger("x").debug("x"), e["b"])[1],
    "iterator": lambda e: e["b"] + next(COUNTER),
    "random": lambda e: e["b"] + random.random(),
    "random object": lambda e: e["b"] + PYTHONS.random(),
    "numpy.random": lambda e: e["b"] + np.random.rand(),
    "numpy generator": lambda e: e["b"] + NUMPYS.random(),
    "time": lambda e: e["b"] + time.perf_counter(),
    "keras.random": lambda e: e["b"] + keras.random.uniform(()),
    "keras.random with a generator": lambda e: e["b"] + keras.random.uniform((), seed=SEEDS),
    "random flip": lambda e: FLIP(e["a"][None, :, None], training=True),
    "dropout": lambda e: DROPOUT(e["a"], training=True),
    "jax.debug": lambda e: (jax.debug.callback(lambda: None), e["b"])[1],
    "io_callback": lambda e: (jax.experimental.io_callback(lambda: None, None), e["b"])[1],
}


@pytest.mark.parametrize("name", IMPURE)
def test_side_effects_are_found(name: str) -> None:
    assert program(IMPURE[name]).in_order


def test_a_function_with_side_effects_is_called_once_for_each_element_in_order() -> None:
    calls: list[int] = []
    count = 0

    def function(e: Any) -> Any:
        nonlocal count
        count += 1
        calls.append(int(e["b"]))
        return {"a": e["a"] * count}

    dataset = elements().map(function)
    assert dataset.cardinality() == COUNT
    assert calls == []
    for passes in (1, 2):
        found = list(dataset.batch(4))
        assert calls == list(range(COUNT)) * passes
        first = COUNT * (passes - 1)
        np.testing.assert_allclose(found[1]["a"][0], np.array([12, 13, 14]) * (first + 5))


def test_calls_through_what_follows() -> None:
    calls: list[int] = []

    def function(e: Any) -> Any:
        calls.append(int(e["b"]))
        return e["b"]

    def read(change: Callable[[Dataset], Dataset]) -> list[int]:
        calls.clear()
        list(change(elements().map(function)))
        return calls

    everything = list(range(COUNT))
    assert read(lambda d: d.shuffle(7).batch(3).prefetch(2)) == everything
    assert read(lambda d: d.cache().repeat(3)) == everything
    assert read(lambda d: d.filter(lambda b: b > 3)) == everything
    assert read(lambda d: d.take(5)) == everything[:5]
    assert read(lambda d: d.skip(5).take(5)) == everything[:10]
    assert read(lambda d: d.map(lambda b: b * 2).map(lambda b: b + 1)) == everything


@pytest.mark.slow
def test_random_augmentation_differs_from_element_to_element() -> None:
    ones = Dataset.from_tensor_slices(np.ones((20, 8), np.float32))
    for function in (
        lambda x: x * np.random.rand(),
        lambda x: DROPOUT(x, training=True),
        lambda x: x + keras.random.normal((8,)),
    ):
        rows = {np.asarray(v).tobytes() for v in ones.map(function)}
        assert len(rows) > 15


def test_what_cannot_be_traced_is_right_all_the_same() -> None:
    def branches(e: Any) -> Any:
        if e["b"] > 2:
            return e["b"] * 10
        return sum(range(int(e["b"])), np.int32(0))

    def loops(e: Any) -> Any:
        total = np.float32(0)
        for value in np.asarray(e["a"]):
            total += value
        return total

    assert [int(v) for v in elements().map(branches)] == [0, 0, 1, *range(30, COUNT * 10, 10)]
    sums = list(elements().map(loops))
    np.testing.assert_allclose(sums, np.arange(COUNT) * 9 + 3)
    assert not program(branches).in_order
    assert not program(loops).is_vectorized


def test_lambdas_made_in_a_loop_keep_what_they_captured() -> None:
    datasets = [elements().map(lambda e, k=k: e["b"] + k) for k in range(3)]
    assert [int(next(iter(d))) for d in datasets] == [0, 1, 2]


def test_programs_are_not_traced_again_for_each_pass() -> None:
    traced = itertools.count()

    class Traced:
        """Counts in what no code shows."""

        def __radd__(self, other: Any) -> Any:
            counter[0] = next(traced)
            return other

    counter = [0]
    marker = Traced()

    def function(e: Any) -> Any:
        return e["a"] * 2 + marker

    dataset = elements().map(function).batch(7)
    for _ in range(20):
        list(dataset)
        list(dataset.repeat(2))
    # Once for each power of two that a group of elements was filled up to, and a few times to look.
    assert counter[0] < 20
