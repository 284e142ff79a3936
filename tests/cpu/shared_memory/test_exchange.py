"""How processes bring sums together: here they are threads, so that any number and any order can be tried."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep._cpu.shared_memory import shm
from lockstep._cpu.shared_memory.connections import Connections
from lockstep._cpu.shared_memory.engine import Engine
from lockstep._cpu.shared_memory.shm import Segment
from lockstep.errors import PeerError

_CAPACITY = 1 << 16
_WAIT_SECONDS = 30.0


class _Call:
    """A call of one replica, as XLA makes it."""

    def __init__(
        self, call_id: int, replica: int, inputs: list[np.ndarray], outputs: list[np.ndarray] | None = None
    ) -> None:
        self.call_id = call_id
        self.replica = replica
        self.inputs = inputs
        self.outputs = outputs or inputs  # XLA lets the sums take the place of what is added.
        self.told: str | None = None
        self._done = threading.Event()

    def succeed(self) -> None:
        self.told = ""
        self._done.set()

    def fail(self, reason: str) -> None:
        self.told = reason
        self._done.set()

    def result(self) -> str | None:
        assert self._done.wait(_WAIT_SECONDS)
        return self.told


class _Job:
    """Processes of so many replicas each, connected."""

    def __init__(self, replicas: Sequence[int], seconds: float = _WAIT_SECONDS, capacity: int = _CAPACITY) -> None:
        count = len(replicas)
        ends: list[dict[int, socket.socket]] = [{} for _ in range(count)]
        for a, b in itertools.combinations(range(count), 2):
            ends[a][b], ends[b][a] = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        names = [f"worker {i}" for i in range(count)]
        self.connections = [Connections(names, i, ends[i], seconds) for i in range(count)]
        descriptors = [shm.create(capacity) for _ in range(count)]
        starts = [sum(replicas[:i]) for i in range(count)]
        self.numbers = [list(range(s, s + n)) for s, n in zip(starts, replicas, strict=True)]
        self.engines = [
            Engine(each, _segments(descriptors, i, capacity), capacity, self.numbers[i], is_one_each=max(replicas) == 1)
            for i, each in enumerate(self.connections)
        ]
        for d in descriptors:
            os.close(d)

    def submit(
        self, process: int, call_id: int, inputs: Callable[[int], list[np.ndarray]], as_float32: bool = False
    ) -> list[_Call]:
        calls = [_Call(call_id, replica, inputs(replica)) for replica in self.numbers[process]]
        for call in calls if as_float32 else ():
            call.outputs = [np.full(v.shape, np.nan, "float32") for v in call.inputs]
        for call in calls:
            self.engines[process].submit(call)  # type: ignore[arg-type]
        return calls

    def close(self) -> None:
        for engine in self.engines:
            engine.close()


def _segments(descriptors: list[int], own: int, capacity: int) -> list[Segment]:
    return [Segment(os.dup(d), capacity, writable=i == own) for i, d in enumerate(descriptors)]


def _job(stack: ExitStack, *arguments: Any, **more: Any) -> _Job:
    job = _Job(*arguments, **more)
    stack.callback(job.close)
    return job


@settings(max_examples=25)
@given(
    replicas=st.lists(st.integers(1, 2), min_size=2, max_size=5),
    sizes=st.lists(st.sampled_from([1, 5, 64, 1000, 16384, 50_000]), min_size=1, max_size=4),
    dtype=st.sampled_from(["float32", "float64", "int32", "int8"]),
    sums=st.integers(1, 4),
)
def test_sums(replicas: list[int], sizes: list[int], dtype: str, sums: int) -> None:
    def inputs(replica: int) -> list[np.ndarray]:
        return [(np.arange(n) % 11 + replica).astype(dtype) for n in sizes]

    with ExitStack() as stack:
        job = _job(stack, replicas)
        calls = [c for s in range(sums) for p in range(len(replicas)) for c in job.submit(p, s, inputs)]
        expected = [np.sum(terms, 0, dtype) for terms in zip(*map(inputs, range(sum(replicas))), strict=True)]
        for call in calls:
            assert call.result() == ""
            for found, value in zip(call.outputs, expected, strict=True):
                np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("processes", [2, 3, 4])
@pytest.mark.parametrize("size", [10, 50_000])
def test_every_process_gets_the_same_bits(processes: int, size: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(processes, size)).astype("float32")
    with ExitStack() as stack:
        job = _job(stack, [1] * processes)
        calls = [c for p in range(processes) for c in job.submit(p, 1, lambda i: [values[i].copy()])]
        assert [c.result() for c in calls] == [""] * processes
        for call in calls[1:]:
            np.testing.assert_array_equal(call.outputs[0], calls[0].outputs[0])


@settings(max_examples=25)
@given(data=st.data(), processes=st.integers(2, 5))
def test_processes_may_reach_sums_in_any_order(data: st.DataObject, processes: int) -> None:
    call_ids = [3, 5, 5, 8, 13]
    orders = [data.draw(st.permutations(call_ids)) for _ in range(processes)]
    with ExitStack() as stack:
        job = _job(stack, [1] * processes)
        calls = [
            c
            for p, order in enumerate(orders)
            for call_id in order
            for c in job.submit(p, call_id, lambda i, s=call_id: [_of(s)])
        ]
        for call in calls:
            assert call.result() == ""
            np.testing.assert_array_equal(call.outputs[0], _of(call.call_id) * processes)


def _of(call_id: int) -> np.ndarray:
    return np.full(call_id * 3000, float(call_id))


def test_half_precision_is_summed_in_single() -> None:
    values = [
        np.asarray([2048.0, 1.0], "float16"),
        np.asarray([1.0, 2.0], "float16"),
        np.asarray([1.0, 3.0], "float16"),
    ]
    with ExitStack() as stack:
        job = _job(stack, [1, 1, 1])
        calls = [c for p in range(3) for c in job.submit(p, 1, lambda i: [values[i].copy()])]
        for call in calls:
            assert call.result() == ""
            np.testing.assert_array_equal(call.outputs[0], np.asarray([2050.0, 6.0], "float16"))


@settings(max_examples=25)
@given(
    replicas=st.lists(st.integers(1, 2), min_size=2, max_size=5),
    sizes=st.lists(st.sampled_from([1, 64, 999, 16385, 50_000]), min_size=1, max_size=3),
    seed=st.integers(0, 9),
)
def test_sums_of_bfloat16_in_float32(replicas: list[int], sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [[rng.normal(size=n).astype(ml_dtypes.bfloat16) for n in sizes] for _ in range(sum(replicas))]
    with ExitStack() as stack:
        job = _job(stack, replicas)
        calls = [c for s in range(2) for p in range(len(replicas)) for c in job.submit(p, s, values.__getitem__, True)]
        assert {c.result() for c in calls} == {""}
        for i in range(len(sizes)):
            exact = sum(v[i].astype(float) for v in values)
            for call in calls:
                np.testing.assert_array_equal(call.outputs[i], calls[0].outputs[i])
            np.testing.assert_allclose(calls[0].outputs[i], exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("processes", "part"), [(2, 1 / 2), (3, 1 / 2), (4, 3 / 5)])
def test_bfloat16_takes_half_the_bytes(processes: int, part: float) -> None:
    """From four processes on, each also writes its part of the sums, a quarter of them or less, in float32."""
    written = {}
    for dtype in ("float32", ml_dtypes.bfloat16):
        with ExitStack() as stack:
            job = _job(stack, [1] * processes)
            calls = [c for p in range(processes) for c in job.submit(p, 1, lambda _: [np.ones(40_000, dtype)], True)]  # noqa: B023
            assert {c.result() for c in calls} == {""}
            written[np.dtype(dtype).itemsize] = [engine.bytes_written for engine in job.engines]
    assert written[4] == [160_000 if processes < 4 else 200_000] * processes
    assert written[2] == [part * w for w in written[4]]


def test_the_end_of_a_process_is_noticed_at_once() -> None:
    with ExitStack() as stack:
        job = _job(stack, [1, 1, 1])
        waiting = job.submit(0, 1, lambda _: [np.ones(5)]) + job.submit(1, 1, lambda _: [np.ones(5)])
        job.connections[2].close()
        # Whoever of the others hears it first gives up too, and must not be taken for the cause.
        for call in (*waiting, *job.submit(0, 2, lambda _: [np.ones(5)])):
            assert "PeerError: worker 2 has gone" in str(call.result())


def test_what_a_process_sent_before_it_ended_counts() -> None:
    """Even when it ended with messages unread."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    first, second = (Connections(["worker 0", "worker 1"], i, {1 - i: s}, 5.0) for i, s in enumerate((here, there)))
    first.send(0, 7)
    second.send(0, 7)
    second.close()
    assert first.receive(1, 0) == 7
    with pytest.raises(PeerError, match="worker 1 has gone"):
        first.receive(1, 1)
    first.close()


