"""Asynchronous servers as a state machine: any interleaving of requests, deaths, joins and cuts, beside an oracle.

The oracle goes through each server's journal alone, in float64: a ticket's gradient is computed from the server's
values as they were at the version that the journal says, and the whole table is updated, as on one device.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from dataclasses import dataclass, field
from typing import Any

import jax
import keras
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from lockstep._engine.servers.layout import Layout, Variable
from lockstep._engine.servers.requests import JobSpec, Pull, Push
from lockstep._engine.servers.rules import rule_of
from lockstep._engine.servers.server_state import ServerState
from lockstep._engine.servers.tickets import Lease, TicketBook
from lockstep._types import Array

SERVERS, WORKERS, ROWS, TOLERANCE = 2, 4, 9, 1e-9
TABLE = Variable("emb/embeddings", (ROWS, 2), "float64", "rows")
KERNELS = [Variable(f"dense_{i}/kernel", (3, 2), "float64", "dense") for i in range(SERVERS)]
AVERAGE = Variable("norm/mean", (2,), "float64", "delta")
VARIABLES = [TABLE, *KERNELS, AVERAGE]
RATE = 1 / 16  # The same in float32, in which Keras keeps it.
Values = dict[str, Array]


class Adagrad:
    """Adagrad of one device, in numpy."""

    slots = ("accumulator",)
    make = functools.partial(keras.optimizers.Adagrad, RATE)

    @staticmethod
    def update(step: int, value: Array, slots: list[Array], gradient: Array) -> tuple[Array, list[Array]]:
        del step
        (total,) = slots
        total = total + gradient**2
        return value - RATE * gradient / np.sqrt(total + 1e-7), [total]


class Adam:
    """Adam of one device, in numpy: also rows without gradient move."""

    slots = ("momentum", "velocity")
    make = functools.partial(keras.optimizers.Adam, RATE)

    @staticmethod
    def update(step: int, value: Array, slots: list[Array], gradient: Array) -> tuple[Array, list[Array]]:
        first, second = 0.9 * slots[0] + 0.1 * gradient, 0.999 * slots[1] + 0.001 * gradient**2
        rate = RATE * np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        return value - rate * first / (np.sqrt(second) + 1e-7), [first, second]


OPTIMIZERS: dict[str, Any] = {"Adagrad": Adagrad, "Adam": Adam}


@functools.cache
def spec_of(optimizer: str) -> JobSpec:
    with jax.enable_x64(True):
        update = rule_of(OPTIMIZERS[optimizer].make(), VARIABLES)
    return JobSpec(Layout.make(VARIABLES, SERVERS), update, "async", 1, {}, log_order=True)


def gradient_of(ticket: int, server: int, values: Values) -> tuple[Array, Values]:
    """Returns the ids of a ticket on a server, and gradients, which depend on all that was pulled there."""
    random = np.random.default_rng([ticket, server])
    ids = np.unique(random.integers(0, len(values[TABLE.name]), 3))
    factor = 1 + sum(float(np.tanh(values[name]).mean()) for name in sorted(values) if name != TABLE.name)
    factor += float(np.tanh(values[TABLE.name][ids]).mean())
    return ids, {name: factor * random.normal(size=values[name].shape) for name in sorted(values)}


@dataclass
class Oracle:
    """One server's variables after each of its updates: by version, the whole table among them."""

    server: int
    optimizer: Any
    values: list[Values]
    slots: dict[str, list[Array]]
    order: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    @property
    def tickets(self) -> set[int]:
        return {ticket for ticket, _ in self.order}

    def apply(self, ticket: int, based_on: int) -> None:
        """Goes on by the next entry of the journal."""
        ids, gradients = gradient_of(ticket, self.server, self.values[based_on])
        now = dict(self.values[-1])
        for name, value in now.items():
            if name == AVERAGE.name:
                now[name] = value + gradients[name]
                continue
            gradient = gradients[name]
            if name == TABLE.name:
                gradient = np.zeros_like(value)
                gradient[ids] = gradients[name][ids]
            now[name], self.slots[name] = self.optimizer.update(len(self.order), value, self.slots[name], gradient)
        self.values.append(now)
        self.order.append((ticket, based_on))

    def copy(self) -> Oracle:
        slots = {name: list(arrays) for name, arrays in self.slots.items()}
        return Oracle(self.server, self.optimizer, list(self.values), slots, list(self.order))


