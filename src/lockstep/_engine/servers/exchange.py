"""Bytes of an exchange between a worker and a server: a struct, and arrays whose sizes the layout bounds.

A request holds, in this order: a fixed header; for each table the number of rows that are pushed and pulled; a byte for
each other shard that tells whether its gradient or difference is there; the scalars; then ids and gradients of the rows
that are pushed, gradients and differences of other variables, and ids of the rows that are pulled. An answer: a fixed
header, then the rows that were asked for, then all other variables if there are newer ones. All is little-endian. Each
array begins at a multiple of 64 bytes, so that all are read at once, into memory that XLA takes as it is.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lockstep._engine.runtime.buffers import ALIGNMENT, align_size, aligned_empty
from lockstep._engine.servers.layout import Shard, Variable
from lockstep._engine.servers.messages import EXCHANGE, HEADER, REPLY, Array, ProtocolError, dtype_of, view_of
from lockstep._engine.servers.requests import JobSpec, Pull, Push, Reply, Request, Status

Buffers = list[bytes | memoryview]
Read = Callable[[memoryview], None]
# Flags; generation of the push and of the pull; ticket, share, weight, version that the push is based on; version that
# the dense variables must be newer than, version to wait for, seconds to wait.
_REQUEST = struct.Struct("<B3xIIQIdqqqd")
_PUSHES, _PULLS, _SUMS, _AHEAD = 1, 2, 4, 8
_REPLY = struct.Struct("<BBBxqqI")
_STATUSES: tuple[Status, ...] = ("ok", "superseded", "late", "waiting")
_IDS = np.dtype("<i8")
_BYTES = np.dtype(np.uint8)
_NO_VERSION = -1
_ZEROS = bytes(ALIGNMENT)


class _Table(NamedTuple):
    """A table on the server: how many rows it has there, and what a row is."""

    name: str
    rows: int
    row_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    row_bytes: int


class _Whole(NamedTuple):
    """A variable that travels whole: the server's rows of it, one range after the other."""

    name: str
    is_delta: bool
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


def _table_of(variable: Variable, own: Sequence[Shard]) -> _Table:
    dtype = dtype_of(variable.dtype)
    rows = sum(s.stop - s.start for s in own if s.variable == variable.name)
    return _Table(variable.name, rows, variable.row_shape, dtype, math.prod(variable.row_shape) * dtype.itemsize)


def _whole_of(variable: Variable, own: Sequence[Shard]) -> _Whole:
    dtype = dtype_of(variable.dtype)
    rows = sum(s.stop - s.start for s in own if s.variable == variable.name)
    shape = (rows, *variable.row_shape) if variable.shape else ()
    return _Whole(variable.name, variable.kind == "delta", shape, dtype, math.prod(shape) * dtype.itemsize)


