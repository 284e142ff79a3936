"""Elements keep the order of their keys and the types of their mappings, as TensorFlow's nest does."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstep.compat.tensorflow as tf
from lockstep import _nest
from lockstep.data import Dataset, TensorSpec

COLUMNS = {"z": np.arange(4), "b": np.arange(4) + 10, "m": np.arange(4) + 20}


class Pair(NamedTuple):
    """A named tuple whose fields are not in the order of the alphabet."""

    second: Any
    first: Any


class Mine(dict[str, Any]):
    """A dict of the user's own."""


def keys(element: Any) -> list[str]:
    return list(element)


def halves(x: Any) -> Any:
    """A function that JAX cannot trace."""
    return {k: np.asarray(v) // 2 for k, v in x.items()} if int(next(iter(x.values()))) >= 0 else x


CHAINS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda d: d,
    "batch": lambda d: d.batch(3),
    "padded": lambda d: d.padded_batch(3),
    "unbatch": lambda d: d.batch(2).unbatch(),
    "map": lambda d: d.map(lambda x: {k: v + 1 for k, v in x.items()}),
    "map passes on": lambda d: d.map(lambda x: x),
    "map one by one": lambda d: d.map(halves),
    "filter": lambda d: d.filter(lambda x: x["z"] >= 0),
    "shuffle": lambda d: d.shuffle(4, seed=1),
    "repeat": lambda d: d.repeat(2),
    "cache": lambda d: d.cache(),
    "prefetch": lambda d: d.prefetch(2),
    "take": lambda d: d.skip(1).take(2),
    "flat_map": lambda d: d.flat_map(lambda x: Dataset.from_tensors(x)),
    "interleave": lambda d: d.interleave(lambda x: Dataset.from_tensors(x), cycle_length=2),
    "concatenate": lambda d: d.concatenate(d),
    "sample": lambda d: Dataset.sample_from_datasets([d, d], seed=1),
    "scan": lambda d: d.scan(np.int32(0), lambda state, x: (state + 1, x)),
    "ignore_errors": lambda d: d.ignore_errors(),
    "window": lambda d: d.window(2).flat_map(lambda x: Dataset.zip(x)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_columns_stay_in_order(name: str) -> None:
    dataset = CHAINS[name](Dataset.from_tensor_slices(COLUMNS))
    assert keys(dataset.element_spec) == ["z", "b", "m"]
    for found in (list(dataset), list(dataset.as_numpy_iterator())):
        assert found and all(type(e) is dict and keys(e) == ["z", "b", "m"] for e in found)


def test_functions_see_columns_in_order() -> None:
    stacked = Dataset.from_tensor_slices(COLUMNS).map(lambda x: np.stack(list(x.values())))
    traced = Dataset.from_tensor_slices(COLUMNS).map(lambda x: tf.stack(list(x.values())))
    assert next(iter(stacked)).tolist() == next(iter(traced)).tolist() == [0, 10, 20]
    seen: list[list[str]] = []
    list(Dataset.from_tensor_slices(COLUMNS).filter(lambda x: bool(seen.append(keys(x))) or True))
    Dataset.from_tensor_slices(COLUMNS).reduce({"y": 0, "a": 0}, lambda s, x: seen.append(keys(s) + keys(x)) or s)
    assert {tuple(s) for s in seen} == {("z", "b", "m"), ("y", "a", "z", "b", "m")}


def test_results_have_the_order_that_functions_give_them() -> None:
    dataset = Dataset.range(3).map(lambda x: {"y": x, "a": {"n": x, "c": x}})
    assert keys(next(iter(dataset))) == ["y", "a"] and keys(next(iter(dataset))["a"]) == ["n", "c"]
    assert dataset.reduce({"y": 0, "a": 0}, lambda s, _: {"y": s["y"], "a": s["a"]}) == {"y": 0, "a": 0}
    assert keys(dataset.reduce({"y": 0, "a": 0}, lambda s, _: s)) == ["y", "a"]
    assert keys(next(iter(Dataset.zip({"y": Dataset.range(2), "a": Dataset.range(2)})))) == ["y", "a"]


def test_mappings_stay_what_they_are() -> None:
    lists: Any = defaultdict(list, {"z": np.arange(2), "a": np.arange(2)})
    for columns in (OrderedDict(z=np.arange(2), a=np.arange(2)), lists, Mine(z=np.arange(2), a=np.arange(2))):
        for dataset in (Dataset.from_tensor_slices(columns), Dataset.from_tensors(columns).map(lambda x: x).batch(1)):
            for found in (next(iter(dataset)), dataset.element_spec):
                assert type(found) is type(columns) and keys(found) == ["z", "a"]
                assert getattr(found, "default_factory", None) is getattr(columns, "default_factory", None)
    pairs = Dataset.from_tensor_slices(Pair({"z": [1], "a": [2]}, (np.ones(1), {"y": [3], "x": [4]})))
    found = next(iter(pairs.map(lambda x: x)))
    assert type(found) is Pair and keys(found.second) == ["z", "a"] and keys(found.first[1]) == ["y", "x"]


def test_the_first_element_decides() -> None:
    def orders() -> Any:
        yield {"z": 1, "a": 2}
        yield {"a": 3, "z": 4}

    spec = {"a": TensorSpec((), np.int32), "z": TensorSpec((), np.int32)}
    found = list(Dataset.from_generator(orders))
    assert [list(e.items()) for e in found] == [[("z", 1), ("a", 2)], [("z", 4), ("a", 3)]]
    declared = list(Dataset.from_generator(orders, output_signature=spec))
    assert [list(e.items()) for e in declared] == [[("a", 2), ("z", 1)], [("a", 3), ("z", 4)]]
    batch = next(iter(Dataset.from_generator(orders).batch(2)))
    assert [(k, v.tolist()) for k, v in batch.items()] == [("z", [1, 4]), ("a", [2, 3])]
    resumed = iter(Dataset.from_generator(orders))
    next(resumed)
    again = iter(Dataset.from_generator(orders))
    again.set_state(resumed.get_state())
    assert list(next(again).items()) == [("z", 4), ("a", 3)]


def test_an_order_of_another_part_is_that_of_the_first() -> None:
    turned = Dataset.from_tensor_slices({k: COLUMNS[k] for k in sorted(COLUMNS)})
    dataset = Dataset.from_tensor_slices(COLUMNS).concatenate(turned)
    assert [keys(e) for e in dataset] == [["z", "b", "m"]] * 8
    assert [keys(e) for e in dataset.batch(8)] == [["z", "b", "m"]]


def test_a_cache_on_disk_keeps_it(tmp_path: Path) -> None:
    for columns in (COLUMNS, OrderedDict(COLUMNS)):
        path = tmp_path / type(columns).__name__
        for _ in range(2):
            found = list(Dataset.from_tensor_slices(columns).cache(path))
            assert type(found[0]) is type(columns) and keys(found[0]) == ["z", "b", "m"]


def test_tensorflows_names_keep_it() -> None:
    dataset = tf.data.Dataset.from_tensor_slices(COLUMNS).map(lambda x: {k: v + 1 for k, v in x.items()})
    assert keys(next(iter(dataset))) == ["z", "b", "m"]
    assert next(iter(dataset.map(lambda x: tf.stack(list(x.values()))))).numpy().tolist() == [1, 11, 21]


@given(st.permutations(["a", "b", "c", "d"]), st.sampled_from(sorted(CHAINS)))
@settings(max_examples=25)
def test_any_order_is_kept(order: list[str], name: str) -> None:
    columns = {"z" if k == "d" else k: np.arange(4) for k in order}
    dataset = Dataset.from_tensor_slices({"x": columns, "in": (columns, {})}).map(lambda x: x["x"])
    assert all(keys(e) == list(columns) for e in CHAINS[name](dataset))


_LEAVES = st.one_of(
    st.integers(0, 9), st.just(2.5), st.just(b"text"), st.just(np.float32(3)), st.just(np.arange(2)), st.just("a")
)
# With keys in their order: so JAX gives them back.
_TREES = st.recursive(
    st.one_of(_LEAVES, st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.tuples(inner, inner).map(lambda pair: Pair(*pair)),
        st.lists(inner, max_size=3).map(lambda values: dict(zip("abc", values, strict=False))),
        st.lists(inner, max_size=3).map(lambda values: OrderedDict(zip("abc", values, strict=False))),
    ),
    max_leaves=8,
)


@given(tree=_TREES)
def test_map_structure_is_jax_tree_map(tree: Any) -> None:
    def wrap(leaf: Any) -> tuple[str, str]:
        return type(leaf).__name__, str(leaf)

    assert _nest.map_structure(wrap, tree) == jax.tree.map(wrap, tree)
    result = _nest.map_structure(lambda leaf: leaf, tree)
    assert jax.tree.structure(result) == jax.tree.structure(tree)
