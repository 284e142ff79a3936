"""Keras variables whose values servers hold while functions that are scheduled change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep._engine.keras.servers.deferred import defer, held_value
from lockstep._engine.keras.servers.tables import WHOLE_BYTES, Table, nbytes
from lockstep._engine.servers.closures.dispatch import ServerClient
from lockstep._engine.servers.closures.effects import Effect
from lockstep._engine.servers.closures.placement import Partition, Placement, Shape, join_pieces
from lockstep._engine.servers.closures.plan import Piece
from lockstep._engine.servers.messages import MAX_ARRAYS
from lockstep._types import Array
from lockstep.errors import UnsupportedError


@dataclass
class _Served:
    """A variable.

    Attributes:
        variable: Keras' variable.
        shape: Its name on servers, shape and dtype.
        kept: What it held when servers had the same: an array, or the mark that it is to be fetched.
    """

    variable: Any
    shape: Shape
    kept: Any = None


class ServedVariables:
    """The variables of a coordinator's program that scheduled functions read or change.

    A variable that a function changes is fetched when it is read. What the program assigns goes to the servers before
    the next function is scheduled.

    Args:
        servers: The servers.
        partition: Into how many ranges of rows a variable is divided.
        is_idle: Returns whether no function is under way: what is fetched then stays.
    """

    def __init__(self, servers: ServerClient, partition: Partition, is_idle: Callable[[], bool]) -> None:
        self._servers = servers
        self._placement = Placement(len(servers), partition)
        self._is_idle = is_idle
        self._served: dict[int, _Served] = {}

    def pieces(self, variables: Sequence[Any]) -> list[tuple[Piece, ...]]:
        """Returns where variables lie."""
        return [self._placement.pieces[self._served[id(v)].shape.name] for v in variables]

    def moved(self, variables: Sequence[Any], effects: Sequence[Effect]) -> dict[str, tuple[Piece, ...]]:
        """Returns the pieces of variables that are nowhere yet, or must lie elsewhere, for a new function.

        Raises:
            UnsupportedError: If one is a table that workers cannot have whole.
        """
        for variable in variables:
            if id(variable) not in self._served:
                _demand_small(variable)
                # Two variables may have one path.
                name = f"{len(self._served)}:{variable.path}"
                shape = Shape(name, tuple(variable.shape), str(np.dtype(variable.dtype)))
                self._served[id(variable)] = _Served(variable, shape)
        return self._placement.plan([self._served[id(v)].shape for v in variables], effects)

    def are_placed(self, moved: dict[str, tuple[Piece, ...]]) -> bool:
        """Returns whether some of these variables lie somewhere already."""
        return any(name in self._placement.pieces for name in moved)

    def move(self, moved: dict[str, tuple[Piece, ...]]) -> None:
        """Gives pieces their values, and forgets those that they had before; nothing that uses these is under way.

        Raises:
            UnsupportedError: If a piece is too large for a message.
        """
        named = {s.shape.name: s for s in self._served.values()}
        before = {name: self._placement.pieces[name] for name in moved if name in self._placement.pieces}
        for name, pieces in moved.items():
            served = named[name]
            _demand_sendable(served, len(pieces))
            value = np.asarray(self._fetch(served) if name in before else served.variable._value)
            self._assign(pieces, value)
            if name not in before:
                served.kept = held_value(served.variable)
        self._placement.commit(moved)
        for pieces in before.values():
            for piece in pieces:
                self._servers.ask(piece.server, "forget", names=[piece.name])

    def flush(self) -> None:
        """Sends servers what the program has assigned to variables."""
        for served in self._served.values():
            held = held_value(served.variable)
            if held is not served.kept and served.shape.name in self._placement.pieces:
                self._assign(self._placement.pieces[served.shape.name], np.asarray(served.variable._value))
                served.kept = held

    def defer(self, variables: Sequence[Any]) -> None:
        """Has variables, which a scheduled function changes, be fetched when they are read."""
        for variable in variables:
            served = self._served[id(variable)]
            served.kept = defer(variable, lambda served=served: self._read(served))

    def _read(self, served: _Served) -> Array:
        # Asked before: a function that ends in between may have changed the variable.
        is_idle = self._is_idle()
        value = self._fetch(served)
        if is_idle:
            served.variable._value = value
            served.kept = held_value(served.variable)
        return value

    def _fetch(self, served: _Served) -> Any:
        import jax
        import jax.numpy as jnp

        values: dict[str, Array] = {}
        pieces = self._placement.pieces[served.shape.name]
        for piece in pieces:
            values.update(self._servers.ask(piece.server, "pull", have={piece.name: -1}).arrays)
        # A function that is being traced may be the first to read it: the value must not become a part of the trace.
        with jax.ensure_compile_time_eval():
            return jnp.asarray(join_pieces(pieces, values))

    def _assign(self, pieces: Sequence[Piece], value: Array) -> None:
        for piece in pieces:
            self._servers.ask(piece.server, "assign", {piece.name: np.asarray(piece.of(value))})


def _demand_small(variable: Any) -> None:
    """Raises `UnsupportedError` for a large table, before anybody makes its rows."""
    shape, dtype = tuple(variable.shape), str(variable.dtype)
    if isinstance(variable, Table) and nbytes(shape, dtype) > WHOLE_BYTES:
        raise UnsupportedError(
            "The coordinator makes the variables of scheduled functions whole: tables have at most "
            f"{WHOLE_BYTES >> 20} MiB there. Received: {variable.path!r} of {dtype}{list(shape)} "
            f"({nbytes(shape, dtype) >> 20} MiB). Train it with Model.fit of the same program on every task, or with "
            "an Estimator: there a task has the rows of its batch alone."
        )


def _demand_sendable(served: _Served, pieces: int) -> None:
    """Raises `UnsupportedError` for a variable of which a piece is larger than a message."""
    if served.shape.bytes > MAX_ARRAYS * pieces:
        raise UnsupportedError(
            f"A variable of a scheduled function travels in pieces of at most {MAX_ARRAYS >> 30} GiB. Received: "
            f"{served.variable.path} of {served.shape.bytes >> 20} MiB in {pieces}. Divide it by a "
            "variable_partitioner, or train with Model.fit on every task, where tables travel by rows."
        )
