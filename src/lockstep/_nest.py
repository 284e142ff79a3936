"""Structures of dicts, tuples and arrays that keep the order of keys on their way through JAX.

JAX sorts the keys of a dict when it flattens one, and gives a dict in that order back: columns come out in another
order than they went in. Here leaves are sorted by key, too, so that dicts with the same keys are of one structure; but
what is built of them again has the type and the order of keys of the first one, as in TensorFlow's nest.

`packed` makes of each mapping a node that JAX hands on as it is; `opened` makes of it what users see.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

_Make = Callable[[Iterable[tuple[Any, Any]]], Any]


class Packed(dict[Any, Any]):
    """A mapping as a node of JAX's trees, which keeps its order of keys and the type that `opened` makes of it.

    Args:
        items: Pairs of keys and values, in their order.
        make: Makes the mapping that users see.
    """

    def __init__(self, items: Iterable[tuple[Any, Any]], make: _Make = dict) -> None:
        super().__init__(items)
        self.make = make

    @classmethod
    def like(cls, mapping: Mapping[Any, Any], values: Iterable[Any]) -> Packed:
        """Returns values in the order of the keys of a mapping, to be a mapping of its type."""
        return cls(zip(mapping, values, strict=True), _make_of(mapping))


class _Keys:
    """What a node of JAX's trees knows of a mapping besides its values; equal for the same keys in any order."""

    def __init__(self, mapping: Packed) -> None:
        self.ordered = tuple(mapping)
        self.sorted = tuple(sorted(mapping))
        self.make = mapping.make

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keys) and self.sorted == other.sorted

    def __hash__(self) -> int:
        return hash(self.sorted)

    def __repr__(self) -> str:
        return repr(list(self.sorted))


def _flatten(mapping: Packed) -> tuple[list[Any], _Keys]:
    keys = _Keys(mapping)
    return [mapping[k] for k in keys.sorted], keys


def _flatten_with_keys(mapping: Packed) -> tuple[list[tuple[Any, Any]], _Keys]:
    keys = _Keys(mapping)
    return [(jax.tree_util.DictKey(k), mapping[k]) for k in keys.sorted], keys


def _unflatten(keys: _Keys, values: Iterable[Any]) -> Packed:
    found = dict(zip(keys.sorted, values, strict=True))
    return Packed(((k, found[k]) for k in keys.ordered), keys.make)


jax.tree_util.register_pytree_with_keys(Packed, _flatten_with_keys, _unflatten, _flatten)


def _make_of(mapping: Mapping[Any, Any]) -> _Make:
    if isinstance(mapping, Packed):
        return mapping.make
    if isinstance(mapping, defaultdict):
        return partial(type(mapping), mapping.default_factory)
    return type(mapping)


def packed(tree: Any) -> Any:
    """Returns a structure in which each dict and defaultdict is a `Packed`; JAX keeps the order of other mappings."""
    return _rebuilt(tree, _PACKED, lambda node, values: Packed(zip(node, values, strict=True), _make_of(node)))


def canonical(tree: Any) -> Any:
    """Returns a structure as `packed`, in which an OrderedDict is a `Packed`, too: the order of its keys is no matter.

    That holds for elements of data: two with the same keys are of one structure.
    """
    return _rebuilt(tree, _OPENED, lambda node, values: Packed(zip(node, values, strict=True), _make_of(node)))


def opened(tree: Any) -> Any:
    """Returns a structure in which each `Packed` is the mapping that it stands for; containers are new ones."""
    return _rebuilt(tree, _OPENED, lambda node, values: _make_of(node)(zip(node, values, strict=True)))


_PACKED = frozenset((dict, defaultdict, Packed))
_OPENED = frozenset((*_PACKED, OrderedDict))
# Leaves are told apart from nodes that only JAX knows without asking it: that takes longer than all else.
_LEAVES = (np.ndarray, np.generic, jax.Array, int, float, complex, str, bytes, type(None))


def _rebuilt(tree: Any, kinds: frozenset[type], of_mapping: Callable[[Any, Iterable[Any]], Any]) -> Any:
    kind = type(tree)
    if kind in kinds:
        return of_mapping(tree, [_rebuilt(value, kinds, of_mapping) for value in tree.values()])
    if kind in (tuple, list):
        return kind([_rebuilt(value, kinds, of_mapping) for value in tree])
    if isinstance(tree, _LEAVES):
        return tree
    return jax.tree.map(
        lambda node: _rebuilt(node, kinds, of_mapping) if type(node) in kinds else node,
        tree,
        is_leaf=lambda node: type(node) in kinds,
    )


def on_opened(step: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns a user's step `(state, batch)` as one of a batch that is packed."""
    return lambda state, batch: step(state, opened(batch))


class Structure:
    """A structure without its leaves, which keeps the order of keys. Equal to those with the same keys in any order."""

    def __init__(self, treedef: Any) -> None:
        self.treedef = treedef
        numbered = treedef.unflatten(range(treedef.num_leaves))
        plain = opened(numbered)
        # JAX rebuilds a structure in C++, and so a sorted one is rebuilt, at each step of a loop.
        leaves, sorted_ = jax.tree.flatten(plain)
        self._sorted = sorted_ if leaves == list(range(len(leaves))) and _is_sorted(plain) else None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Returns the structure with these leaves, as users see it."""
        if self._sorted is not None:
            return self._sorted.unflatten(leaves)
        return opened(self.treedef.unflatten(leaves))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self.treedef == other.treedef

    def __hash__(self) -> int:
        return hash(self.treedef)

    def __repr__(self) -> str:
        return repr(self.treedef)


def _is_sorted(tree: Any) -> bool:
    """Whether JAX gives all mappings back in their order."""
    kind = type(tree)
    if kind in _PACKED and list(tree) != sorted(tree):
        return False
    if kind in _OPENED:
        return all(map(_is_sorted, tree.values()))
    if isinstance(tree, _LEAVES):
        return True
    found = [node for node in jax.tree.leaves(tree, is_leaf=lambda node: type(node) in _OPENED) if node is not tree]
    return all(map(_is_sorted, found))


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Structure]:
    """Returns the leaves, in JAX's order, and the structure, as `jax.tree.flatten`."""
    leaves, treedef = jax.tree.flatten(packed(tree), is_leaf=is_leaf)
    return leaves, Structure(treedef)


def structure(tree: Any) -> Structure:
    """Returns the structure, as `jax.tree.structure`."""
    return flatten(tree)[1]


def map_structure(
    function: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Returns what a function makes of each leaf, in the structure of the first tree, as `jax.tree.map`."""
    return opened(jax.tree.map(function, packed(tree), *map(packed, rest), is_leaf=is_leaf))