class ExchangeCodec:
    """Encodes and decodes exchanges with one server.

    Args:
        spec: The job's spec, whose layout bounds every size.
        server: The server.
        hyper: The names of the scalars of the update rule.
    """

    def __init__(self, spec: JobSpec, server: int, hyper: Sequence[str]) -> None:
        own = spec.layout.of_server(server)
        names = {shard.variable for shard in own}
        variables = [v for v in spec.layout.variables if v.name in names]
        self._tables = [_table_of(v, own) for v in variables if v.kind == "rows"]
        self._wholes = [_whole_of(v, own) for v in variables if v.kind != "rows"]
        self._hyper = tuple(hyper)
        self._counts = struct.Struct(f"<{2 * len(self._tables)}I{len(self._wholes)}B{len(hyper)}d")
        self._values_bytes = sum(align_size(w.nbytes) for w in self._wholes)
        # A synchronous server keeps what is pushed until all shares are there.
        self._keeps = spec.mode == "sync"
        self._memory = aligned_empty((0,), _BYTES)

    def encode_request(self, request: Request) -> Buffers:
        """Returns a request as buffers; arrays are not copied."""
        push, pull = request.push, request.pull
        flags = (_PUSHES if push else 0) | (_PULLS if pull else 0) | (_SUMS if pull and pull.sums else 0)
        flags |= _AHEAD if request.is_ahead else 0
        at_version = _NO_VERSION if pull is None or pull.at_version is None else pull.at_version
        header = _REQUEST.pack(
            flags,
            push.generation if push else 0,
            pull.generation if pull else 0,
            push.ticket if push else 0,
            push.share if push else 0,
            push.weight if push else 0.0,
            push.based_on if push else 0,
            pull.dense_newer_than if pull else 0,
            at_version,
            request.seconds,
        )
        pushed: Mapping[str, tuple[Array, Array]] = push.rows if push else {}
        pulled: Mapping[str, Array] = pull.rows if pull else {}
        wholes: list[tuple[_Whole, Array | None]] = [(w, _value_of(push, w)) for w in self._wholes]
        counts = [n for t in self._tables for n in (_length(pushed, t.name), len(pulled.get(t.name, ())))]
        present = [value is not None for _, value in wholes]
        hyper = [float(push.hyper.get(name, 0.0)) if push else 0.0 for name in self._hyper]
        arrays: list[Array] = []
        for table in self._tables:
            if table.name in pushed:
                ids, gradients = pushed[table.name]
                arrays += [_plain(ids, _IDS), _plain(gradients, table.dtype)]
        arrays += [_plain(value, whole.dtype) for whole, value in wholes if value is not None]
        arrays += [_plain(pulled[t.name], _IDS) for t in self._tables if t.name in pulled]
        return _frame(EXCHANGE, header + self._counts.pack(*counts, *present, *hyper), arrays)

    def decode_request(self, first: bytes | bytearray, size: int, read: Read) -> Request:
        """Returns a request; its arrays last until the next one is decoded.

        Raises:
            ProtocolError: If a size is not possible by the layout.
        """
        if len(first) != _REQUEST.size + self._counts.size:
            raise ProtocolError(f"an exchange of another layout: {len(first)} bytes")
        header = _REQUEST.unpack_from(first)
        flags, of_push, of_pull, ticket, share, weight, based_on, newer, at_version, seconds = header
        counts = self._counts.unpack_from(first, _REQUEST.size)
        sizes, counts = counts[: 2 * len(self._tables)], counts[2 * len(self._tables) :]
        present, hyper = counts[: len(self._wholes)], counts[len(self._wholes) :]
        expected = self._size_of_request(sizes, present)
        if expected != size:
            raise ProtocolError(f"arrays of {size} bytes in place of {expected}")
        arrays = _Arrays(self._request_memory(size), read)
        rows: dict[str, tuple[Array, Array]] = {}
        for number, table in enumerate(self._tables):
            if count := sizes[2 * number]:
                ids = arrays.next((count,), _IDS)
                rows[table.name] = ids, arrays.next((count, *table.row_shape), table.dtype)
        dense: dict[str, Array] = {}
        delta: dict[str, Array] = {}
        for whole, is_there in zip(self._wholes, present, strict=True):
            if is_there:
                (delta if whole.is_delta else dense)[whole.name] = arrays.next(whole.shape, whole.dtype)
        wanted: dict[str, Array] = {}
        for number, table in enumerate(self._tables):
            if count := sizes[2 * number + 1]:
                wanted[table.name] = arrays.next((count,), _IDS)
        push = pull = None
        if flags & _PUSHES:
            scalars = dict(zip(self._hyper, hyper, strict=True))
            push = Push(of_push, ticket, share, weight, scalars, rows, dense, delta, based_on)
        if flags & _PULLS:
            at = None if at_version == _NO_VERSION else at_version
            pull = Pull(of_pull, wanted, newer, at, bool(flags & _SUMS))
        return Request(push, pull, seconds, bool(flags & _AHEAD))

    def encode_reply(self, reply: Reply, pull: Pull | None) -> Buffers:
        """Returns an answer as buffers."""
        is_ok = reply.status == "ok"
        has_dense = is_ok and reply.dense is not None
        status = _STATUSES.index(reply.status)
        first = _REPLY.pack(status, reply.applied, has_dense, reply.version, reply.staleness, len(reply.missing))
        arrays: list[Array] = [np.asarray(reply.missing, _IDS)] if reply.missing else []
        if is_ok and pull is not None:
            arrays += [_plain(reply.rows[t.name], t.dtype) for t in self._tables if len(pull.rows.get(t.name, ()))]
        if has_dense and reply.dense is not None:
            arrays += [_plain(reply.dense[w.name], w.dtype) for w in self._wholes]
        return _frame(REPLY, first, arrays)

    def decode_reply(self, first: bytes | bytearray, size: int, pull: Pull | None, read: Read) -> Reply:
        """Returns the answer to a request with `pull`.

        Raises:
            ProtocolError: If it is not the one to that.
        """
        if len(first) != _REPLY.size:
            raise ProtocolError("an answer of another version")
        status, applied, has_dense, version, staleness, missing = _REPLY.unpack(first)
        if status >= len(_STATUSES):
            raise ProtocolError(f"an answer of status {status}")
        wanted = pull.rows if pull and status == 0 else {}
        counts = [(table, count) for table in self._tables if (count := len(wanted.get(table.name, ())))]
        expected = sum(align_size(count * table.row_bytes) for table, count in counts)
        expected += (self._values_bytes if has_dense else 0) + align_size(missing * _IDS.itemsize)
        if expected != size:
            raise ProtocolError(f"an answer of {size} bytes in place of {expected}")
        # New memory: what a worker has pulled is in use while the next batch's is pulled.
        arrays = _Arrays(aligned_empty((size,), _BYTES), read)
        shares = tuple(map(int, arrays.next((missing,), _IDS)))
        rows = {table.name: arrays.next((count, *table.row_shape), table.dtype) for table, count in counts}
        dense = {w.name: arrays.next(w.shape, w.dtype) for w in self._wholes} if has_dense else None
        return Reply(version, bool(applied), staleness, rows, dense, _STATUSES[status], shares)

    def _size_of_request(self, sizes: Sequence[int], present: Sequence[int]) -> int:
        total = 0
        for number, table in enumerate(self._tables):
            pushed, pulled = sizes[2 * number : 2 * number + 2]
            # Ids differ, so there are no more than the shard has rows.
            if max(pushed, pulled) > table.rows:
                raise ProtocolError(f"{max(pushed, pulled)} rows of {table.name}")
            total += align_size(pushed * _IDS.itemsize) + align_size(pushed * table.row_bytes)
            total += align_size(pulled * _IDS.itemsize)
        return total + sum(align_size(w.nbytes) for w, there in zip(self._wholes, present, strict=True) if there)

    def _request_memory(self, size: int) -> Array:
        """Returns memory for the arrays of a request, which the next one uses again."""
        if self._keeps:
            return aligned_empty((size,), _BYTES)
        if self._memory.size < size:
            # To the next power of two: the numbers of rows differ from batch to batch.
            self._memory = aligned_empty((1 << (size - 1).bit_length(),), _BYTES)
        return self._memory[:size]


