"""`Optional`: the next element of an iterator, if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep._types import Element
from lockstep.errors import ArgumentError

_NOTHING = object()


class Optional:
    """An element, or its absence: the result of `get_next_as_optional`. Source: tf.experimental.Optional."""

    def __init__(self, value: Element = _NOTHING) -> None:
        self._value = value

    @classmethod
    def of_next(cls, iterator: Iterator[Element]) -> Optional:
        """Returns the next element of an iterator; at its end, one without a value."""
        # Not None, which an element may be.
        return cls(next(iterator, _NOTHING))

    def has_value(self) -> bool:
        """Returns whether there is an element."""
        return self._value is not _NOTHING

    def get_value(self) -> Any:
        """Returns the element.

        Raises:
            ArgumentError: If there is none.
        """
        if not self.has_value():
            raise ArgumentError(
                "The iterator has come to its end. Received: a request for its next element. Ask has_value."
            )
        return self._value
