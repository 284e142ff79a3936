"""All servers of a job as one: splits what is pushed and pulled by the layout, and merges what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lockstep._engine.servers.connection import unwrap_answer
from lockstep._engine.servers.layout import Layout, Shard, Variable
from lockstep._engine.servers.messages import PIECE_BYTES, Array, Message, Superseded, dtype_of
from lockstep._engine.servers.requests import JobSpec, Pull, Push, Reply
from lockstep._engine.servers.round_trips import RoundTrips, ServerLink
from lockstep._engine.servers.rule import Rule


class ServerGroup:
    """All servers of a job, from one task.

    Args:
        links: The ways to the servers, in their order.
        check: As of `RoundTrips`.
    """

    def __init__(self, links: Sequence[ServerLink], check: Callable[[str, float, int], None]) -> None:
        self.links = tuple(links)
        self._trips = RoundTrips(self.links, check)
        # The push that has begun, and its part of each server.
        self._begun: tuple[Push, Sequence[Push]] | None = None
        self.spec: JobSpec | None = None
        self._variables: dict[str, Variable] = {}
        # By table: the ids that were divided last, which are pulled first and pushed then, and where they lie.
        self._splits: dict[str, tuple[Array, list[tuple[Any, Array]]]] = {}

    @property
    def layout(self) -> Layout:
        """The layout that the servers were opened with."""
        assert self.spec is not None
        return self.spec.layout

    def bind(self, spec: JobSpec) -> None:
        """Sets the layout of all exchanges to come."""
        if spec is not self.spec:
            self.spec = spec
            self._variables = {v.name: v for v in spec.layout.variables}
            self._splits = {}
        for link in self.links:
            link.bind(spec)

    def begin_push(self, push: Push) -> None:
        """Sends a push that the next `exchange` is given with a pull: servers apply it meanwhile."""
        pushes = [self._part_of_push(push, n) for n in range(len(self.links))]
        self._begun = push, pushes
        self._trips.begin(pushes)

    def drop_push(self) -> None:
        """Forgets a push that has begun."""
        self._begun = None
        self._trips.drop()

    def exchange(self, push: Push | None, pull: Pull | None, limit: float) -> Reply:
        """Pushes to all servers and pulls from all, in one round trip to each, at the same time.

        A push that has reached its server is not sent to it again, and one that comes twice is applied once.

        Raises:
            Superseded: If a server is of another generation.
            MissingTaskError: If a server does not answer for good, or not within `limit` seconds.
        """
        numbers = range(len(self.links))
        pushes: Sequence[Push | None] = [None] * len(self.links)
        if push is not None and self._begun is not None and self._begun[0] is push:
            pushes, self._begun = self._begun[1], None
        elif push is not None:
            # Of the pushed rows first, which were pulled by the exchange before.
            pushes = [self._part_of_push(push, n) for n in numbers]
        pulls = [self._part_of_pull(pull, n) for n in numbers]
        generation = (push or pull or Pull(0)).generation
        replies = self._trips.run(pushes, pulls, generation, limit)
        if pull is not None and any(reply.status == "late" for reply in replies.values()):
            # Another worker has computed this share: the lease is of no use any more.
            return Reply(min(reply.version for reply in replies.values()), status="late")
        return self._merge(replies, pull)

    def open(
        self, spec: JobSpec, generation: int, initial: Mapping[str, Array], is_new: bool = False
    ) -> list[dict[str, Any]]:
        """Opens all servers, with `is_new` without what they hold; returns their reports."""
        self.bind(spec)
        facts, arrays = spec_to_message(spec)
        for number, link in enumerate(self.links):
            parts = {
                # The optimizer's count of steps is every server's.
                name: np.asarray(value) if name == "iterations" else self._own(value, number, name)
                for name, value in initial.items()
            }
            parts = {name: part for name, part in parts.items() if part is not None}
            # Large ones follow in pieces: a message is held in memory as a whole, by both sides.
            small = {name: part for name, part in parts.items() if part.nbytes <= PIECE_BYTES}
            values = {f"initial/{name}": part for name, part in small.items()}
            self.ask(link, Message("open", {**facts, "generation": generation, "is_new": is_new}, {**arrays, **values}))
        for name, value in initial.items():
            parts = [] if name == "iterations" else [self._own(value, n, name) for n in range(len(self.links))]
            if any(part is not None and part.nbytes > PIECE_BYTES for part in parts):
                self.assign(name, value)
        return self.ask_all(Message("report"))

    def ask_all(self, message: Message) -> list[dict[str, Any]]:
        """Asks all servers one after another; returns the facts of their answers."""
        return [self.ask(link, message).facts for link in self.links]

    def read(self, name: str) -> Array:
        """Returns a whole variable, or by "name/slot" a slot of it."""
        variable = self._variable(name)
        parts = [(shard, self._read_shard(name, shard)) for shard in self._shards(name)]
        if not variable.shape or len(parts) == 1:
            return parts[0][1]
        rows = parts[0][1]
        # A slot may have other trailing axes than its variable, or one number for each row.
        whole = np.empty((variable.shape[0], *rows.shape[1:]), rows.dtype)
        for shard, part in parts:
            whole[shard.start : shard.stop] = part
        return whole

    def read_rows(self, name: str, start: int, stop: int) -> Array:
        """Returns rows `start` to `stop` of a variable."""
        parts: list[Array] = []
        for shard in sorted(self._shards(name), key=lambda s: s.start):
            first, last = max(start, shard.start), min(stop, shard.stop)
            if first < last:
                parts.append(self._read_range(name, shard.server, first, last))
        return np.concatenate(parts)

    def assign(self, name: str, value: Array) -> None:
        """Sets a whole variable, or by "name/slot" a slot of it."""
        for shard in self._shards(name):
            part = value[shard.start : shard.stop] if value.ndim else value
            count = len(part) if part.ndim else 1
            size = max(1, int(PIECE_BYTES * count / max(part.nbytes, 1)))
            for first in range(0, count, size):
                piece = part[first : first + size] if part.ndim else part
                facts = {"name": name, "start": shard.start + first, "stop": shard.start + min(first + size, count)}
                self.ask(self.links[shard.server], Message("assign", facts, {"value": np.asarray(piece)}))

    def _read_shard(self, name: str, shard: Shard) -> Array:
        first = self._read_range(name, shard.server, shard.start, min(shard.start + 1, shard.stop))
        if shard.stop - shard.start <= 1:
            return first
        size = max(1, PIECE_BYTES // max(first.nbytes, 1))
        whole = np.empty((shard.stop - shard.start, *first.shape[1:]), first.dtype)
        for start in range(shard.start, shard.stop, size):
            stop = min(start + size, shard.stop)
            whole[start - shard.start : stop - shard.start] = self._read_range(name, shard.server, start, stop)
        return whole

    def _read_range(self, name: str, server: int, start: int, stop: int) -> Array:
        answer = self.ask(self.links[server], Message("read", {"name": name, "start": start, "stop": stop}))
        return answer.arrays["value"]

    def ask(self, link: ServerLink, message: Message, *, refusals: bool = True) -> Message:
        """Asks one server.

        Args:
            link: The way to it.
            message: The request.
            refusals: Whether a refusal is raised, rather than returned.

        Raises:
            Superseded: If it was started again, and has no state.
        """
        answer = link.ask(message)
        if answer.kind == "superseded":
            raise Superseded(f"{link.task} has no state")
        return unwrap_answer(answer, link.task) if refusals else answer

    def _split(self, name: str, ids: Array) -> list[tuple[Any, Array]]:
        known = self._splits.get(name)
        if known is None or known[0] is not ids:
            known = self._splits[name] = ids, self.layout.split_rows(name, ids)
        return known[1]

    def _part_of_push(self, push: Push, server: int) -> Push:
        rows: dict[str, tuple[Array, Array]] = {}
        for name, (ids, gradients) in push.rows.items():
            positions, own = self._split(name, ids)[server]
            rows[name] = own, gradients[positions]
        dense = {n: p for n, g in push.dense.items() if (p := self._own(g, server, n)) is not None}
        delta = {n: p for n, g in push.delta.items() if (p := self._own(g, server, n)) is not None}
        return Push(
            push.generation, push.ticket, push.share, push.weight, push.hyper, rows, dense, delta, push.based_on
        )

    def _part_of_pull(self, pull: Pull | None, server: int) -> Pull | None:
        if pull is None:
            return None
        rows = {name: self._split(name, ids)[server][1] for name, ids in pull.rows.items()}
        return Pull(pull.generation, rows, pull.dense_newer_than, pull.at_version, pull.sums)

    def _merge(self, replies: Mapping[int, Reply], pull: Pull | None) -> Reply:
        if len(replies) == 1:
            return replies[0]
        # The oldest of the servers' versions: a task must not believe that it has what one of them has not.
        version = min(reply.version for reply in replies.values())
        applied = all(reply.applied for reply in replies.values())
        staleness = max(reply.staleness for reply in replies.values())
        rows: dict[str, Array] = {}
        for name, ids in (pull.rows if pull else {}).items():
            variable = self._variable(name)
            rows[name] = np.empty((len(ids), *variable.row_shape), _dtype(variable))
            for server, (positions, own) in enumerate(self._split(name, ids)):
                if len(own):
                    rows[name][positions] = replies[server].rows[name]
        dense: dict[str, Array] | None = None
        for server, reply in replies.items():
            if reply.dense is not None:
                dense = {} if dense is None else dense
                for name, part in reply.dense.items():
                    self._place(dense, name, part, server)
        return Reply(version, applied, staleness, rows, dense)

    def _place(self, dense: dict[str, Array], name: str, part: Array, server: int) -> None:
        """Puts a server's part of a dense variable in its place."""
        shards = self._shards(name)
        if len(shards) == 1:
            dense[name] = part
            return
        variable = self._variable(name)
        if name not in dense:
            dense[name] = np.empty(variable.shape, _dtype(variable))
        start = 0
        for shard in shards:
            if shard.server == server:
                count = shard.stop - shard.start
                dense[name][shard.start : shard.stop] = part[start : start + count]
                start += count

    def _own(self, value: Array, server: int, name: str) -> Array | None:
        """Returns a server's rows of a variable, in order; `None` if it has none."""
        if name == "iterations":  # The optimizer's count of steps, which every server has.
            return np.asarray(value)
        every = self._shards(name)
        shards = [s for s in every if s.server == server]
        if not shards:
            return None
        value = np.asarray(value)
        if not value.ndim or len(every) == 1:
            return value
        parts = [value[s.start : s.stop] for s in shards]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _shards(self, name: str) -> Sequence[Shard]:
        return self.layout.shards_of(self._variable(name).name)

    def _variable(self, name: str) -> Variable:
        """Returns the variable `name`, or the one of which that is a slot."""
        while name not in self._variables and "/" in name:
            name = name.rpartition("/")[0]  # A variable's own name has slashes, too.
        return self._variables[name]


