"""Where a coordinator's variables lie: whole on the server with the fewest bytes, or in ranges of rows over several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep._engine.servers.closures.effects import Effect
from lockstep._engine.servers.closures.plan import Piece

Partition = Callable[[tuple[int, ...], str], int | None]


@dataclass(frozen=True)
class Shape:
    """A variable's name, shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """The size of the value."""
        from lockstep._engine.servers.layout import dtype_of

        return int(np.prod(self.shape, dtype=np.int64)) * dtype_of(self.dtype).itemsize


class Placement:
    """The pieces of all variables.

    Args:
        servers: How many servers there are.
        partition: Into how many ranges of rows a variable is divided; `None` for one.
    """

    def __init__(self, servers: int, partition: Partition) -> None:
        self._loads = [0] * servers
        self._partition = partition
        self.pieces: dict[str, tuple[Piece, ...]] = {}

    def plan(self, variables: Sequence[Shape], effects: Sequence[Effect]) -> dict[str, tuple[Piece, ...]]:
        """Returns the pieces of variables that are not placed yet, or must lie elsewhere.

        Variables that one effect changes lie on the same server, row by row if it works by rows, else whole.
        """
        moved: dict[str, tuple[Piece, ...]] = {}
        now: dict[str, tuple[Piece, ...]] = dict(self.pieces)
        for effect in effects:
            group = [variables[n] for n in effect.variables]
            chosen = self._of_group(group, now, effect.is_by_rows)
            for variable in group:
                pieces = tuple(Piece(_name(variable.name, p), p.server, p.rows) for p in chosen)
                if now.get(variable.name) != pieces:
                    now[variable.name] = moved[variable.name] = pieces
        for variable in variables:
            if variable.name not in now:
                chosen = self._new([variable], is_by_rows=True)
                now[variable.name] = moved[variable.name] = tuple(
                    Piece(_name(variable.name, p), p.server, p.rows) for p in chosen
                )
        return moved

    def commit(self, moved: Mapping[str, tuple[Piece, ...]]) -> None:
        """Takes note of pieces that have their values."""
        self.pieces.update(moved)

    def _of_group(
        self, group: Sequence[Shape], now: Mapping[str, tuple[Piece, ...]], is_by_rows: bool
    ) -> tuple[Piece, ...]:
        # The largest first: it is what moving would cost most.
        placed = [now[v.name] for v in sorted(group, key=lambda v: -v.bytes) if v.name in now]
        for pieces in placed:
            if is_by_rows or pieces[0].rows is None:
                return pieces
        if placed:
            return (Piece("", placed[0][0].server),)
        return self._new(group, is_by_rows)

    def _new(self, group: Sequence[Shape], is_by_rows: bool) -> tuple[Piece, ...]:
        """Returns pieces for variables that are nowhere yet."""
        first = max(group, key=lambda v: v.bytes)
        parts = (self._partition(first.shape, first.dtype) or 1) if is_by_rows and first.shape else 1
        total, least = sum(v.bytes for v in group), int(np.argmin(self._loads))
        if parts <= 1 or first.shape[0] < 2:
            self._loads[least] += total
            return (Piece("", least),)
        rows, pieces, start = first.shape[0], list[Piece](), 0
        for i in range(min(parts, rows)):
            # TensorFlow's "div": 13 rows in 5 parts are 3, 3, 3, 2, 2.
            stop = start + rows // parts + (i < rows % parts)
            # As `Layout.make`: of as many ranges as there are servers each has one, in order.
            server = i if min(parts, rows) == len(self._loads) else (least + i) % len(self._loads)
            self._loads[server] += total * (stop - start) // rows
            pieces.append(Piece("", server, (start, stop)))
            start = stop
        return tuple(pieces)


def _name(name: str, piece: Piece) -> str:
    return name if piece.rows is None else f"{name}[{piece.rows[0]}:{piece.rows[1]}]"


def join_pieces(pieces: Sequence[Piece], values: Mapping[str, Any]) -> Any:
    """Returns a whole value of its pieces."""
    found = [values[p.name] for p in pieces]
    return found[0] if len(found) == 1 else np.concatenate(found)
