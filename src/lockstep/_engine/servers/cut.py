"""Cuts: each server's state in one file, whole or absent, readable by any number of servers.

A file is a zip of NumPy's arrays (`numpy.savez`), with the ids of touched rows beside their values: what nobody has
touched takes no space. Nothing in it is unpickled.
"""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from lockstep._engine.servers.compiled import Programs
from lockstep._engine.servers.layout import Layout, Shard, dtype_of
from lockstep._engine.servers.requests import CutInfo
from lockstep._engine.servers.rows import Table
from lockstep._types import JSON, Array
from lockstep.checkpoint.internal import naming, replacing
from lockstep.errors import CheckpointError

_FACTS = "facts"


def write(
    directory: str,
    step: int,
    server: int,
    layout: Layout,
    facts: Mapping[str, JSON],
    arrays: Mapping[str, Array],
    note: Callable[[], None],
) -> CutInfo:
    """Writes one server's part of a cut, durably.

    Args:
        directory: Of the cut.
        step: Of the cut.
        server: Who writes.
        layout: The servers' layout.
        facts: The server's counters.
        arrays: Its values, by their names in the file.
        note: Called after each piece.

    Raises:
        CheckpointError: If it cannot be written; then nothing is left of it, and older cuts are as they were.
    """
    name = f"step_{step}_server_{server}_of_{layout.num_servers}.npz"
    path = Path(directory) / name
    record = {**facts, "server": server, "layout": layout.digest()}
    text = np.frombuffer(json.dumps(record).encode(), np.uint8)
    with naming(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(str(path)) as file:
            np.savez(cast(Any, _NotedFile(file, note)), allow_pickle=False, **{_FACTS: text}, **arrays)
        size = path.stat().st_size
    return CutInfo(name, server, layout.num_servers, layout.digest(), int(facts["version"]), size)


class _NotedFile:
    """A file whose writes are noted; numpy writes arrays in pieces of 16 MiB."""

    def __init__(self, file: BinaryIO, note: Callable[[], None]) -> None:
        self._file, self._note = file, note

    def write(self, data: Any) -> int:
        """Writes, and notes it."""
        count = self._file.write(data)
        self._note()
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@dataclass(frozen=True)
class Part:
    """One server's part of a cut.

    Attributes:
        path: Of the file.
        facts: The counters of the server that wrote it.
        arrays: Read from the file one by one, when they are asked for.
        note: Called after each.
    """

    path: Path
    facts: Mapping[str, JSON]
    arrays: Any
    note: Callable[[], None]

    def of(self, kind: str, name: str) -> dict[str, Array]:
        """Returns the arrays of one table or clock, by what they are of it.

        Raises:
            CheckpointError: If the file is damaged.
        """
        start = f"{kind}|{name}|"
        return {key.removeprefix(start): self.array(key) for key in self.arrays.files if key.startswith(start)}

    def array(self, key: str) -> Array:
        """Returns one array.

        Raises:
            CheckpointError: If it is not there, or the file is damaged.
        """
        try:
            array = self.arrays[key]
        except _UNREADABLE as error:
            raise _damage_error(self.path, error) from error
        self.note()
        return array


_UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, NotImplementedError)


@contextlib.contextmanager
def reading(
    directory: str, infos: Sequence[JSON], written: Layout, layout: Layout, note: Callable[[], None]
) -> Generator[list[Part]]:
    """Opens the parts of a cut, in the order of the servers that wrote them.

    Args:
        directory: Of the cut.
        infos: A `CutInfo.to_json` of each server.
        written: The layout that the cut was written with.
        layout: The one that it is read into.
        note: Called after each array.

    Raises:
        CheckpointError: If a part is missing or damaged, or of other variables.
    """
    if written.variables != layout.variables:
        odd = sorted({v.name for v in set(written.variables) ^ set(layout.variables)})
        raise CheckpointError(
            f"A cut is restored into a model with the same variables. The one in {directory} differs in {odd[:8]}. "
            "Restore the program that wrote it, or begin with another backup directory."
        )
    with contextlib.ExitStack() as files:
        parts = [_open(Path(directory) / str(info["file"]), files, note) for info in infos]
        _check(directory, parts, written)
        yield parts


