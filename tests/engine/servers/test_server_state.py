"""Exactly once, rounds, staleness and generations of one server's state, for any order of requests."""

from __future__ import annotations

import functools
import threading
from pathlib import Path

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep._engine.servers.journal import replay
from lockstep._engine.servers.layout import Layout, Variable
from lockstep._engine.servers.requests import JobSpec, Pull, Push
from lockstep._engine.servers.rule import Rule
from lockstep._engine.servers.rules import rule_of
from lockstep._engine.servers.server_state import ServerState
from lockstep.errors import MismatchError, PeerError
from tests.engine.servers.rows_oracle import BIAS, KERNEL, TABLE, Servers, gradients

COUNTER = Variable("count/value", (3,), "float32", "dense")
AVERAGE = Variable("norm/mean", (2,), "float32", "delta")
ROWS = Variable("emb/embeddings", (8, 2), "float32", "rows")


@functools.cache
def _rule() -> Rule:
    # Not when tests are collected: all processes do that at once, and read what another one still writes to the cache.
    return rule_of(keras.optimizers.SGD(1.0), [COUNTER, ROWS])


def counters(mode: str = "async", replicas: int = 1, servers: int = 1, closes: bool = False) -> list[ServerState]:
    layout = Layout.make([COUNTER, AVERAGE, ROWS], servers)
    spec = JobSpec(layout, _rule(), mode, replicas, {}, True, closes)  # type: ignore[arg-type]
    states = [ServerState(i) for i in range(servers)]
    for state in states:
        state.open(spec, 0, {})
    return states


def push_for(
    state: ServerState, layout: Layout, ticket: int, generation: int = 0, share: int = 0, based_on: int = 0
) -> Push:
    """Returns a push that subtracts one from each element of the server, and row `ticket` of the table."""
    own = {s.variable: s for s in layout.of_server(state.server)}
    push = Push(generation, ticket, share, 1.0, {"learning_rate": 1.0}, based_on=based_on)
    if COUNTER.name in own:
        push.dense = {COUNTER.name: np.ones(3, np.float32)}
    if AVERAGE.name in own:
        push.delta = {AVERAGE.name: np.full(2, 0.5, np.float32)}
    ids = np.asarray([ticket % 8])
    ids = ids[(ids >= own[ROWS.name].start) & (ids < own[ROWS.name].stop)]
    push.rows = {ROWS.name: (ids, np.ones((ids.size, 2), np.float32))}
    return push


def test_a_push_counts_once() -> None:
    (state,) = counters()
    layout = Layout.make([COUNTER, AVERAGE, ROWS], 1)
    for ticket in (1, 0, 1, 3, 0, 2, 3):
        state.exchange(push_for(state, layout, ticket), None, 1.0)
    report = state.report()
    assert (report["version"], report["duplicates"]) == (4, 3)
    np.testing.assert_array_equal(state.read(COUNTER.name, 0, 3), -4.0)
    np.testing.assert_array_equal(state.read(AVERAGE.name, 0, 2), 2.0)
    np.testing.assert_array_equal(state.read(ROWS.name, 0, 8)[:, 0], [-1, -1, -1, -1, 0, 0, 0, 0])


def test_staleness_is_counted() -> None:
    (state,) = counters()
    layout = Layout.make([COUNTER, AVERAGE, ROWS], 1)
    assert state.exchange(push_for(state, layout, 0, based_on=0), None, 1.0).staleness == 0
    assert state.exchange(push_for(state, layout, 1, based_on=0), None, 1.0).staleness == 1
    assert state.exchange(push_for(state, layout, 2, based_on=2), None, 1.0).staleness == 0
    assert state.report()["staleness"] == [[0, 2], [1, 1]]


def test_a_round_is_applied_when_all_shares_are_there() -> None:
    (state,) = counters("sync", 2)
    layout = Layout.make([COUNTER, AVERAGE, ROWS], 1)
    reply = state.exchange(push_for(state, layout, 0, share=1), Pull(0, {}, at_version=1), 0.05)
    assert (reply.status, reply.missing, reply.applied) == ("waiting", (0,), True)
    answers = []
    waiter = threading.Thread(target=lambda: answers.append(state.exchange(None, Pull(0, at_version=1), 30.0)))
    waiter.start()
    assert not state.exchange(push_for(state, layout, 0, share=1), None, 1.0).applied
    assert state.exchange(push_for(state, layout, 0, share=0), None, 1.0).version == 1
    waiter.join(30.0)
    assert answers[0].status == "ok"
    np.testing.assert_array_equal(answers[0].dense[COUNTER.name], -2.0)
    assert state.exchange(None, Pull(0, at_version=0), 1.0).status == "late"


