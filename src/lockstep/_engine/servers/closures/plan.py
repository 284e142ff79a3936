"""Plans: what a worker and the servers are told of a function, as exported programs and names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import export

from lockstep._engine.servers.closures.division import Division, Effect
from lockstep._engine.servers.messages import Message
from lockstep._types import JSON, Array
from lockstep.errors import UnsupportedError


@dataclass(frozen=True)
class Piece:
    """A variable on a server, or a range of its rows.

    Attributes:
        name: Of the piece.
        server: The number of the server.
        rows: Where the range begins and ends; `None` for a whole variable.
    """

    name: str
    server: int
    rows: tuple[int, int] | None = None

    def of(self, value: Any) -> Any:
        """Returns this piece of a whole value."""
        return value if self.rows is None else value[self.rows[0] : self.rows[1]]


@dataclass(frozen=True)
class ServerProgram:
    """Describes what one server does when a worker pushes.

    Attributes:
        id: A hash of the code.
        code: Exported `(*values, *payload) -> values`.
        names: Of the values.
        payload: The numbers of what a worker sends, each with the range of rows.
    """

    id: str
    code: bytes
    names: tuple[str, ...]
    payload: tuple[tuple[int, tuple[int, int] | None], ...]


@dataclass(frozen=True)
class Plan:
    """A function for workers and servers.

    Attributes:
        id: Unique for the coordinator.
        name: Of the function, for messages.
        arguments: The numbers of arguments that the program takes first.
        pieces: Of each variable that it takes after these: its pieces, in the order of rows.
        dtypes: Of these variables.
        results: How many results it has.
        programs: By the number of the server.
        division: The function.
        avals: Shapes and dtypes of all inputs of the program.
    """

    id: str
    name: str
    arguments: tuple[int, ...]
    pieces: tuple[tuple[Piece, ...], ...]
    results: int
    programs: Mapping[int, ServerProgram]
    division: Division
    avals: tuple[jax.ShapeDtypeStruct, ...]
    codes: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def code(self, platform: str) -> bytes:
        """Returns the worker's program, exported for its platform."""
        if platform not in self.codes:
            self.codes[platform] = export_code(self.division.compute, self.avals, platform, self.name)
        return self.codes[platform]

    def message(self, platform: str) -> Message:
        """Returns what a worker is told."""
        facts = {
            "plan": self.id,
            "name": self.name,
            "arguments": list(self.arguments),
            "pieces": [[_listed(p) for p in pieces] for pieces in self.pieces],
            "results": self.results,
            "programs": {str(s): [p.id, [[n, rows] for n, rows in p.payload]] for s, p in self.programs.items()},
        }
        return Message("define", facts, {"code": np.frombuffer(self.code(platform), np.uint8)})


@dataclass(frozen=True)
class WorkerPlan:
    """A plan as a worker has got it; see `Plan`."""

    name: str
    arguments: tuple[int, ...]
    pieces: tuple[tuple[Piece, ...], ...]
    results: int
    programs: Mapping[int, tuple[str, tuple[tuple[int, Any], ...]]]
    run: Any

    @classmethod
    def of(cls, message: Message) -> WorkerPlan:
        """Returns the plan of a message."""
        facts = message.facts
        call = jax.jit(export.deserialize(bytearray(message.arrays["code"].tobytes())).call)

        def run(*inputs: Array) -> list[Any]:
            # The program says its types itself; without this float64 would become float32 on the way in.
            with jax.enable_x64(True):
                return call(*inputs)

        programs = {
            int(server): (str(id), tuple((int(n), rows) for n, rows in payload))
            for server, (id, payload) in facts["programs"].items()
        }
        pieces = tuple(tuple(_piece(p) for p in one) for one in facts["pieces"])
        return cls(
            str(facts["name"]), tuple(map(int, facts["arguments"])), pieces, int(facts["results"]), programs, run
        )

    @cached_property
    def reads(self) -> dict[int, list[Piece]]:
        """Returns what is read of each server."""
        found: dict[int, list[Piece]] = {}
        for one in self.pieces:
            for piece in one:
                found.setdefault(piece.server, []).append(piece)
        return found