def _check(directory: str, parts: Sequence[Part], written: Layout) -> None:
    if len(parts) != written.num_servers or any(p.facts.get("layout") != written.digest() for p in parts):
        raise CheckpointError(
            f"A cut has one file of each of its {written.num_servers} servers. Received: {len(parts)} in {directory}, "
            "of which not all are of this cut. Restore an older one."
        )
    if len({p.facts["version"] for p in parts}) > 1:
        raise CheckpointError(
            f"All files of a cut are of one version. Received: {[p.facts['version'] for p in parts]} in {directory}. "
            "Restore an older one."
        )


def _open(path: Path, files: contextlib.ExitStack, note: Callable[[], None]) -> Part:
    try:
        # NumPy leaves a file open that it cannot read, if it has opened it itself.
        file = files.enter_context(path.open("rb"))
    except OSError as error:
        raise _damage_error(path, error) from error
    try:
        arrays = np.load(file, allow_pickle=False)
        return Part(path, json.loads(bytes(arrays[_FACTS])), arrays, note)
    except _UNREADABLE as error:
        raise _damage_error(path, error) from error


def _damage_error(path: Path, error: BaseException) -> CheckpointError:
    return CheckpointError(
        f"{path} is one server's part of a cut. It cannot be read: {error}. Restore an older backup, or "
        "bring the file back."
    )


def gather(parts: Sequence[Part], written: Layout, own: Sequence[Shard], kind: str, name: str, which: int) -> Array:
    """Returns a server's rows of a variable or slot, from whoever wrote them.

    Args:
        parts: Of the cut.
        written: The layout of the cut.
        own: The server's shards of the variable.
        kind: "dense" or "delta".
        name: Of the variable.
        which: 0 for its value, from 1 for slots.
    """
    shards = written.shards_of(name)
    variable = written.variable(name)
    key = f"{kind}|{name}|{which}"
    offsets = dict.fromkeys(range(written.num_servers), 0)
    pieces: list[tuple[Shard, Array]] = []
    for shard in shards:
        if shard.start == shard.stop and len(shards) > 1:
            continue
        array = parts[shard.server].array(key)
        if not variable.shape or len(shards) == 1:
            pieces.append((shard, array))
            continue
        begin = offsets[shard.server]
        offsets[shard.server] += shard.stop - shard.start
        pieces.append((shard, array[begin : offsets[shard.server]]))
    if len(pieces) == 1 and sum(s.stop - s.start for s in own) == variable.rows:
        return _restore_dtype(pieces[0][1], variable.dtype)
    rows = [
        piece[max(shard.start, mine.start) - shard.start : min(shard.stop, mine.stop) - shard.start]
        for mine in own
        for shard, piece in pieces
        if max(shard.start, mine.start) < min(shard.stop, mine.stop)
    ]
    return _restore_dtype(np.concatenate(rows), variable.dtype)


def _restore_dtype(array: Array, dtype: str) -> Array:
    """Returns an array with its dtype, which NumPy's files do not know of bfloat16 and the like."""
    return array.view(dtype_of(dtype)) if array.dtype.kind == "V" else array


def rows_of(part: Part, mine: Part, written: Layout, table: Table, programs: Programs) -> dict[str, Array]:
    """Returns the rows of a table in a part of a cut, by the clock of the part `mine`.

    Asynchronous servers may have applied tickets in another order, with other learning rates at a step: then rows that
    come from another server are brought up to date by its own clock.
    """
    name = table.variable.name
    state = part.of("rows", name)
    if not state or table.program.movement is None or part is mine:
        return state
    theirs, ours = part.of("rates", table.key), mine.of("rates", table.key)
    if all(np.array_equal(theirs[key], ours[key]) for key in ours):
        return state
    other = Programs(programs.rule, 0)
    other.rates[table.key].load_state(theirs)
    server = int(part.facts["server"])
    shards = [s for s in written.shards_of(name) if s.server == server]
    copy = Table(table.variable, shards, other, None)
    copy.load_state(state)
    copy.settle()
    return {**copy.state(), "begin": state["begin"]}
