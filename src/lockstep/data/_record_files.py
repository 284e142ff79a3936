"""The records of files as a source, with a position in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from lockstep._types import PyTree
from lockstep.data import _columns
from lockstep.data._blocks import Block, array_block
from lockstep.data._files.stream import BadRecord, Reader
from lockstep.data._peek import peek_spec
from lockstep.data._plan import UNKNOWN, Cursor, Node, Run, State


class Files(Node):
    """The records of files.

    Args:
        paths: The files, in order.
        opened: Opens one.
        kind: What they are, for messages.
        spec: What the records look like, or `None` if only reading shows it.
    """

    def __init__(self, paths: Sequence[str], opened: Callable[[str], Reader], kind: str, spec: PyTree = None) -> None:
        self.paths = tuple(paths)
        self._opened = opened
        self._kind = kind
        self._spec = spec

    def open(self, run: Run) -> Cursor:
        return _FilesCursor(self.paths, self._opened)

    @property
    def spec(self) -> Any:
        if self._spec is None:
            self._spec = peek_spec(self)
        return self._spec

    @property
    def cardinality(self) -> int:
        return UNKNOWN

    @property
    def label(self) -> str:
        return f"{self._kind}({len(self.paths)} files)"

    def shard(self, count: int, index: int) -> Files:
        """Returns every `count`-th file."""
        return Files(self.paths[index::count], self._opened, self._kind, self._spec)


class _FilesCursor:
    """A cursor whose state is a file and a position in it."""

    def __init__(self, paths: Sequence[str], opened: Callable[[str], Reader]) -> None:
        self._paths = paths
        self._opened = opened
        self._index: int = 0
        self._reader: Reader | None = None

    def next(self, limit: int) -> Block | None:
        while self._index < len(self._paths):
            path = self._paths[self._index]
            try:
                if self._reader is None:
                    self._reader = self._opened(path)
                first = self._reader.number
                records = self._reader.read(limit)
            except BadRecord:
                raise
            except Exception:
                self._end_file()  # What cannot be read is not tried again: `ignore_errors` goes on with the next file.
                raise
            # A file without records is passed over; the dataset goes on with the next.
            if records is not None and jax.tree.leaves(records) and _columns.length(records):
                return array_block(records, f"{path}, record", first)
            self._end_file()
        return None

    def _end_file(self) -> None:
        self.close()
        self._index += 1

    def close(self) -> None:
        """Closes the file that is open."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def state(self) -> State:
        # The reader's own position: records are not counted to get there.
        return {"file": self._index, "at": self._reader.tell() if self._reader is not None else None}

    def restore(self, state: State) -> None:
        self._index = state["file"]
        if state["at"] is not None:
            self._reader = self._opened(self._paths[self._index])
            self._reader.seek(state["at"])