def test_a_share_that_reached_one_server_alone_is_computed_again_from_the_same_values() -> None:
    states, layout = counters("sync", servers=2), Layout.make([COUNTER, AVERAGE, ROWS], 2)
    first = states[0]
    for state in states:
        state.exchange(push_for(state, layout, 0), None, 1.0)
    own = next(s for s in layout.of_server(0) if s.variable == ROWS.name)
    pull = Pull(0, {ROWS.name: np.arange(own.start, own.stop)}, at_version=1)
    seen = first.exchange(None, pull, 1.0)
    # The worker dies after this push: the other server waits for the round still.
    first.exchange(push_for(first, layout, 1), None, 1.0)
    again = first.exchange(None, pull, 1.0)
    assert (again.status, again.version, seen.version) == ("ok", 1, 1)
    np.testing.assert_array_equal(again.rows[ROWS.name], seen.rows[ROWS.name])
    assert again.dense is not None and seen.dense is not None and again.dense.keys() == seen.dense.keys()
    for name, value in seen.dense.items():
        np.testing.assert_array_equal(again.dense[name], value)
    for state in states:
        state.exchange(push_for(state, layout, 1), None, 1.0)
    assert [s.report()["version"] for s in states] == [2, 2] and first.report()["duplicates"] == 1
    other = Pull(0, {ROWS.name: np.arange(own.start, own.start + 1)}, at_version=1)
    assert first.exchange(None, other, 1.0).status == "late"
    first.exchange(push_for(first, layout, 2), None, 1.0)
    assert first.exchange(None, pull, 1.0).status == "late"


def test_what_closes_a_round_is_made_of_the_sum_and_applied_in_its_place() -> None:
    (state,), layout = counters("sync", 2, closes=True), Layout.make([COUNTER, AVERAGE, ROWS], 1)
    ask = Pull(0, {ROWS.name: np.arange(2)}, at_version=0, sums=True)
    state.exchange(push_for(state, layout, 0, share=1), None, 1.0)
    assert (state.exchange(None, ask, 0.05).status, state.report()["version"]) == ("waiting", 0)
    state.exchange(push_for(state, layout, 0, share=0), None, 1.0)
    sums = state.exchange(None, ask, 1.0)
    assert sums.dense is not None and (sums.status, sums.version) == ("ok", 0)
    np.testing.assert_array_equal(sums.dense[COUNTER.name], 2.0)
    np.testing.assert_array_equal(sums.dense[AVERAGE.name], 1.0)
    np.testing.assert_array_equal(sums.rows[ROWS.name], [[2, 2], [0, 0]])
    closing = push_for(state, layout, 0, share=2)
    closing.dense = {COUNTER.name: np.full(3, 7, np.float32)}
    assert state.exchange(closing, None, 1.0).version == 1
    np.testing.assert_array_equal(state.read(COUNTER.name, 0, 3), -7.0)
    np.testing.assert_array_equal(state.read(AVERAGE.name, 0, 2), 0.5)
    np.testing.assert_array_equal(state.read(ROWS.name, 0, 1), -1.0)


def test_what_closes_a_round_is_made_again_where_it_has_reached_one_server_alone() -> None:
    states, layout = counters("sync", 2, servers=2, closes=True), Layout.make([COUNTER, AVERAGE, ROWS], 2)
    first, last = states
    for state in states:
        for share in range(2):
            state.exchange(push_for(state, layout, 0, share=share), None, 1.0)
    ask = Pull(0, at_version=0, sums=True)
    sums, values = first.exchange(None, ask, 1.0).dense, first.exchange(None, Pull(0, at_version=0), 1.0).dense
    assert sums and values
    # The worker dies after this push: the other server waits for it still.
    first.exchange(push_for(first, layout, 0, share=2), None, 1.0)
    for pull, seen in ((ask, sums), (Pull(0, at_version=0), values)):
        again = first.exchange(None, pull, 1.0)
        assert again.dense is not None and (again.status, again.version) == ("ok", 0)
        for name, value in seen.items():
            np.testing.assert_array_equal(again.dense[name], value)
    for state in states:
        state.exchange(push_for(state, layout, 0, share=2), None, 1.0)
    assert [s.report()["version"] for s in states] == [1, 1] and first.report()["duplicates"] == 1
    for share in range(3):
        first.exchange(push_for(first, layout, 1, share=share), None, 1.0)
    assert first.exchange(None, ask, 1.0).status == "late"
    assert last.exchange(None, ask, 1.0).status == "ok"


def test_messages_of_another_generation_change_nothing() -> None:
    (state,) = counters()
    layout = Layout.make([COUNTER, AVERAGE, ROWS], 1)
    assert state.exchange(push_for(state, layout, 0, generation=7), None, 1.0).status == "superseded"
    assert state.report()["version"] == 0