class _Arrays:
    """The arrays of a frame, one after the other, read at once."""

    def __init__(self, memory: Array, read: Read) -> None:
        self._memory, self._at = memory, 0
        if memory.size:
            read(memory.data)

    def next(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Returns the next array."""
        size, at = math.prod(shape) * dtype.itemsize, self._at
        self._at += align_size(size)
        return self._memory[at : at + size].view(dtype).reshape(shape)


def _frame(kind: int, first: bytes, arrays: Sequence[Array]) -> Buffers:
    size = 0
    buffers: Buffers = [b""]
    for array in arrays:
        if nbytes := array.nbytes:
            buffers.append(view_of(array))
            if gap := -nbytes % ALIGNMENT:
                buffers.append(_ZEROS[:gap])
            size += align_size(nbytes)
    buffers[0] = HEADER.pack(kind, len(first), size) + first
    return buffers


def _plain(array: Array, dtype: np.dtype[Any]) -> Array:
    if array.dtype == dtype and array.flags.c_contiguous:
        return array
    return np.ascontiguousarray(array, dtype).reshape(np.shape(array))


def _value_of(push: Push | None, whole: _Whole) -> Array | None:
    """Returns the gradient or difference of a variable, if the push has one."""
    return None if push is None else (push.delta if whole.is_delta else push.dense).get(whole.name)


def _length(pushed: Mapping[str, tuple[Array, Array]], name: str) -> int:
    return len(pushed[name][0]) if name in pushed else 0
