"""Values of elements that are neither arrays nor text, such as ragged and sparse tensors.

A package registers how such values are batched and taken apart. Functions are called for them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CompositeKind:
    """How values of a class are elements.

    Attributes:
        spec_of: Returns the spec of a value.
        stack: Returns values with a new first axis, as one value.
        rows: Returns the rows of a value along its first axis.
        batch_spec: Returns the spec of batches of a size, or of any number (`None`), of values with a spec.
        row_spec: Returns the spec of the rows of values with a spec.
        widen: Returns the narrowest spec that holds for the values of two, or `None` if there is none.
    """

    spec_of: Callable[[Any], Any]
    stack: Callable[[Sequence[Any]], Any]
    rows: Callable[[Any], Sequence[Any]]
    batch_spec: Callable[[Any, int | None], Any]
    row_spec: Callable[[Any], Any]
    widen: Callable[[Any, Any], Any]


_kinds: dict[type, CompositeKind] = {}
_kinds_of_specs: dict[type, CompositeKind] = {}


def register_composite(value_type: type, spec_type: type, kind: CompositeKind) -> None:
    """Registers a class of values and the class of their specs; neither may be a container of JAX's trees."""
    _kinds[value_type] = kind
    _kinds_of_specs[spec_type] = kind


def kind_of(value: object) -> CompositeKind | None:
    """Returns how a value is an element, or `None` if it is of no registered class."""
    return _kinds.get(type(value))


def kind_of_spec(spec: object) -> CompositeKind | None:
    """Returns how the values of a spec are elements, or `None` if it is of no registered class."""
    return _kinds_of_specs.get(type(spec))
