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

from lockstep._engine.servers.closures.division import Division
from lockstep._engine.servers.closures.effects import Effect
from lockstep._engine.servers.closures.windows import window_shape
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
        payload: The numbers of what a worker sends, each with the range of rows, and the number of the part of a table
            whose rows it is of; -1 if it is whole.
        tables: Of each part of a table: the number of the window, and the range of rows.
        part_of: Of each value: the part of a table of which the program takes some rows; -1 if it takes the whole.
        sizes: Of each part: how many rows the program takes.
    """

    id: str
    code: bytes
    names: tuple[str, ...]
    payload: tuple[tuple[int, tuple[int, int] | None, int], ...]
    tables: tuple[tuple[int, tuple[int, int] | None], ...]
    part_of: tuple[int, ...]
    sizes: tuple[int, ...]

    def facts(self) -> dict[str, Any]:
        """Returns what a server is told besides the code."""
        parts = [part for _, _, part in self.payload]
        return {
            "program": self.id,
            "names": list(self.names),
            "part_of": list(self.part_of),
            "payload_part": parts,
            "sizes": list(self.sizes),
        }


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
        ids_avals: Those of the program of ids.
        places: Of each window: the number of its table among the variables that the program takes.
        ids_inputs: What the program of ids takes: numbers of arguments, and of variables that the program takes.
    """

    id: str
    name: str
    arguments: tuple[int, ...]
    pieces: tuple[tuple[Piece, ...], ...]
    results: int
    programs: Mapping[int, ServerProgram]
    division: Division
    avals: tuple[jax.ShapeDtypeStruct, ...]
    ids_avals: tuple[jax.ShapeDtypeStruct, ...]
    places: tuple[int, ...]
    ids_inputs: tuple[tuple[int, ...], tuple[int, ...]]
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
            "pieces": [[_as_list(p) for p in pieces] for pieces in self.pieces],
            "results": self.results,
            "programs": {
                str(s): [p.id, [list(sent) for sent in p.payload], [list(t) for t in p.tables]]
                for s, p in self.programs.items()
            },
            "windows": [
                [place, window.rows, window.size, [clips for _, clips in window.lookups]]
                for place, window in zip(self.places, self.division.windows, strict=True)
            ],
            "ids": [list(numbers) for numbers in self.ids_inputs],
        }
        arrays = {"code": np.frombuffer(self.code(platform), np.uint8)}
        if self.division.ids is not None:
            code = export_code(self.division.ids, self.ids_avals, platform, self.name)
            arrays["ids"] = np.frombuffer(code, np.uint8)
        return Message("define", facts, arrays)


@dataclass(frozen=True)
class WorkerProgram:
    """The program of a server as a worker knows it; see `ServerProgram`."""

    id: str
    payload: tuple[tuple[int, Any, int], ...]
    tables: tuple[tuple[int, Any], ...]


@dataclass(frozen=True)
class WorkerWindow:
    """A window as a worker knows it.

    Attributes:
        place: The number of the table among the variables that the program takes.
        rows: How many rows the table has.
        size: How many the window has.
        clips: Of each lookup: whether ids outside of the table count as the nearest.
    """

    place: int
    rows: int
    size: int
    clips: tuple[bool, ...]


def _load(code: Array) -> Any:
    """Returns an exported program as a function."""
    call = jax.jit(export.deserialize(bytearray(code.tobytes())).call)

    def run(*inputs: Array) -> list[Any]:
        # The program says its types itself; without this float64 would become float32 on the way in.
        with jax.enable_x64(True):
            return call(*inputs)

    return run