def test_dense_variables_travel_only_when_they_are_newer() -> None:
    (state,) = counters()
    layout = Layout.make([COUNTER, AVERAGE, ROWS], 1)
    reply = state.exchange(push_for(state, layout, 0), Pull(0), 1.0)
    assert reply.dense is not None
    assert state.exchange(None, Pull(0, dense_newer_than=reply.version), 1.0).dense is None
    before = np.array(reply.dense[COUNTER.name])
    state.exchange(push_for(state, layout, 1), None, 1.0)
    np.testing.assert_array_equal(reply.dense[COUNTER.name], before)


def test_a_push_of_another_layout_is_refused_before_it_changes_anything() -> None:
    (state,) = counters()
    layout = Layout.make([COUNTER, AVERAGE, ROWS], 1)
    wrong = push_for(state, layout, 0)
    wrong.dense = {COUNTER.name: np.ones(4, np.float32)}
    with pytest.raises(MismatchError, match="count/value"):
        state.exchange(wrong, None, 1.0)
    twice = push_for(state, layout, 0)
    twice.rows = {ROWS.name: (np.asarray([1, 1]), np.ones((2, 2), np.float32))}
    with pytest.raises(MismatchError, match="twice"):
        state.exchange(twice, None, 1.0)
    assert state.report()["version"] == 0
    assert state.exchange(push_for(state, layout, 0), None, 1.0).applied


def test_an_update_that_fails_half_way_leaves_no_state_to_go_on_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (state,) = counters()
    layout = Layout.make([COUNTER, AVERAGE, ROWS], 1)
    info = state.cut(str(tmp_path), 0)

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(state._variables.dense, "end_update", fail)
        with pytest.raises(MemoryError):
            state.exchange(push_for(state, layout, 0), None, 1.0)
    with pytest.raises(PeerError, match="restored"):
        state.exchange(push_for(state, layout, 0), None, 1.0)
    state.restore(str(tmp_path), {"layout": layout.to_json(), "servers": [info.to_json()]}, 1)
    assert state.exchange(push_for(state, layout, 0, generation=1), None, 1.0).applied


@pytest.mark.slow
def test_opening_again_with_the_same_facts_keeps_what_is_there() -> None:
    servers = Servers(keras.optimizers.Adam(0.01))
    servers.train(3)
    before = servers.bits()
    (state,) = servers.states
    state.open(servers.spec, 1, {})
    assert servers.bits() == before
    state.open(servers.spec, 1, {BIAS: np.zeros(3, np.float32), f"{BIAS}/momentum": np.ones(3, np.float32)})
    np.testing.assert_array_equal(state.read(BIAS, 0, 3), 0.0)
    np.testing.assert_array_equal(state.read(f"{BIAS}/momentum", 0, 3), 1.0)
    assert servers.weights()[KERNEL].tobytes() == before[KERNEL]


_EVENTS = st.lists(
    st.tuples(st.sampled_from(["push", "duplicate", "die", "cut", "rollback"]), st.integers(0, 3), st.integers(0, 7)),
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(events=_EVENTS, staleness=st.integers(0, 3))
def test_any_interleaving_counts_each_ticket_once(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, int, int]], staleness: int
) -> None:
    """Workers pull, push, die and come back; leases keep to the staleness; cuts and rollbacks fall anywhere."""
    states = counters(servers=2)
    layout = Layout.make([COUNTER, AVERAGE, ROWS], 2)
    directory = str(tmp_path_factory.getbasetemp() / "cuts")
    done: set[int] = set()
    leases: dict[int, tuple[int, list[int]]] = {}
    generation, saved = 0, None

    def low() -> int:
        return next(i for i in range(len(done) + 1) if i not in done)

    for kind, worker, choice in events:
        if kind == "push":
            if worker not in leases:
                held = {ticket for ticket, _ in leases.values()}
                ticket = next(t for t in range(1000) if t not in done and t not in held)
                if ticket <= low() + staleness:
                    leases[worker] = (ticket, [s.exchange(None, Pull(generation), 1.0).version for s in states])
                continue
            ticket, based_on = leases.pop(worker)
            order = states if choice % 2 else states[::-1]
            for state in order:
                reply = state.exchange(
                    push_for(state, layout, ticket, generation, based_on=based_on[state.server]), None, 1.0
                )
                assert reply.staleness <= 2 * staleness
            done.add(ticket)
        elif kind == "duplicate" and done:
            ticket = sorted(done)[choice % len(done)]
            state = states[choice % 2]
            assert not state.exchange(push_for(state, layout, ticket, generation), None, 1.0).applied
        elif kind == "die" and worker in leases:
            # It has reached one server, and not the other: whoever gets the lease then pushes to both.
            ticket, based_on = leases.pop(worker)
            states[choice % 2].exchange(
                push_for(states[choice % 2], layout, ticket, generation, based_on=based_on[choice % 2]), None, 1.0
            )
        elif kind == "cut" and not leases and done == set(range(len(done))):
            if all(s.report()["version"] == len(done) for s in states):
                infos = [s.cut(directory, len(done)).to_json() for s in states]
                saved = ({"layout": layout.to_json(), "servers": infos}, set(done))
        elif kind == "rollback" and saved is not None:
            generation += 1
            for state in states:
                state.restore(directory, saved[0], generation)
            done = set(saved[1])
            leases.clear()
    for ticket in range(low() + 20):
        if ticket not in done:
            for state in states:
                state.exchange(push_for(state, layout, ticket, generation), None, 1.0)
            done.add(ticket)
    expected = np.bincount([t % 8 for t in done], minlength=8)
    table = np.concatenate([s.read(ROWS.name, *_range(layout, s.server)) for s in states])
    np.testing.assert_array_equal(-table[:, 0], expected)
    for state in states:
        assert state.report()["version"] == len(done)
        for variable, step in ((COUNTER, -1.0), (AVERAGE, 0.5)):
            if variable.name in {s.variable for s in layout.of_server(state.server)}:
                np.testing.assert_array_equal(state.read(variable.name, 0, variable.rows), step * len(done))


