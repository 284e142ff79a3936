"""Variables of a coordinator on one server, and the effects of closures on them, each applied once."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from lockstep._engine.servers.compiled import load, pad_to_bucket
from lockstep._engine.servers.messages import MAX_ARRAYS, Message
from lockstep._types import Array
from lockstep.errors import MismatchError

PREFIX = "closures "


@dataclass(frozen=True)
class _Held:
    """A variable, or a range of rows of one: its value, and how often that has changed."""

    value: Any
    version: int


@dataclass(frozen=True)
class _Program:
    """Describes what a push does; see `ServerProgram`."""

    run: Any
    names: tuple[str, ...]
    part_of: tuple[int, ...]
    payload_part: tuple[int, ...]
    sizes: tuple[int, ...]


class VariableStore:
    """Holds what one server keeps for a coordinator. No sockets; safe for threads.

    Attributes:
        duplicates: How many effects came that were there already.
        applied: How many effects were applied.
        ended: Set when the coordinator's program has ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._coordinator = ""
        self._held: dict[str, _Held] = {}
        self._programs: dict[str, _Program] = {}
        # Tickets below are finished: whatever comes of them is late. Of those above, which effects are in.
        self._finished_below = 0
        self._applied: set[int] = set()
        self.duplicates = self.applied = 0
        self.ended = threading.Event()

    def handle(self, message: Message) -> Message:
        """Answers a request; "lost" if it is of a coordinator whose variables are not here."""
        kind, facts = message.kind.removeprefix(PREFIX), message.facts
        with self._lock:
            if kind == "begin":
                return self._begin(str(facts["coordinator"]))
            if facts.get("coordinator") != self._coordinator:
                return Message("lost")
            if kind == "end":
                self.ended.set()
                return Message("ended")
            if kind == "assign":
                return self._assign(message.arrays)
            if kind == "define":
                return self._define(facts, message.arrays["code"])
            if kind == "rows":
                return self._rows(str(facts["name"]), message.arrays["ids"])
            if kind == "forget":
                return self._forget(facts["names"])
            if kind == "push":
                return self._push(int(facts["ticket"]), int(facts["finished"]), str(facts["program"]), message.arrays)
            if kind == "report":
                counts = {"applied": self.applied, "duplicates": self.duplicates, "variables": len(self._held)}
                return Message("report", counts)
            found = self._pull(facts["have"]) if kind == "pull" else None
        if found is None:
            return Message("error", {"error": "PeerError", "message": f"No server answers {message.kind!r:.40}."})
        # Outside of the lock: these values are never changed in place, and copying takes time.
        arrays: dict[str, Array] = {}
        size = 0
        for name, held in found.items():
            size += held.value.nbytes
            if arrays and size > MAX_ARRAYS:
                break
            arrays[name] = np.asarray(held.value)
        versions = {name: found[name].version for name in arrays}
        return Message("values", {"versions": versions, "left": [n for n in found if n not in arrays]}, arrays)

    def _begin(self, coordinator: str) -> Message:
        """Takes a coordinator in; what another one had is gone."""
        self.ended.clear()
        if coordinator != self._coordinator:
            self._coordinator = coordinator
            self._held, self._programs, self._applied = {}, {}, set()
            self._finished_below = self.duplicates = self.applied = 0
        return Message("begun")

    def _assign(self, arrays: Mapping[str, Array]) -> Message:
        for name, value in arrays.items():
            self._set(name, np.array(value))
        return Message("assigned")

    def _define(self, facts: Mapping[str, Any], code: Array) -> Message:
        self._programs[str(facts["program"])] = _Program(
            load(code.tobytes()),
            tuple(map(str, facts["names"])),
            tuple(map(int, facts["part_of"])),
            tuple(map(int, facts["payload_part"])),
            tuple(map(int, facts["sizes"])),
        )
        return Message("defined")

    def _rows(self, name: str, ids: Array) -> Message:
        return Message("rows", {}, {"rows": np.asarray(self._get(name).value).take(ids, axis=0)})

    def _table(self, name: str) -> Array:
        """Returns a variable of which rows are changed in place: a copy of all of it would cost more than an update."""
        held = self._get(name)
        if not isinstance(held.value, np.ndarray) or not held.value.flags.writeable:
            self._held[name] = held = _Held(np.array(held.value), held.version)
        return held.value

    def _forget(self, names: Sequence[str]) -> Message:
        for name in names:
            self._held.pop(str(name), None)
        return Message("forgotten")

    def _push(self, ticket: int, finished: int, program: str, arrays: Mapping[str, Array]) -> Message:
        self._finished_below = max(self._finished_below, finished)
        self._applied = {t for t in self._applied if t >= self._finished_below}
        if ticket < self._finished_below or ticket in self._applied:
            self.duplicates += 1
            return Message("duplicate")
        if program not in self._programs:
            raise MismatchError("A server applies what its coordinator has defined. Received: an effect of another.")
        defined = self._programs[program]
        ids = [arrays[f"ids {part}"] for part in range(len(defined.sizes))]
        values: list[Any] = []
        for name, part in zip(defined.names, defined.part_of, strict=True):
            whole = self._get(name).value if part < 0 else self._table(name)
            values.append(whole if part < 0 else pad_to_bucket(whole.take(ids[part], axis=0), defined.sizes[part]))
        for i, part in enumerate(defined.payload_part):
            sent = arrays[str(i)]
            values.append(sent if part < 0 else pad_to_bucket(sent, defined.sizes[part]))
        # All or nothing: values are set once all are there.
        found = defined.run(*values)
        for value in found:
            value.block_until_ready()
        for name, part, value in zip(defined.names, defined.part_of, found, strict=True):
            if part < 0:
                self._set(name, value)
                continue
            table = self._table(name)
            table[ids[part]] = np.asarray(value)[: len(ids[part])]
            self._held[name] = _Held(table, self._held[name].version + 1)
        self._applied.add(ticket)
        self.applied += 1
        return Message("applied")

    def _pull(self, have: Mapping[str, int]) -> dict[str, _Held]:
        """Returns variables that have changed since the versions that somebody has."""
        wanted = {str(name): self._get(str(name)) for name in have}
        changed = {name: held for name, held in wanted.items() if held.version != have[name]}
        # Rows are changed in place.
        return {
            name: _Held(np.array(held.value), held.version) if isinstance(held.value, np.ndarray) else held
            for name, held in changed.items()
        }

    def _get(self, name: str) -> _Held:
        if name not in self._held:
            raise MismatchError(
                f"A server has what its coordinator has assigned. Received: a request for {name!r:.80}."
            )
        return self._held[name]

    def _set(self, name: str, value: Any) -> None:
        before = self._held.get(name)
        kept = jnp.asarray(value) if isinstance(value, np.ndarray) and value.dtype.itemsize < 8 else value
        self._held[name] = _Held(kept, 0 if before is None else before.version + 1)