@dataclass(frozen=True)
class WorkerPlan:
    """A plan as a worker has got it; see `Plan`."""

    name: str
    arguments: tuple[int, ...]
    pieces: tuple[tuple[Piece, ...], ...]
    results: int
    programs: Mapping[int, WorkerProgram]
    run: Any
    windows: tuple[WorkerWindow, ...]
    ids: Any
    ids_inputs: tuple[tuple[int, ...], tuple[int, ...]]

    @classmethod
    def of(cls, message: Message) -> WorkerPlan:
        """Returns the plan of a message."""
        facts = message.facts
        programs = {
            int(server): WorkerProgram(
                str(id),
                tuple((int(n), rows, int(part)) for n, rows, part in payload),
                tuple((int(n), rows) for n, rows in tables),
            )
            for server, (id, payload, tables) in facts["programs"].items()
        }
        pieces = tuple(tuple(_piece(p) for p in one) for one in facts["pieces"])
        windows = [
            WorkerWindow(int(place), int(rows), int(size), tuple(map(bool, clips)))
            for place, rows, size, clips in facts["windows"]
        ]
        of_arguments, of_variables = facts["ids"]
        return cls(
            str(facts["name"]),
            tuple(map(int, facts["arguments"])),
            pieces,
            int(facts["results"]),
            programs,
            _load(message.arrays["code"]),
            tuple(windows),
            _load(message.arrays["ids"]) if "ids" in message.arrays else None,
            (tuple(map(int, of_arguments)), tuple(map(int, of_variables))),
        )

    @cached_property
    def reads(self) -> dict[int, list[Piece]]:
        """Returns what is read of each server."""
        found: dict[int, list[Piece]] = {}
        tables = {window.place for window in self.windows}
        for place, one in enumerate(self.pieces):
            for piece in () if place in tables else one:
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
    table_of = {window.variable + arguments: window for window in division.windows}
    used = [window_shape(avals[n], table_of[n].size) if n in table_of else avals[n] for n in division.used]
    # Rows in windows, after all inputs.
    lookups = [ids.aval for window in division.windows for ids, _ in window.lookups]
    used += [jax.ShapeDtypeStruct(a.shape, np.dtype(np.int32)) for a in lookups]
    read_numbers = [n for n in division.used if n >= arguments]
    places = tuple(read_numbers.index(window.variable + arguments) for window in division.windows)
    of_ids = (
        tuple(n for n in division.ids_used if n < arguments),
        tuple(read_numbers.index(n) for n in division.ids_used if n >= arguments),
    )
    ids_avals = tuple(avals[n] for n in division.ids_used)
    return Plan(id, name, given, read, division.results, programs, division, tuple(used), ids_avals, places, of_ids)


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
    payload: list[tuple[int, tuple[int, int] | None, int]] = []
    tables: list[tuple[int, tuple[int, int] | None]] = []
    part_of: list[int] = []
    shapes: list[jax.ShapeDtypeStruct] = []
    for effect, own in parts:
        window, part = division.window_of(effect), -1
        if window is not None:
            part = len(tables)
            tables.append((window, own[0].rows))
        part_of += [part] * len(own)
        payload += [
            (n, own[0].rows if division.payload[n].shape else None, part if n in division.rows_of else -1)
            for n in effect.payload
        ]
        whole = [_shape(variables[v], p.rows) for v, p in zip(effect.variables, own, strict=True)]
        shapes += whole if window is None else [window_shape(s, division.windows[window].size) for s in whole]
    sizes = tuple(division.windows[window].size for window, _ in tables)
    shapes += [division.payload[n] if part >= 0 else _shape(division.payload[n], rows) for n, rows, part in payload]
    sizes_of = iter([sizes[part] if part >= 0 else None for part in _first_of_each(parts, part_of)])
    lengths = [next(sizes_of) or (own[0].rows and own[0].rows[1] - own[0].rows[0]) for _, own in parts]

    def run(*arrays: Array) -> list[Array]:
        values, given = iter(arrays[: len(names)]), iter(arrays[len(names) :])
        found: list[Array] = []
        for (effect, own), rows in zip(parts, lengths, strict=True):
            mine = [next(values) for _ in own]
            found += effect.run(mine, [next(given) for _ in effect.payload], rows)
        return found

    code = export_code(run, shapes, "cpu", name)
    digest = hashlib.sha256(code + "\n".join(names).encode() + repr(part_of).encode()).hexdigest()
    return ServerProgram(digest, code, tuple(names), tuple(payload), tuple(tables), tuple(part_of), sizes)


def _first_of_each(parts: Sequence[tuple[Effect, list[Piece]]], part_of: Sequence[int]) -> list[int]:
    """Returns the part of a table of each effect, whose values follow one another."""
    ends = np.cumsum([len(own) for _, own in parts])
    return [part_of[int(end) - 1] for end in ends]


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


def _as_list(piece: Piece) -> JSON:
    return [piece.name, piece.server, None if piece.rows is None else list(piece.rows)]


def _piece(listed: Any) -> Piece:
    name, server, rows = listed
    return Piece(str(name), int(server), None if rows is None else (int(rows[0]), int(rows[1])))