def make_plan(
    id: str,
    name: str,
    division: Division,
    avals: Sequence[jax.ShapeDtypeStruct],
    arguments: int,
    pieces: Sequence[Sequence[Piece]],
) -> Plan:
    """Returns the plan of a divided function.

    Args:
        id: Unique for the coordinator.
        name: Of the function.
        division: The function.
        avals: Shapes and dtypes of all its inputs: arguments, then variables.
        arguments: How many arguments there are.
        pieces: Of each variable, in order.
    """
    given = tuple(n for n in division.used if n < arguments)
    read = tuple(tuple(pieces[n - arguments]) for n in division.used if n >= arguments)
    variables = avals[arguments:]
    servers = sorted({p.server for e in division.effects for v in e.variables for p in pieces[v]})
    programs = {s: _server_program(division, s, pieces, variables, name) for s in servers}
    used = tuple(avals[n] for n in division.used)
    return Plan(id, name, given, read, division.results, programs, division, used)


def _server_program(
    division: Division, server: int, pieces: Sequence[Sequence[Piece]], variables: Sequence[Any], name: str
) -> ServerProgram:
    """Returns what a server does: each effect on the pieces that it has."""
    parts: list[tuple[Effect, list[Piece]]] = []
    for effect in division.effects:
        of_each = [pieces[v] for v in effect.variables]
        # Variables of one effect lie in the same ranges; see `Placement`.
        parts += [(effect, list(same)) for same in zip(*of_each, strict=True) if same[0].server == server]
    names = [p.name for _, own in parts for p in own]
    payload: list[tuple[int, tuple[int, int] | None]] = []
    for effect, own in parts:
        payload += [(n, own[0].rows if division.payload[n].shape else None) for n in effect.payload]
    shapes = [_shape(variables[v], p.rows) for e, own in parts for v, p in zip(e.variables, own, strict=True)]
    shapes += [_shape(division.payload[n], rows) for n, rows in payload]

    def run(*arrays: Array) -> list[Array]:
        values, given = iter(arrays[: len(names)]), iter(arrays[len(names) :])
        found: list[Array] = []
        for effect, own in parts:
            rows = None if own[0].rows is None else own[0].rows[1] - own[0].rows[0]
            mine = [next(values) for _ in own]
            found += effect.run(mine, [next(given) for _ in effect.payload], rows)
        return found

    code = export_code(run, shapes, "cpu", name)
    digest = hashlib.sha256(code + "\n".join(names).encode()).hexdigest()
    return ServerProgram(digest, code, tuple(names), tuple(payload))


def export_code(function: Any, avals: Sequence[Any], platform: str, name: str) -> bytes:
    """Returns a function as a program that another process can run.

    Raises:
        UnsupportedError: If something in it is bound to this process.
    """
    kinds = {"gpu": "cuda"}
    try:
        made = export.export(jax.jit(function), platforms=[kinds.get(platform, platform)])
        return bytes(made(*avals).serialize())
    except (ValueError, NotImplementedError) as error:
        raise UnsupportedError(
            f"Workers get scheduled functions as exported programs of JAX. Received: {name}, which cannot be exported: "
            f"{str(error)[:300]}. Leave out what only this process can do, such as callbacks into Python."
        ) from error


def _shape(aval: Any, rows: tuple[int, int] | None) -> jax.ShapeDtypeStruct:
    shape = tuple(aval.shape)
    return jax.ShapeDtypeStruct(shape if rows is None else (rows[1] - rows[0], *shape[1:]), aval.dtype)


def _listed(piece: Piece) -> JSON:
    return [piece.name, piece.server, None if piece.rows is None else list(piece.rows)]


def _piece(listed: Any) -> Piece:
    name, server, rows = listed
    return Piece(str(name), int(server), None if rows is None else (int(rows[0]), int(rows[1])))
