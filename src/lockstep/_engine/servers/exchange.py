"""Bytes of an exchange between a worker and a server: a struct, and arrays whose sizes the layout bounds.

A request holds, in this order: a fixed header; for each table the number of rows that are pushed and pulled; a byte for
each other shard that tells whether its gradient or difference is there; the scalars; then ids and gradients of the rows
that are pushed, gradients and differences of other variables, and ids of the rows that are pulled. An answer: a fixed
header, then the rows that were asked for, then all other variables if there are newer ones. All is little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lockstep._engine.servers.layout import Variable
from lockstep._engine.servers.messages import EXCHANGE, HEADER, REPLY, Array, ProtocolError, dtype_of, view_of
from lockstep._engine.servers.requests import JobSpec, Pull, Push, Reply, Status

Buffers = list[bytes | memoryview]
Read = Callable[[memoryview], None]
# Flags; generation of the push and of the pull; ticket, share, weight, version that the push is based on; version that
# the dense variables must be newer than, version to wait for, seconds to wait.
_REQUEST = struct.Struct("<B3xIIQIdqqqd")
_PUSHES, _PULLS = 1, 2
_REPLY = struct.Struct("<BBBxqqI")
_STATUSES: tuple[Status, ...] = ("ok", "superseded", "late", "waiting")
_IDS = np.dtype("<i8")
_NO_VERSION = -1


class ExchangeCodec:
    """Encodes and decodes exchanges with one server.

    Args:
        spec: The job's spec, whose layout bounds every size.
        server: The server.
        hyper: The names of the scalars of the update rule.
    """

    def __init__(self, spec: JobSpec, server: int, hyper: Sequence[str]) -> None:
        own = spec.layout.of_server(server)
        rows = {shard.variable: 0 for shard in own}
        for shard in own:
            rows[shard.variable] += shard.stop - shard.start
        variables = [v for v in spec.layout.variables if v.name in rows]
        self._tables = [v for v in variables if v.kind == "rows"]
        self._others = [v for v in variables if v.kind != "rows"]
        self._rows = rows
        self._dtypes = {v.name: dtype_of(v.dtype) for v in variables}
        self._hyper = tuple(hyper)
        self._counts = struct.Struct(f"<{2 * len(self._tables)}I{len(self._others)}B{len(hyper)}d")
        # A synchronous server keeps what is pushed until all shares are there.
        self._keeps = spec.mode == "sync"
        self._buffers: dict[tuple[str, str], Array] = {}

    def encode_request(self, push: Push | None, pull: Pull | None, seconds: float) -> Buffers:
        """Returns a request as buffers; arrays are not copied."""
        flags = (_PUSHES if push else 0) | (_PULLS if pull else 0)
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
            seconds,
        )
        pushed = {v.name: push.rows[v.name] for v in self._tables if push and v.name in push.rows}
        pulled = {v.name: pull.rows[v.name] for v in self._tables if pull and v.name in pull.rows}
        others = self._others_of(push)
        counts = [n for v in self._tables for n in (_length(pushed, v.name), len(pulled.get(v.name, ())))]
        present = [v.name in others for v in self._others]
        hyper = [float(push.hyper.get(name, 0.0)) if push else 0.0 for name in self._hyper]
        first = header + self._counts.pack(*counts, *present, *hyper)
        arrays: list[Array] = []
        for variable in self._tables:
            if variable.name in pushed:
                ids, gradients = pushed[variable.name]
                arrays += [_plain(ids, _IDS), _plain(gradients, self._dtypes[variable.name])]
        arrays += [_plain(others[v.name], self._dtypes[v.name]) for v in self._others if v.name in others]
        arrays += [_plain(pulled[v.name], _IDS) for v in self._tables if v.name in pulled]
        return _frame(EXCHANGE, first, arrays)

    def decode_request(self, first: bytes | bytearray, size: int, read: Read) -> tuple[Push | None, Pull | None, float]:
        """Returns the push, the pull and the seconds to wait; arrays last until the next request is decoded.

        Raises:
            ProtocolError: If a size is not possible by the layout.
        """
        if len(first) != _REQUEST.size + self._counts.size:
            raise ProtocolError(f"an exchange of another layout: {len(first)} bytes")
        header = _REQUEST.unpack_from(first)
        flags, of_push, of_pull, ticket, share, weight, based_on, newer, at_version, seconds = header
        counts = self._counts.unpack_from(first, _REQUEST.size)
        sizes, counts = counts[: 2 * len(self._tables)], counts[2 * len(self._tables) :]
        present, hyper = counts[: len(self._others)], counts[len(self._others) :]
        expected = self._size_of_request(sizes, present)
        if expected != size:
            raise ProtocolError(f"arrays of {size} bytes in place of {expected}")
        rows: dict[str, tuple[Array, Array]] = {}
        for number, variable in enumerate(self._tables):
            if count := sizes[2 * number]:
                ids = self._read("push", variable.name, (count,), _IDS, read)
                rows[variable.name] = ids, self._read_rows("gradient", variable, count, read)
        kinds: dict[str, dict[str, Array]] = {"dense": {}, "delta": {}}
        for variable, is_there in zip(self._others, present, strict=True):
            if is_there:
                shape = self._shape(variable)
                dtype = self._dtypes[variable.name]
                kinds[variable.kind][variable.name] = self._read("dense", variable.name, shape, dtype, read)
        wanted: dict[str, Array] = {}
        for number, variable in enumerate(self._tables):
            if count := sizes[2 * number + 1]:
                wanted[variable.name] = self._read("pull", variable.name, (count,), _IDS, read)
        push = pull = None
        if flags & _PUSHES:
            scalars = dict(zip(self._hyper, hyper, strict=True))
            push = Push(of_push, ticket, share, weight, scalars, rows, kinds["dense"], kinds["delta"], based_on)
        if flags & _PULLS:
            pull = Pull(of_pull, wanted, newer, None if at_version == _NO_VERSION else at_version)
        return push, pull, seconds

    def encode_reply(self, reply: Reply, pull: Pull | None) -> Buffers:
        """Returns an answer as buffers."""
        is_ok = reply.status == "ok"
        has_dense = is_ok and reply.dense is not None
        status = _STATUSES.index(reply.status)
        first = _REPLY.pack(status, reply.applied, has_dense, reply.version, reply.staleness, len(reply.missing))
        arrays: list[Array] = [np.asarray(reply.missing, _IDS)]
        if is_ok and pull is not None:
            for variable in self._tables:
                if len(pull.rows.get(variable.name, ())):
                    arrays.append(_plain(reply.rows[variable.name], self._dtypes[variable.name]))
        if has_dense and reply.dense is not None:
            arrays += [_plain(reply.dense[v.name], self._dtypes[v.name]) for v in self._others]
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
        counts = {v.name: len(pull.rows.get(v.name, ())) for v in self._tables} if pull and status == 0 else {}
        row_bytes = sum(n * self._row_bytes(v) for v in self._tables if (n := counts.get(v.name, 0)))
        expected = row_bytes + (sum(self._nbytes(v) for v in self._others) if has_dense else 0)
        expected += missing * _IDS.itemsize
        if expected != size:
            raise ProtocolError(f"an answer of {size} bytes in place of {expected}")
        shares = np.empty(missing, _IDS)
        if missing:
            read(view_of(shares))
        rows: dict[str, Array] = {}
        for variable in self._tables:
            if count := counts.get(variable.name, 0):
                # New arrays: what a worker has pulled is in use while the next batch's is pulled.
                rows[variable.name] = np.empty((count, *variable.shape[1:]), self._dtypes[variable.name])
                read(view_of(rows[variable.name]))
        dense: dict[str, Array] | None = None
        if has_dense:
            dense = {v.name: np.empty(self._shape(v), self._dtypes[v.name]) for v in self._others}
            for value in dense.values():
                if value.nbytes:
                    read(view_of(value))
        shown = tuple(map(int, shares))
        return Reply(version, bool(applied), staleness, rows, dense, _STATUSES[status], shown)

    def _others_of(self, push: Push | None) -> Mapping[str, Array]:
        return {} if push is None else {**push.dense, **push.delta}

    def _size_of_request(self, sizes: Sequence[int], present: Sequence[int]) -> int:
        total = 0
        for number, variable in enumerate(self._tables):
            pushed, pulled = sizes[2 * number : 2 * number + 2]
            # Ids differ, so there are no more than the shard has rows.
            if max(pushed, pulled) > self._rows[variable.name]:
                raise ProtocolError(f"{max(pushed, pulled)} rows of {variable.name}")
            total += pushed * (_IDS.itemsize + self._row_bytes(variable)) + pulled * _IDS.itemsize
        return total + sum(self._nbytes(v) for v, there in zip(self._others, present, strict=True) if there)

    def _shape(self, variable: Variable) -> tuple[int, ...]:
        return (self._rows[variable.name], *variable.shape[1:]) if variable.shape else ()

    def _nbytes(self, variable: Variable) -> int:
        return int(np.prod(self._shape(variable), dtype=object)) * self._dtypes[variable.name].itemsize

    def _row_bytes(self, variable: Variable) -> int:
        return int(np.prod(variable.shape[1:], dtype=object)) * self._dtypes[variable.name].itemsize

    def _read_rows(self, what: str, variable: Variable, count: int, read: Read) -> Array:
        return self._read(what, variable.name, (count, *variable.shape[1:]), self._dtypes[variable.name], read)

    def _read(self, what: str, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], read: Read) -> Array:
        """Reads an array into memory that the next request uses again."""
        size = int(np.prod(shape, dtype=object))
        buffer = np.empty(size, dtype) if self._keeps else self._buffers.get((what, name))
        if buffer is None or buffer.size < size:
            # To the next power of two: the numbers of rows differ from batch to batch.
            buffer = self._buffers[what, name] = np.empty(1 << max(size - 1, 0).bit_length(), dtype)
        array = buffer[:size].reshape(shape)
        if array.nbytes:
            read(view_of(array))
        return array


def _frame(kind: int, first: bytes, arrays: Sequence[Array]) -> Buffers:
    size = sum(array.nbytes for array in arrays)
    return [HEADER.pack(kind, len(first), size) + first, *(view_of(array) for array in arrays if array.nbytes)]


def _plain(array: Array, dtype: np.dtype[Any]) -> Array:
    return np.ascontiguousarray(array, dtype).reshape(np.shape(array))


def _length(pushed: Mapping[str, tuple[Array, Array]], name: str) -> int:
    return len(pushed[name][0]) if name in pushed else 0