@dataclass
class Work:
    """A ticket that a worker has computed: a push for each server that has not got it yet."""

    lease: Lease
    pushes: dict[int, Push]


class Job(RuleBasedStateMachine):
    """Servers, the chief's book of tickets and workers, without sockets, threads or clocks."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.work: dict[int, Work] = {}
        # What workers that are dead had sent, and comes late.
        self.late: list[Work] = []
        self.generation, self.now, self.deaths = 0, 0.0, 0
        self.saved: tuple[Any, list[Oracle], int] | None = None

    @initialize(optimizer=st.sampled_from(sorted(OPTIMIZERS)), staleness=st.none() | st.integers(0, 3))
    def begin(self, optimizer: str, staleness: int | None) -> None:
        self.spec = spec_of(optimizer)
        self.servers = [ServerState(i) for i in range(SERVERS)]
        self.oracles = [self._open(server, OPTIMIZERS[optimizer]) for server in self.servers]
        self.book = TicketBook(1, staleness)
        self._begin_epoch(0)

    def _open(self, server: ServerState, optimizer: Any) -> Oracle:
        random = np.random.default_rng([11, server.server])
        values: Values = {}
        for shard in self.spec.layout.of_server(server.server):
            shape = (shard.stop - shard.start, *self.spec.layout.variable(shard.variable).row_shape)
            values[shard.variable] = random.normal(size=shape)
        server.open(self.spec, self.generation, values)
        slots: dict[str, list[Array]] = {}
        for name in values:
            if name != AVERAGE.name:
                own = self.spec.rule.program(name).slots
                slots[name] = [np.full_like(values[name], slot.initial) for slot in own]
        return Oracle(server.server, optimizer, [values], slots)

    def _begin_epoch(self, ticket: int) -> None:
        self.book.begin_epoch(0, ticket)
        self.book.release(1_000)

    def _range(self, server: int) -> tuple[int, int]:
        shards = self.spec.layout.of_server(server)
        return next((s.start, s.stop) for s in shards if s.variable == TABLE.name)

    # ---- Workers ----

    @rule(worker=st.integers(0, WORKERS - 1))
    def pull(self, worker: int) -> None:
        """A worker joins, or is free: it gets a lease, pulls from all servers and computes."""
        self.now += 0.1
        if worker in self.work:
            return
        lease = self.book.lease(f"worker {worker}", self.now)
        if lease is not None:
            self.work[worker] = self._compute(lease)

    def _compute(self, lease: Lease) -> Work:
        pushes: dict[int, Push] = {}
        for server, oracle in zip(self.servers, self.oracles, strict=True):
            first, stop = self._range(server.server)
            reply = server.exchange(None, Pull(self.generation, {TABLE.name: np.arange(first, stop)}), 1.0)
            assert (reply.status, reply.version) == ("ok", len(oracle.order))
            values = {**(reply.dense or {}), TABLE.name: reply.rows[TABLE.name]}
            for name, expected in oracle.values[-1].items():
                np.testing.assert_allclose(values[name], expected, rtol=0, atol=TOLERANCE, err_msg=name)
            values = {name: np.array(value) for name, value in values.items()}
            ids, gradients = gradient_of(lease.ticket, server.server, values)
            pushes[server.server] = Push(
                self.generation,
                lease.ticket,
                hyper={"learning_rate": RATE},
                rows={TABLE.name: (ids + first, gradients[TABLE.name][ids])},
                dense={v.name: gradients[v.name] for v in KERNELS if v.name in gradients},
                delta={AVERAGE.name: gradients[AVERAGE.name]} if AVERAGE.name in gradients else {},
                based_on=reply.version,
            )
        return Work(lease, pushes)

    @rule(worker=st.integers(0, WORKERS - 1), server=st.integers(0, SERVERS - 1), is_whole=st.booleans())
    def push(self, worker: int, server: int, is_whole: bool) -> None:
        """A worker's push reaches one server, or all of them from that one on."""
        if worker not in self.work:
            return
        work = self.work[worker]
        for number in [server, *(n for n in range(SERVERS) if is_whole and n != server)]:
            self._deliver(work, number)
        if not work.pushes:
            del self.work[worker]
            self.book.done(f"worker {worker}", work.lease.generation, work.lease.ticket, 0, self.now)

    def _deliver(self, work: Work, number: int) -> None:
        push = work.pushes.pop(number, None)
        if push is None:
            return
        server, oracle = self.servers[number], self.oracles[number]
        reply = server.exchange(push, None, 1.0)
        if push.generation != self.generation:
            assert reply.status == "superseded"
            return
        assert reply.applied == (push.ticket not in oracle.tickets)
        if reply.applied:
            assert reply.staleness == len(oracle.order) - push.based_on
            oracle.apply(push.ticket, push.based_on)
        # It is sent again by one who does not know that it has arrived.
        assert not server.exchange(push, None, 1.0).applied

    @rule(worker=st.integers(0, WORKERS - 1))
    def kill_worker(self, worker: int) -> None:
        """A worker dies; what it has sent may still arrive."""
        self.book.gone(f"worker {worker}")
        if worker in self.work:
            self.late.append(self.work.pop(worker))

    @rule(which=st.integers(0, 7), server=st.integers(0, SERVERS - 1))
    def arrive_late(self, which: int, server: int) -> None:
        """A push of a dead worker, or of before a rollback, arrives."""
        if self.late:
            self._deliver(self.late[which % len(self.late)], server)

    # ---- Servers ----

    def _is_quiet(self) -> bool:
        done = self.book.applied
        return self.book.is_quiet(done) and all(len(o.order) == done for o in self.oracles)

    @precondition(lambda self: self._is_quiet())
    @rule()
    def cut(self) -> None:
        infos = [s.cut(self.directory, self.book.applied).to_json() for s in self.servers]
        manifest = {"layout": self.spec.layout.to_json(), "servers": infos}
        self.saved = manifest, [oracle.copy() for oracle in self.oracles], self.book.applied

    @precondition(lambda self: self.saved is not None and self.deaths < 4)
    @rule(server=st.integers(0, SERVERS - 1))
    def kill_server(self, server: int) -> None:
        """A server dies and starts again, and all go back to the cut."""
        assert self.saved is not None
        manifest, oracles, applied = self.saved
        self.generation, self.deaths = self.generation + 1, self.deaths + 1
        self.servers[server] = ServerState(server)
        self.servers[server].open(self.spec, self.generation, {})
        for state in self.servers:
            state.restore(self.directory, manifest, self.generation)
        self.oracles = [oracle.copy() for oracle in oracles]
        self.book.roll_back(applied, self.generation)
        self._begin_epoch(applied)
        self.late += self.work.values()
        self.work.clear()

    # ---- The end ----

    def teardown(self) -> None:
        """Others do what is left; then each server has each ticket once, and what the oracle has."""
        try:
            if hasattr(self, "book"):
                self._finish()
        finally:
            shutil.rmtree(self.directory)

    def _finish(self) -> None:
        for worker in range(WORKERS):
            self.kill_worker(worker)
        last = self.book.leased
        while self.book.applied < last:
            lease = self.book.lease("last", self.now)
            assert lease is not None
            work = self._compute(lease)
            for server in range(SERVERS):
                self._deliver(work, server)
            self.book.done("last", lease.generation, lease.ticket, 0, self.now)
        for work in self.late:
            for server in range(SERVERS):
                self._deliver(work, server)
        for server, oracle in zip(self.servers, self.oracles, strict=True):
            assert sorted(oracle.tickets) == list(range(len(oracle.order)))
            assert [tuple(map(int, entry)) for entry in server.journal().entries.tolist()] == oracle.order
            self._compare(server, oracle)

    def _compare(self, server: ServerState, oracle: Oracle) -> None:
        for shard in self.spec.layout.of_server(server.server):
            name = shard.variable
            found = {name: oracle.values[-1][name]}
            if name != AVERAGE.name:
                names = [f"{name}/{slot}" for slot in oracle.optimizer.slots]
                found |= dict(zip(names, oracle.slots[name], strict=True))
            for key, expected in found.items():
                value = server.read(key, shard.start, shard.stop)
                np.testing.assert_allclose(value, expected, rtol=0, atol=TOLERANCE, err_msg=key)


TestInterleavings = Job.TestCase
TestInterleavings.settings = settings(stateful_step_count=30, deadline=None)


@pytest.mark.slow
def test_many_interleavings(request: pytest.FixtureRequest) -> None:
    """A thousand with `--exhaustive`."""
    count = 1000 if request.config.getoption("--exhaustive") else 200
    run_state_machine_as_test(Job, settings=settings(max_examples=count, stateful_step_count=40, deadline=None))
