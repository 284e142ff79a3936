"""`snapshot`, and the plan of elements that were stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lockstep._types import Element
from lockstep.data import _blocks, _columns, _structure
from lockstep.data._blocks import Block
from lockstep.data._columns import Columns
from lockstep.data._files.elements import ElementWriter, StoredElements, is_stored, read_description
from lockstep.data._map_program import wrap_error
from lockstep.data._peek import spec_if_known
from lockstep.data._plan import UNKNOWN, Cursor, Node, Run, State, Transformation
from lockstep.data._record_files import Files
from lockstep.data._sources import Arrays
from lockstep.data._transforms.interleave import Interleave
from lockstep.errors import InputError

# Returns the number of the shard of an element.
ShardOf = Callable[[Element], int]
# Returns the plan that reads stored elements.
Read = Callable[[StoredElements], Node]


# Of how many shards elements are taken in turns, as `interleave` does by default.
_CYCLE = 16


def files_of(stored: StoredElements) -> Node:
    """Returns the plan that reads stored elements, of several shards in turns, as TensorFlow does."""
    if len(stored.counts) < 2:
        return StoredFiles(stored.files, stored)
    return _StoredShards(stored)


class _StoredShards(Interleave):
    """The elements of all shards in turns."""

    def __init__(self, stored: StoredElements) -> None:
        names = Arrays(_columns.from_arrays(stored.files))
        super().__init__(names, lambda name: StoredFiles([name.decode()], stored), _CYCLE, 1)
        self._stored = stored

    @property
    def spec(self) -> Any:
        return self._stored.spec

    @property
    def cardinality(self) -> int:
        # A worker that shares the files reads some of the names.
        return sum(self._stored.counts.values()) if isinstance(self.upstream, Arrays) else UNKNOWN


class StoredFiles(Files):
    """The elements of files whose number is known."""

    def __init__(self, paths: Sequence[str], stored: StoredElements) -> None:
        super().__init__(paths, stored.open, "Stored", stored.spec)
        self._stored = stored

    @property
    def cardinality(self) -> int:
        counts = dict(
            zip(self._stored.files, (self._stored.counts[s] for s in sorted(self._stored.counts)), strict=True)
        )
        return sum(counts[path] for path in self.paths)

    def shard(self, count: int, index: int) -> Files:
        return StoredFiles(self.paths[index::count], self._stored)


class Snapshot(Transformation):
    """The elements of the first pass, which are written to a directory and read from it ever after.

    Args:
        upstream: The elements.
        path: The directory.
        compression: "" or "GZIP".
        shard_of: Returns the number of an element's shard; `None` for one shard.
        read: Returns the plan that reads the directory; `None` for its order as written.
    """

    def __init__(
        self, upstream: Node, path: Path, compression: str, shard_of: ShardOf | None, read: Read | None
    ) -> None:
        super().__init__(upstream)
        self._path = path
        self._compression = compression
        self._shard_of = shard_of
        self._read = read

    def open(self, run: Run) -> Cursor:
        # With functions of the program the order read is another one than the upstream's. All workers, and all passes,
        # must have one order, whichever wrote the files: so they are written first.
        is_written_first = self._shard_of is not None or self._read is not None
        return _SnapshotCursor(self, run, is_read=is_written_first or is_stored(self._path))

    @property
    def replayable(self) -> bool:
        return self.upstream.replayable

    @property
    def cardinality(self) -> int:
        return self.upstream.cardinality if self._read is None else UNKNOWN

    @property
    def label(self) -> str:
        return "Snapshot()"

    def writer(self) -> ElementWriter:
        """Returns a writer of the directory."""
        return ElementWriter(self._path, self._compression)

    def finish(self, writer: ElementWriter) -> None:
        """Publishes what was written."""
        writer.finish(spec_if_known(self.upstream), replace=False)

    def open_stored(self, run: Run) -> Cursor:
        """Returns a cursor over the directory, which is written now if it is not there."""
        if not is_stored(self._path):
            write_all(self.writer(), self.upstream, run, self._shard_of, replace=False)
        stored = read_description(self._path, spec_if_known(self.upstream))
        plan = files_of(stored) if self._read is None else self._read(stored)
        return plan.open(run)


class _SnapshotCursor:
    """A cursor that writes what it passes on, or reads what was written.

    One that continues a pass does not write: it has not seen the elements before.
    """

    def __init__(self, node: Snapshot, run: Run, is_read: bool) -> None:
        self._node = node
        self._run = run
        self._is_read = is_read
        self._cursor: Cursor | None = None
        self._writer: ElementWriter | None = None
        self._may_write = not is_read

    def next(self, limit: int) -> Block | None:
        cursor = self._opened()
        if self._may_write and self._writer is None:
            self._writer = self._node.writer()
        self._may_write = False
        try:
            block = cursor.next(limit)
            if self._writer is None:
                return block
            if block is not None:
                block = _blocks.compute_block(block)
                self._writer.append(block.take())
                return block
        except Exception:
            # Without the element that failed: the next pass tries again.
            self._abandon()
            raise
        self._node.finish(self._writer)
        self._writer = None
        return None

    def _opened(self) -> Cursor:
        if self._cursor is None:
            self._cursor = self._node.open_stored(self._run) if self._is_read else self._node.upstream.open(self._run)
        return self._cursor

    def _abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None

    def state(self) -> State:
        # Before the first element nothing is opened: that may mean writing all of them.
        return {"read": self._is_read, "at": None if self._cursor is None else {"state": self._cursor.state()}}

    def restore(self, state: State) -> None:
        self._is_read = state["read"]
        if state["at"] is not None:
            self._may_write = False
            self._opened().restore(state["at"]["state"])


def write_all(writer: ElementWriter, plan: Node, run: Run, shard_of: ShardOf | None, replace: bool) -> None:
    """Writes all elements of a plan; on an error nothing is left."""
    cursor = plan.open(run)
    try:
        while (block := cursor.next(_blocks.cores() if plan.replayable else 1)) is not None:
            columns = _blocks.compute_block(block).take()
            writer.append(columns, None if shard_of is None else _shards(shard_of, columns))
        writer.finish(spec_if_known(plan), replace)
    except BaseException:
        writer.abandon()
        raise


def _shards(shard_of: ShardOf, columns: Columns) -> list[int]:
    return [shard_of(element) for element in _columns.elements(columns)]


def shard_function(function: Callable[..., Any], converted: Callable[..., Any]) -> ShardOf:
    """Returns the function that checks what a user's `function`, called as `converted`, returns for an element."""
    name = _structure.name_of(function)

    def shard_of(element: Element) -> int:
        try:
            value = _structure.normalize(_structure.call(converted, _structure.copy_arrays(element)))
        except Exception as error:
            raise wrap_error(error, f"The function {name} of shard_func failed") from error
        if np.ndim(value) != 0 or getattr(value, "dtype", np.dtype(object)).kind not in "iu" or int(value) < 0:
            raise InputError(
                f"The function {name} of shard_func must return the number of a shard, a whole number from 0 on. "
                f"Received: {value!r}. Cast it to tf.int64."
            )
        return int(value)

    return shard_of
