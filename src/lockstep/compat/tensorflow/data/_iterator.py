"""tf.data.Iterator and tf.experimental.Optional: elements one by one, as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep._nest import map_structure
from lockstep._types import Element, PyTree
from lockstep.compat.tensorflow._tensor import as_host, as_tensor
from lockstep.data import DatasetIterator
from lockstep.data.internal import Optional as _Optional
from lockstep.data.internal import spec_of_leaf

__all__ = ["Iterator", "Optional"]


class Optional(_Optional):
    """An element, or its absence. Source: tf.experimental.Optional."""

    def __init__(self, *value: Element, element_spec: PyTree = None) -> None:
        super().__init__(*value)
        self._element_spec = element_spec

    @staticmethod
    def from_value(value: Element) -> Optional:
        """Returns an optional that has a value. Source: tf.experimental.Optional.from_value."""
        tensors = map_structure(as_tensor, value)
        return Optional(tensors, element_spec=map_structure(spec_of_leaf, tensors))

    @staticmethod
    def empty(element_spec: PyTree) -> Optional:
        """Returns an optional without a value of this spec. Source: tf.experimental.Optional.empty."""
        return Optional(element_spec=element_spec)

    def has_value(self, name: str | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns whether there is a value, as a tensor of bool."""
        return as_host(np.bool_(super().has_value()))

    def get_value(self, name: str | None = None) -> Any:
        """Returns the value.

        Raises:
            tf.errors.InvalidArgumentError: If there is none.
        """
        return super().get_value()

    @property
    def element_spec(self) -> PyTree:
        """The spec of the value."""
        return self._element_spec

    def __repr__(self) -> str:
        value = repr(self.get_value()) if self.has_value() else "none"
        return f"<tf.experimental.Optional: {value}, element_spec={self._element_spec}>"


class Iterator(DatasetIterator):
    """An iterator over the elements of a dataset, as tensors. Source: tf.data.Iterator."""

    def get_next(self, name: str | None = None) -> Any:
        """Returns the next element.

        Raises:
            tf.errors.OutOfRangeError: At the end.
        """
        return super().get_next()

    def get_next_as_optional(self, name: str | None = None) -> Optional:
        """Returns the next element as an `Optional`, without a value at the end."""
        try:
            return Optional(next(self), element_spec=self.element_spec)
        except StopIteration:
            return Optional.empty(self.element_spec)
