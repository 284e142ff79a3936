"""tf.nest: structures of lists, tuples and dicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from lockstep._types import PyTree
from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._types import Argument

__all__ = ["assert_same_structure", "flatten", "is_nested", "map_structure", "pack_sequence_as"]


def flatten(structure: PyTree, expand_composites: bool = False) -> list[Any]:
    """Returns the leaves, those of dicts in the order of their keys; `None` is a leaf. Source: tf.nest.flatten."""
    del expand_composites  # There are no composite tensors.
    return keras.tree.flatten(structure)


def map_structure(func: Callable[..., Any], *structure: PyTree, **kwargs: Argument) -> Any:
    """Returns the structure of what a function makes of the leaves. Source: tf.nest.map_structure."""
    for name in ("check_types", "expand_composites"):
        kwargs.pop(name, None)
    return keras.tree.map_structure(lambda *leaves: func(*leaves, **kwargs), *structure)


def pack_sequence_as(structure: PyTree, flat_sequence: Sequence[Any], expand_composites: bool = False) -> Any:
    """Returns the structure with other leaves. Source: tf.nest.pack_sequence_as."""
    del expand_composites
    return keras.tree.pack_sequence_as(structure, flat_sequence)


def assert_same_structure(
    nest1: PyTree, nest2: PyTree, check_types: bool = True, expand_composites: bool = False
) -> None:
    """Raises ValueError or TypeError if the structures differ. Source: tf.nest.assert_same_structure."""
    del expand_composites
    keras.tree.assert_same_structure(nest1, nest2, check_types=check_types)


def is_nested(structure: PyTree) -> bool:
    """Returns whether this is a list, a tuple or a dict. Source: tf.nest.is_nested."""
    return keras.tree.is_nested(structure)


__getattr__ = _getter(__name__)
