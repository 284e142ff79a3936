"""Structures of dicts, tuples and arrays that keep the order of keys on their way through JAX.

JAX sorts the keys of a dict when it flattens one, and gives a dict in that order back: columns come out in another
order than they went in. Here leaves are sorted by key, too, so that dicts with the same keys are of one structure; but
what is built of them again has the type and the order of keys of the first one, as in TensorFlow's nest.

`packed` makes of each mapping a node that JAX hands on as it is; `opened` makes of it what users see.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial, wraps
from typing import Any

import jax
import numpy as np

from lockstep.errors import ArgumentError

_Make = Callable[[Iterable[tuple[Any, Any]]], Any]


class Packed(dict[Any, Any]):
    """A mapping as a node of JAX's trees, which keeps its order of keys and the type that `opened` makes of it.

    Args:
        items: Pairs of keys and values, in their order.
        make: Makes the mapping that users see.
    """

    def __init__(self, items: Iterable[tuple[Any, Any]], make: _Make = dict) -> None:
        dict.__init__(self, items)
        self.make = make

    @classmethod
    def like(cls, mapping: Mapping[Any, Any], values: Iterable[Any]) -> Packed:
        """Returns values in the order of the keys of a mapping, to be a mapping of its type."""
        return cls(zip(mapping, values, strict=True), _make_of(mapping))


class _Keys:
    """The metadata of a mapping as a node of JAX's trees; equal for the same keys in any order."""

    def __init__(self, mapping: Packed) -> None:
        self.ordered = tuple(mapping)
        try:
            self.sorted = tuple(sorted(mapping))
        except TypeError:
            raise ArgumentError(
                "The keys of a dict of arrays must have an order, such as text alone or whole numbers alone. Received: "
                f"{list(mapping)!r:.200}. Rename those of another type."
            ) from None
        # The place of each key's value among the sorted ones; nothing if they are sorted.
        self.places = None if self.ordered == self.sorted else tuple(map(self.sorted.index, self.ordered))
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
    if keys.places is not None:
        given = tuple(values)
        values = [given[i] for i in keys.places]
    return Packed(zip(keys.ordered, values, strict=True), keys.make)


jax.tree_util.register_pytree_with_keys(Packed, _flatten_with_keys, _unflatten, _flatten)


def _make_of(mapping: Mapping[Any, Any]) -> _Make:
    if isinstance(mapping, Packed):
        return mapping.make
    if isinstance(mapping, defaultdict):
        return partial(type(mapping), mapping.default_factory)
    return type(mapping) if isinstance(mapping, dict) else partial(_from_items, type(mapping))


def _from_items(kind: Any, items: Iterable[tuple[Any, Any]]) -> Any:
    # Mappings that are no dicts take a dict, and not always pairs.
    return kind(dict(items))


def pack(tree: Any) -> Any:
    """Returns a structure in which each dict and defaultdict is a `Packed`; JAX keeps the order of other mappings."""
    return _rebuild(tree, _PACKED, lambda node, values: Packed(zip(node, values, strict=True), _make_of(node)))


def canonical(tree: Any) -> Any:
    """Returns a structure as `packed`, in which an OrderedDict is a `Packed`, too: the order of its keys is no matter.

    That holds for elements of data: two with the same keys are of one structure.
    """
    return _rebuild(tree, _OPENED, lambda node, values: Packed(zip(node, values, strict=True), _make_of(node)))


def unpack(tree: Any) -> Any:
    """Returns a structure in which each `Packed` is the mapping that it stands for; containers are new ones."""
    return tree if isinstance(tree, _LEAVES) else _rebuild(tree, _OPENED, _open)


def _open(node: Mapping[Any, Any], values: Iterable[Any]) -> Any:
    return _make_of(node)(zip(node, values, strict=True))


_PACKED = frozenset((dict, defaultdict, Packed))
_OPENED = frozenset((*_PACKED, OrderedDict))
# Leaves are told apart from nodes that only JAX knows without asking it: that takes longer than all else. To see that a
# value is no jax.Array takes as long as all others, so that is asked last.
_LEAVES = (np.ndarray, np.generic, int, float, complex, str, bytes, type(None), jax.Array)
# Leaves that their type alone tells from containers.
PLAIN = frozenset((np.ndarray, np.float32, np.float64, np.int32, np.int64, np.uint8, bytes, str, int, float, bool))
_FREQUENT = frozenset((*PLAIN, type(None)))


def _rebuild(tree: Any, kinds: frozenset[type], of_mapping: Callable[[Any, list[Any]], Any]) -> Any:
    kind = type(tree)
    if kind in kinds:
        values = [v if type(v) in _FREQUENT else _rebuild(v, kinds, of_mapping) for v in tree.values()]
        return of_mapping(tree, values)
    if kind is tuple or kind is list:
        return kind([v if type(v) in _FREQUENT else _rebuild(v, kinds, of_mapping) for v in tree])
    if isinstance(tree, _LEAVES):
        return tree
    return jax.tree.map(
        lambda node: _rebuild(node, kinds, of_mapping) if type(node) in kinds else node,
        tree,
        is_leaf=lambda node: type(node) in kinds,
    )


def on_opened(step: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns a user's step `(state, batch)` as one of a batch that is packed."""

    @wraps(step)
    def of_packed(state: Any, batch: Any) -> Any:
        return step(state, unpack(batch))

    return of_packed


class Structure:
    """A structure without its leaves, which keeps the order of keys. Equal to those with the same keys in any order."""

    def __init__(self, treedef: Any) -> None:
        self.treedef = treedef

    @cached_property
    def _sorted(self) -> Any:
        """The structure as JAX alone rebuilds it; `None` if it would sort keys."""
        # In C++: a loop does it at each step.
        plain = unpack(self.treedef.unflatten(range(self.treedef.num_leaves)))
        return jax.tree.structure(plain) if _is_sorted(plain) else None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Returns the structure with these leaves, as users see it."""
        if self._sorted is not None:
            return self._sorted.unflatten(leaves)
        return unpack(self.treedef.unflatten(leaves))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self.treedef == other.treedef

    def __hash__(self) -> int:
        return hash(self.treedef)

    def __repr__(self) -> str:
        return repr(jax.tree.structure(self.unflatten(range(self.treedef.num_leaves))))


def _is_sorted(tree: Any) -> bool:
    """Returns whether JAX gives all mappings back in their order."""
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
    leaves, treedef = jax.tree.flatten(pack(tree), is_leaf=is_leaf)
    return leaves, Structure(treedef)


def structure(tree: Any) -> Structure:
    """Returns the structure, as `jax.tree.structure`."""
    return flatten(tree)[1]


def map_structure(
    function: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Returns what a function makes of each leaf, in the structure of the first tree, as `jax.tree.map`."""
    # An element's arrays come one by one, and JAX's walk takes 20 times as long as the call of a small function.
    if not rest and is_leaf is None:
        return _map_plain(function, tree)
    return unpack(jax.tree.map(function, pack(tree), *map(pack, rest), is_leaf=is_leaf))


def _map_plain(function: Callable[[Any], Any], tree: Any) -> Any:
    """Maps the leaves of one tree: those of tuples and lists without JAX, which walks all other containers."""
    kind = type(tree)
    if kind is tuple or kind is list:
        return kind([_map_plain(function, value) for value in tree])
    if kind in PLAIN or (tree is not None and isinstance(tree, _LEAVES)):
        value = function(tree)
        return value if type(value) in _FREQUENT else unpack(value)
    return unpack(jax.tree.map(function, pack(tree)))