def _dtype(variable: Variable) -> np.dtype[Any]:
    return dtype_of(variable.dtype)


def spec_to_message(spec: JobSpec) -> tuple[dict[str, Any], dict[str, Array]]:
    """Returns a job's spec as facts and arrays of a message."""
    facts = {
        "layout": spec.layout.to_json(),
        "rule": spec.rule.to_json(),
        "mode": spec.mode,
        "replicas": spec.replicas,
        "log_order": spec.log_order,
        "closes": spec.closes,
    }
    programs = {f"initializer/{n}": np.frombuffer(p, np.uint8) for n, p in spec.initializers.items()}
    return facts, programs


def spec_of_message(message: Message) -> JobSpec:
    """Returns the spec that `spec_to_message` has put into a message."""
    facts, prefix = message.facts, "initializer/"
    programs = {n.removeprefix(prefix): a.tobytes() for n, a in message.arrays.items() if n.startswith(prefix)}
    return JobSpec(
        layout=Layout.from_json(facts["layout"]),
        rule=Rule.from_json(facts["rule"]),
        mode="sync" if facts["mode"] == "sync" else "async",
        replicas=int(facts["replicas"]),
        initializers=programs,
        log_order=bool(facts["log_order"]),
        closes=bool(facts["closes"]),
    )