def test_who_gives_up_says_why() -> None:
    with ExitStack() as stack:
        job = _job(stack, [1, 1, 1])
        calls = job.submit(0, 1, lambda _: [np.ones(5)]) + job.submit(1, 1, lambda _: [np.ones(5)])
        job.connections[2].abort("worker 2 failed while it added up: MemoryError().")
        for call in calls:
            assert str(call.result()) == "PeerError: worker 2 failed while it added up: MemoryError()."


def test_who_does_not_come_is_named() -> None:
    with ExitStack() as stack:
        job = _job(stack, [1, 1], seconds=0.5)
        (call,) = job.submit(0, 1, lambda _: [np.ones(5)])
        told = str(call.result())
        assert "MissingTaskError" in told
        assert "Missing: worker 1" in told


def test_a_sum_that_only_the_first_process_reaches_is_named() -> None:
    with ExitStack() as stack:
        job = _job(stack, [1, 1], seconds=0.5)
        job.submit(0, 1, lambda _: [np.ones(5)])
        (call,) = job.submit(1, 2, lambda _: [np.ones(5)])
        assert "Here: worker 0. Missing: worker 1" in str(call.result())


def test_a_failed_sum_fails_replicas_that_come_later() -> None:
    with ExitStack() as stack:
        job = _job(stack, [1, 2])
        first, second = _Call(1, 1, [np.ones(5)]), _Call(1, 2, [np.ones(5)])
        job.engines[1].submit(first)  # type: ignore[arg-type]
        job.connections[0].close()
        job.engines[1].submit(second)  # type: ignore[arg-type]
        assert "worker 0 has gone" in str(first.result())
        assert "worker 0 has gone" in str(second.result())
