"""A worker of a coordinator: computes closures, one after another, and pushes their effects to the servers."""

from __future__ import annotations

import logging
import queue
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from lockstep._engine.servers.closures.plan import Piece, WorkerPlan
from lockstep._engine.servers.closures.store import PREFIX
from lockstep._engine.servers.closures.windows import places_of, stretch_of
from lockstep._engine.servers.compiled import pad_to_bucket
from lockstep._engine.servers.connection import FrameSocket, unwrap_answer
from lockstep._engine.servers.messages import BEAT, MESSAGE, Message, ProtocolError, decode, encode
from lockstep._types import Array
from lockstep.errors import LockstepError, MissingTaskError, PeerError

_log = logging.getLogger("lockstep")
# An answer comes after so long at most: who asks knows by it that the worker lives.
_ANSWER_SECONDS = 1.0
Ask = Callable[[Message], Message]


class LostError(Exception):
    """Error of a server that has not what the coordinator gave it: it was started again."""


@dataclass
class _Closure:
    """A closure that was sent to this worker.

    Attributes:
        plan: Its function.
        facts: What the coordinator has told.
        arrays: Its arguments.
        values: By the name of a piece: the version and the value that this worker has. Of the coordinator of this
            closure: another one counts versions anew.
        finished: Set when `answer` is there.
        answer: What comes of it.
    """

    plan: WorkerPlan
    facts: Mapping[str, Any]
    arrays: Mapping[str, Array]
    values: dict[str, tuple[int, Any]]
    finished: threading.Event = field(default_factory=threading.Event)
    answer: Message | None = None