def _range(layout: Layout, server: int) -> tuple[int, int]:
    shard = next(s for s in layout.of_server(server) if s.variable == ROWS.name)
    return shard.start, shard.stop


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: keras.optimizers.Adam(0.01), lambda: keras.optimizers.Adagrad(0.01)])
def test_rounds_give_the_same_bits_for_any_servers_orders_and_extra_pulls(make: object) -> None:
    expected = None
    random = np.random.default_rng(0)
    for count in (1, 2, 3):
        servers = Servers(make(), count, mode="sync", replicas=2)  # type: ignore[operator]
        for ticket in range(40):
            shares = [gradients(2 * ticket), gradients(2 * ticket + 1)]
            for share in random.permutation([0, 1, 1]):
                pushes = servers.pushes(ticket, shares[share], share=int(share), weight=(0.25, 0.75)[share])
                for state, push in zip(servers.states, pushes, strict=True):
                    if random.random() < 0.3:
                        state.exchange(None, Pull(0, {TABLE: push.rows[TABLE][0]} if push.rows else {}), 1.0)
                    state.exchange(push, None, 1.0)
        assert all(s.report()["version"] == 40 for s in servers.states)
        expected = expected or servers.bits()
        assert servers.bits() == expected


@pytest.mark.slow
def test_a_training_is_repeated_from_its_journals_to_the_bit() -> None:
    """The gradient of a ticket is a function of what was pulled for it."""

    def gradient(ticket: int, pulled: dict[int, float]) -> dict[str, object]:
        given = gradients(ticket)
        factor = np.float32(1 + sum(pulled.values()))
        ids, rows = given[TABLE]
        return {TABLE: (ids, rows * factor), KERNEL: given[KERNEL] * factor, BIAS: given[BIAS] * factor}

    def look(servers: Servers, server: int) -> tuple[int, float]:
        reply = servers.states[server].exchange(None, Pull(0), 1.0)
        return reply.version, float(sum(np.sum(v) for v in (reply.dense or {}).values()))

    random = np.random.default_rng(5)
    servers = Servers(keras.optimizers.Adam(0.01), 2, log_order=True)
    queue: list[tuple[int, list[tuple[int, float]]]] = []
    for ticket in range(60):
        queue.append((ticket, [look(servers, 0), look(servers, 1)]))
        while len(queue) > random.integers(0, 4) or (ticket == 59 and queue):
            chosen, seen = queue.pop(random.integers(len(queue)))
            made = gradient(chosen, {i: value for i, (_, value) in enumerate(seen)})
            for i, state in enumerate(servers.states):
                push = servers.pushes(chosen, made)[i]
                push.based_on = seen[i][0]
                state.exchange(push, None, 1.0)

    again = Servers(keras.optimizers.Adam(0.01), 2)
    pulled: dict[int, dict[int, float]] = {}

    def pull(ticket: int, server: int) -> None:
        pulled.setdefault(ticket, {})[server] = look(again, server)[1]

    def push(ticket: int, server: int) -> None:
        seen = dict(sorted(pulled[ticket].items()))
        again.states[server].exchange(again.pushes(ticket, gradient(ticket, seen))[server], None, 1.0)

    replay([s.journal() for s in servers.states], pull, push)
    assert again.bits() == servers.bits()
    assert [s.report()["version"] for s in again.states] == [60, 60]
