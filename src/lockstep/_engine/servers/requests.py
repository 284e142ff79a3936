"""Defines what workers ask of a parameter server, and what it answers: plain values, without sockets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, NamedTuple

from lockstep._engine.servers.layout import Layout
from lockstep._engine.servers.rule import Rule
from lockstep._types import JSON, Array

Mode = Literal["async", "sync"]
# "superseded": of another generation. "late": the round that it is for has been applied without it. "waiting": the
# version that it asks for is not there yet; `Reply.missing` names the shares, and the same pull may be sent again.
Status = Literal["ok", "superseded", "late", "waiting"]


@dataclass(frozen=True)
class JobSpec:
    """The facts of a job that all servers need: no code, but exported programs.

    Attributes:
        layout: Where variables lie.
        rule: The optimizer.
        mode: "async", or "sync": rounds of `replicas` shares.
        replicas: The number of shares of a round that a batch is divided into; 1 in async mode.
        initializers: By name of a table, the exported program of its first rows (`initial_rows.initializer_of`).
            Tables without one begin with zeros, and are assigned.
        log_order: Whether servers log the order in which they apply updates.
        closes: Whether a round has one share more, which is made of the sum of the others, and applied in its place:
            where a program clips gradients, or uses them otherwise, before they are applied.
    """

    layout: Layout
    rule: Rule
    mode: Mode
    replicas: int
    initializers: Mapping[str, bytes]
    log_order: bool = False
    closes: bool = False

    @property
    def shares(self) -> int:
        """The number of shares of a round, the one that closes it included."""
        return self.replicas + self.closes

    def digest(self) -> str:
        """Returns a hash that is equal for specs with the same facts."""
        facts = f"{self.layout.digest()} {self.mode} {self.replicas} {self.log_order} {self.closes} "
        hashed = hashlib.sha256(facts.encode())
        hashed.update(self.rule.digest().encode())
        for name in sorted(self.initializers):
            hashed.update(name.encode() + hashlib.sha256(self.initializers[name]).digest())
        return hashed.hexdigest()


@dataclass
class Push:
    """The gradients of a ticket, for one server.

    Attributes:
        generation: Of the job, as the lease has it.
        ticket: The number of the global batch, from 0 with the call.
        share: Which share of it; 0 in async mode.
        weight: The factor of this share's gradients and differences in the sum: the rows of the share by the rows of
            the batch, for means; 1 for a whole batch.
        hyper: Values of the optimizer's hyperparameters (`Rule.hyper`), scalars.
        rows: By table: ids of the whole table, shape (n,), each at most once, best in ascending order;
            gradients, shape (n, *row).
        dense: By variable: the gradient of the server's rows of it, one range after the other.
        delta: By variable: the difference to add, of the server's rows.
        based_on: The server's version that the gradients were computed at.
    """

    generation: int
    ticket: int
    share: int = 0
    weight: float = 1.0
    hyper: Mapping[str, float] = field(default_factory=dict)
    rows: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)
    dense: Mapping[str, Array] = field(default_factory=dict)
    delta: Mapping[str, Array] = field(default_factory=dict)
    based_on: int = 0


@dataclass
class Pull:
    """Holds what a worker needs of one server.

    Attributes:
        generation: Of the job.
        rows: By table, ids of the whole table, shape (n,).
        dense_newer_than: The version of the dense variables that the worker has; -1 asks for them in any case.
        at_version: In sync mode, the version that the values must have (the number of the round).
        sums: Whether the sum of what the shares of that round have pushed is asked for, in place of values.
    """

    generation: int
    rows: Mapping[str, Array] = field(default_factory=dict)
    dense_newer_than: int = -1
    at_version: int | None = None
    sums: bool = False


class Request(NamedTuple):
    """Joins a push and a pull in one request to a server.

    Attributes:
        push: The push.
        pull: The pull. With neither of them, the reply to a push that has gone ahead is asked for.
        seconds: How long the pull may wait for its version at the server.
        is_ahead: Whether it is a push alone, whose reply comes with the one to the next request of the connection.
    """

    push: Push | None
    pull: Pull | None
    seconds: float
    is_ahead: bool = False


@dataclass
class Reply:
    """A server's answer.

    Attributes:
        version: How many tickets the server has applied in this call.
        applied: Whether this push counts; False for a duplicate.
        staleness: How many tickets were applied between `based_on` and this push.
        rows: By table, the rows that were asked for, in the order of the ids.
        dense: By variable, dense and delta ones: the server's rows, one range after the other. None if not newer.
        status: Whether the request was answered; see `Status`.
        missing: The shares that a pull still waits for (status "waiting").
    """

    version: int
    applied: bool = False
    staleness: int = 0
    rows: Mapping[str, Array] = field(default_factory=dict)
    dense: Mapping[str, Array] | None = None
    status: Status = "ok"
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class CutInfo:
    """The record of one server's part of a cut, for the chief's manifest.

    Attributes:
        file: The name in the directory of the cut.
        server: Who wrote it.
        num_servers: How many parts the cut has.
        layout: The digest of the layout.
        version: How many tickets are in it.
        bytes: The size of the file.
    """

    file: str
    server: int
    num_servers: int
    layout: str
    version: int
    bytes: int

    def to_json(self) -> JSON:
        """Returns the record as a JSON object."""
        return asdict(self)