class WorkerService:
    """Answers a coordinator, on one worker.

    Args:
        servers: By the number of a server: asks it.

    Attributes:
        ended: Set when the coordinator's program has ended.
        seen: Set while a coordinator is connected.
    """

    def __init__(self, servers: Sequence[Ask]) -> None:
        self._servers = tuple(servers)
        self._incarnation = secrets.token_hex(8)
        self._coordinator = ""
        self._plans: dict[str, WorkerPlan] = {}
        self._values: dict[str, tuple[int, Any]] = {}
        self._closures: dict[int, _Closure] = {}
        self._waiting: queue.SimpleQueue[_Closure] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(max(1, len(self._servers)), "lockstep-pull")
        self.ended = threading.Event()
        self.seen = threading.Event()
        self.last_seen = 0.0
        threading.Thread(target=self._compute_all, name="lockstep-closures", daemon=True).start()

    def arrive(self, task: str, incarnation: str) -> str | None:
        """Admits whoever has the job's secret."""
        del task, incarnation
        return None

    def serve(self, task: str, incarnation: str, frames: FrameSocket) -> None:
        """Serves a connection until it ends."""
        del task, incarnation
        self.seen.set()
        try:
            while True:
                kind, first, size = frames.read_header()
                if kind == BEAT:
                    continue
                if kind != MESSAGE:
                    raise ProtocolError(f"a frame of kind {kind}")
                frames.send(encode(self.handle(decode(frames.read(first), size, frames.read_into))))
        finally:
            self.seen.clear()

    def handle(self, message: Message) -> Message:
        """Answers a message within about a second."""
        kind, facts = message.kind, message.facts
        if kind == "begin":
            return self._begin(str(facts["coordinator"]))
        if kind == "end":
            if facts.get("coordinator") == self._coordinator:
                self.ended.set()
            return Message("ended")
        if facts.get("coordinator") != self._coordinator:
            return Message("lost")
        if kind == "define":
            self._plans[str(facts["plan"])] = WorkerPlan.of(message)
            return Message("defined")
        if kind == "forget":
            with self._lock:
                self._plans, self._values = {}, {}
            return Message("forgotten")
        if kind == "run":
            return self._run(message)
        if kind == "result":
            return self._result(int(facts["number"]))
        return Message("error", {"error": "PeerError", "message": f"No worker answers {kind!r:.40}."})

    def _begin(self, coordinator: str) -> Message:
        with self._lock:
            if coordinator != self._coordinator:
                self._coordinator = coordinator
                # New ones: a closure of the one before may be under way still.
                self._plans, self._values, self._closures = {}, {}, {}
        self.ended.clear()
        return Message("begun", {"platform": jax.default_backend(), "incarnation": self._incarnation})

    def _run(self, message: Message) -> Message:
        plan = self._plans.get(str(message.facts["plan"]))
        if plan is None:
            return Message("unknown plan")
        number = int(message.facts["number"])
        closure = _Closure(plan, message.facts, message.arrays, self._values)
        # A request that was sent again on a new connection is under way already.
        if self._closures.setdefault(number, closure) is closure:
            for old in [n for n, c in self._closures.items() if n < number - 4 and c.finished.is_set()]:
                del self._closures[old]
            self._waiting.put(closure)
        return self._result(number)

    def _result(self, number: int) -> Message:
        closure = self._closures.get(number)
        if closure is None:
            return Message("unknown closure")
        if not closure.finished.wait(_ANSWER_SECONDS):
            return Message("wait")
        assert closure.answer is not None
        return closure.answer

    def _compute_all(self) -> None:
        while True:
            closure = self._waiting.get()
            try:
                closure.answer = self._compute(closure)
            except LostError as error:
                closure.answer = Message("server lost", {"server": str(error)})
            except MissingTaskError as error:
                closure.answer = Message("server missing", {"message": str(error)})
            except Exception as error:
                _log.debug("a closure has failed", exc_info=True)
                closure.answer = Message("failed", {"type": type(error).__name__, "message": str(error)[:8000]})
            finally:
                closure.finished.set()

    def _compute(self, closure: _Closure) -> Message:
        plan = closure.plan
        values = self._pull(closure)
        tables = {window.place for window in plan.windows}
        held = [None if n in tables else self._assemble(pieces, values) for n, pieces in enumerate(plan.pieces)]
        needed = self._rows_needed(closure, held)
        for window, (ids, _) in zip(plan.windows, needed, strict=True):
            held[window.place] = self._pull_rows(closure, plan.pieces[window.place], ids, window.size)
        inputs = [*(closure.arrays[str(n)] for n in plan.arguments), *held, *(p for _, own in needed for p in own)]
        found = [np.asarray(a) for a in plan.run(*inputs)]
        self._push(closure, found[plan.results :], [ids for ids, _ in needed])
        return Message("result", {}, {str(i): a for i, a in enumerate(found[: plan.results])})

    def _pull(self, closure: _Closure) -> dict[str, Any]:
        """Returns the pieces that a closure reads, of which servers send those that have changed."""
        reads, known = closure.plan.reads, closure.values

        def pull(server: int, pieces: Sequence[Piece]) -> None:
            with self._lock:
                have = {p.name: known[p.name][0] if p.name in known else -1 for p in pieces}
            # Several messages where one might be too large.
            while have:
                answer = self._ask(closure, server, Message("pull", {"have": have}))
                with self._lock:
                    for name, value in answer.arrays.items():
                        known[name] = int(answer.facts["versions"][name]), value
                have = {name: have[name] for name in answer.facts["left"]}

        self._each({s: (lambda s=s, p=p: pull(s, p)) for s, p in reads.items()})
        with self._lock:
            return {p.name: known[p.name][1] for pieces in reads.values() for p in pieces}

    def _rows_needed(self, closure: _Closure, held: Sequence[Any]) -> list[tuple[Array, list[Array]]]:
        """Returns the rows of each table that a closure looks up, and where its lookups find them in the window."""
        plan, needed = closure.plan, list[tuple[Array, list[Array]]]()
        if not plan.windows:
            return needed
        arguments, variables = plan.ids_inputs
        found = iter(plan.ids(*(closure.arrays[str(n)] for n in arguments), *(held[n] for n in variables)))
        for window in plan.windows:
            lookups = [np.asarray(next(found)) for _ in window.clips]
            needed.append(places_of(lookups, window.clips, window.rows, window.size))
        return needed

    def _pull_rows(self, closure: _Closure, pieces: Sequence[Piece], ids: Array, size: int) -> Array:
        """Returns rows of a table as a window, padded by zeros."""
        found: list[Array | None] = [None] * len(pieces)

        def pull(number: int, piece: Piece) -> None:
            own = ids[stretch_of(ids, piece.rows)] - (0 if piece.rows is None else piece.rows[0])
            answer = self._ask(closure, piece.server, Message("rows", {"name": piece.name}, {"ids": own}))
            found[number] = answer.arrays["rows"]

        self._each({n: (lambda n=n, p=p: pull(n, p)) for n, p in enumerate(pieces)})
        return pad_to_bucket(np.concatenate([rows for rows in found if rows is not None]), size)

    def _push(self, closure: _Closure, payload: Sequence[Array], needed: Sequence[Array]) -> None:
        plan, facts = closure.plan, closure.facts

        def push(server: int) -> None:
            program = plan.programs[server]
            stretches = [stretch_of(needed[n], rows) for n, rows in program.tables]
            sent: dict[str, Array] = {}
            for i, (n, rows, part) in enumerate(program.payload):
                whole = payload[n] if rows is None or part >= 0 else payload[n][rows[0] : rows[1]]
                sent[str(i)] = whole if part < 0 else whole[stretches[part]]
            for part, (n, rows) in enumerate(program.tables):
                sent[f"ids {part}"] = needed[n][stretches[part]] - (0 if rows is None else rows[0])
            given = {"ticket": facts["ticket"], "finished": facts["finished"], "program": program.id}
            self._ask(closure, server, Message("push", given, sent))

        self._each({server: (lambda s=server: push(s)) for server in plan.programs})

    def _each(self, work: Mapping[int, Callable[[], None]]) -> None:
        """Does something with several servers at the same time."""
        if len(work) == 1:
            next(iter(work.values()))()
            return
        for future in [self._pool.submit(w) for w in work.values()]:
            future.result()

    def _ask(self, closure: _Closure, server: int, message: Message) -> Message:
        # Of the closure, and not the present one: what is late must not count for another coordinator.
        facts = {**message.facts, "coordinator": closure.facts["coordinator"]}
        answer = self._servers[server](Message(PREFIX + message.kind, facts, message.arrays))
        if answer.kind == "lost":
            raise LostError(f"ps {server}")
        try:
            return unwrap_answer(answer, f"ps {server}")
        except LockstepError as error:
            raise PeerError(f"ps {server}: {error}") from error

    def _assemble(self, pieces: Sequence[Piece], values: Mapping[str, Any]) -> Any:
        found = [values[p.name] for p in pieces]
        return found[0] if len(found) == 1 else np.concatenate(found)
