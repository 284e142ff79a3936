"""The protocol of readers of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np


class Reader(Protocol):
    """A reader of the records of one file in order, several at a time.

    Attributes:
        number: Ordinal of the next record in its file, from 0, for messages. After a `seek` it may cost a pass over
            what lies before.
    """

    @property
    def number(self) -> int: ...

    def read(self, limit: int) -> Any | None:
        """Returns the next records, at least one and at most `limit`, or `None` at the end of the file.

        They come as a pytree of numpy arrays with a common leading axis; text is an object array of `bytes`.
        Good records before a broken one are returned; the call that begins with the broken one raises.

        Raises:
            InputError: If the next record is broken.
        """
        ...

    def tell(self) -> int:
        """Returns where the next record begins, for `seek` of any reader of the same file with the same options."""
        ...

    def seek(self, position: int) -> None:
        """Continues from a position that `tell` returned."""
        ...

    def close(self) -> None:
        """Frees the file; a second call does nothing."""
        ...


def to_text_array(values: Sequence[bytes]) -> np.ndarray[Any, np.dtype[Any]]:
    """Returns an object array of `bytes`, shape (k,)."""
    array = np.empty(len(values), object)
    array[:] = values
    return array
