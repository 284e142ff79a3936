"""Cuts of the network between the machines of a job: short ones are survived, long ones end all tasks with who is lost.

A proxy stands for the network between a worker and the first task. While it is cut nothing goes through it, and what
was connected is reset, as by a firewall that forgets.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from lockstep._engine.runtime import addresses as addressing
from tests.engine.runtime.jobs import Job, Task, addresses, eventually
from tests.support.exhaustive import always

# As if each process were on a machine of its own; the way of all but the first task leads through the proxy.
_APART = """
    import os, socket
    from lockstep._engine.runtime import unix_sockets
    unix_sockets._boot = lambda: os.environ["TF_CONFIG"].encode()
    theirs, proxy = socket.socket.connect, ("127.0.0.1", int(os.environ["PROXY"]))
    def connect(self, address):
        is_chief = isinstance(address, tuple) and address[1] == int(os.environ["CHIEF"])
        return theirs(self, proxy if is_chief else address)
    socket.socket.connect = connect
"""
# Waits in a program of its own, between two trainings, and in one that all agree on with each batch.
_TRAIN = (
    _APART
    + """
    import sys, time
    import numpy as np
    import lockstep as ls
    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    import keras
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x, y = np.ones((8, 4)), np.ones((8, 1))
    go_on = []
    def batches():
        while True:
            yield x, y
    class UntilTold(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                print("training", flush=True)
            time.sleep(0.01)
    model.fit(x, y, batch_size=8, verbose=0)
    print("between", flush=True)
    told = sys.stdin.readline()
    if told == "train\\n":
        model.fit(batches(), epochs=1, steps_per_epoch=int(os.environ["STEPS"]), verbose=0, callbacks=[UntilTold()])
    if told != "end\\n":
        model.fit(x, y, batch_size=8, verbose=0)
    print("trained", flush=True)
"""
)
LIMIT = 6.0
_LOST = "worker 0, which all others report to, has been out of reach"


class Network:
    """A proxy before an address; a thread passes bytes on until it is cut."""

    def __init__(self, target: str) -> None:
        self._target = addressing.split(target)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._others: dict[socket.socket, socket.socket] = {}
        self._is_cut = threading.Event()
        self._has_cut = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_used(self) -> bool:
        """Whether something is connected through it."""
        return bool(self._others)

    @property
    def connections(self) -> int:
        """How many are connected through it."""
        return len(self._others) // 2

    def cut(self) -> None:
        """Nothing goes through from now on; connections that are tried are neither accepted nor refused."""
        self._is_cut.set()
        assert self._has_cut.wait(10)

    def heal(self) -> None:
        """Lets through what comes from now on."""
        self._has_cut.clear()
        self._is_cut.clear()

    def close(self) -> None:
        """Ends it."""
        self._stop.set()
        self._thread.join(10)
        self._drop()
        self._server.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._is_cut.is_set():
                self._drop()
                self._has_cut.set()
                time.sleep(0.01)
                continue
            for key, _ in self._selector.select(0.02):
                with contextlib.suppress(OSError):
                    self._serve(key.fileobj)  # type: ignore[arg-type]

    def _serve(self, sock: socket.socket) -> None:
        if sock is self._server:
            near, _ = sock.accept()
            try:
                far = socket.create_connection(self._target)
            except OSError:  # The first task has not started, or has ended.
                near.close()
                return
            self._others |= {near: far, far: near}
            for s in (near, far):
                self._selector.register(s, selectors.EVENT_READ)
        elif sock in self._others:
            data = sock.recv(65536)
            self._others[sock].sendall(data) if data else self._end(sock)

    def _end(self, sock: socket.socket) -> None:
        for s in (sock, self._others[sock]):
            self._selector.unregister(s)
            self._others.pop(s)
            s.close()

    def _drop(self) -> None:
        for s in list(self._others):
            if s in self._others:
                for one in (s, self._others[s]):  # No end, but a reset: nobody can take it for the end of a process.
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self._end(s)


class Machines:
    """Two tasks, as on two machines, and the network between them."""

    def __init__(self, job: Job, steps: int = 300, **env: str) -> None:
        workers = addresses(2)
        self.network = Network(workers[0])
        chief_port = str(addressing.split(workers[0])[1])
        settings = {"LOCKSTEP_SILENCE_TIMEOUT": f"{LIMIT:g}", "STEPS": str(steps), "CHIEF": chief_port, **env}
        self.tasks = [
            job.start(_TRAIN, workers, 0, **settings, PROXY=chief_port),
            job.start(_TRAIN, workers, 1, **settings, PROXY=str(self.network.port)),
        ]

    def await_line(self, line: str) -> None:
        for task in self.tasks:
            task.await_line(line)

    def tell(self, line: str) -> None:
        for task in self.tasks:
            task.tell(line)


@pytest.fixture
def machines(request: pytest.FixtureRequest, job: Job) -> Iterator[Machines]:
    """With the environment that the test gives as a parameter."""
    machines = Machines(job, **getattr(request, "param", {}))
    yield machines
    machines.network.close()


_SECRET = {"LOCKSTEP_CLUSTER_SECRET": "of this test, and long enough to be one"}
_WITHOUT_AND_WITH, _IDS = [{}, _SECRET], ["no secret", "secret"]


def assert_ended(task: Task, *told: str) -> None:
    """A task has ended with the library's own error, and not by an abort of jax."""
    assert task.wait(4 * LIMIT) == 1, task.err
    for text in told:
        assert text in task.err, task.err
    for text in ("Check failure", "coordination_service", "terminate called", "JAX distributed service"):
        assert text not in task.err, task.err


@pytest.mark.parametrize("machines", _WITHOUT_AND_WITH, indirect=True, ids=_IDS)
def test_cuts_shorter_than_the_limit_are_survived(machines: Machines) -> None:
    """One in training, and one between two trainings; together they last longer than the limit."""
    machines.await_line("between")
    assert machines.network.connections == 2, "the one that lives as long as both processes, and jax's"
    machines.network.cut()
    time.sleep(0.75 * LIMIT)
    machines.network.heal()
    machines.tell("train")
    machines.await_line("training")
    machines.network.cut()
    time.sleep(0.75 * LIMIT)
    machines.network.heal()
    assert [task.wait() for task in machines.tasks] == [0, 0], machines.tasks[0].err + machines.tasks[1].err
    assert [task.err for task in machines.tasks] == ["", ""]


@pytest.mark.parametrize("machines", always(_WITHOUT_AND_WITH, _SECRET.__eq__), indirect=True, ids=_IDS)
def test_a_longer_cut_ends_all_and_names_who_is_lost_for_how_long(machines: Machines) -> None:
    machines.await_line("between")
    machines.tell("train")
    machines.await_line("training")
    machines.network.cut()
    chief, other = machines.tasks
    assert_ended(other, f"{_LOST} for 1", "LOCKSTEP_SILENCE_TIMEOUT")
    assert_ended(chief, "worker 1 does not: its process is stopped, or its machine is unreachable.", "s ago")


@pytest.mark.parametrize("machines", [{"steps": 100_000}], indirect=True)
def test_a_longer_cut_between_trainings_ends_all_too(machines: Machines) -> None:
    """At once the task that has lost the first one; that one when it needs the others."""
    machines.await_line("between")
    machines.network.cut()
    chief, other = machines.tasks
    assert_ended(other, "the program, outside of any call", _LOST)
    chief.tell("train")
    assert_ended(chief, "worker 1 does not: its process is stopped, or its machine is unreachable.")


def test_a_first_task_that_is_killed_is_named_within_seconds(machines: Machines) -> None:
    """Its machine refuses connections; that is no cut."""
    machines.await_line("between")
    began = time.monotonic()
    machines.tasks[0].kill()
    machines.network.close()
    assert_ended(machines.tasks[1], _LOST, "its process has ended")
    assert time.monotonic() - began < LIMIT + 4.0


@pytest.mark.parametrize("machines", [{"LOCKSTEP_SILENCE_TIMEOUT": "3"}], indirect=True)
def test_a_task_that_was_killed_is_missed_at_the_end(machines: Machines) -> None:
    """Whoever has finished does not wait for it as long as for one that works."""
    machines.await_line("between")
    machines.network.cut()
    eventually(lambda: not machines.network.is_used, lambda: "cut")
    machines.tasks[1].kill()
    machines.tasks[0].tell("end")
    assert_ended(machines.tasks[0], "worker 0 had ended its program when this happened", "worker 1 does not")
