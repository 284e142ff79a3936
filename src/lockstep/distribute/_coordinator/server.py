"""`Server`: a task of type `worker` or `ps` that does what a coordinator's program asks for."""

from __future__ import annotations

import secrets
import threading
import time
from functools import partial
from typing import Any

from lockstep._engine.runtime import authentication, environment
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.rendezvous import Roster
from lockstep._engine.servers.closures.worker import WorkerService
from lockstep._engine.servers.connection import Caller, FrameSocket, Listener, Service
from lockstep._engine.servers.job import Job
from lockstep._engine.servers.job_cluster import agreed_of
from lockstep._engine.servers.server import ServerService
from lockstep.cluster_resolver import ClusterSpec, Task
from lockstep.distribute._coordinator.cluster import CoordinatedCluster, server_channels
from lockstep.errors import ArgumentError, MissingTaskError

_POLL_SECONDS = 0.25
_CHIEFS = ("chief", "master")


class Server:
    """A task of a cluster that computes functions (`worker`) or holds variables (`ps`) for a `ClusterCoordinator`.

    With a job `chief` in the cluster, the task belongs to the chief's job, and `join` returns when the chief's program
    has ended. Without one, a coordinator from outside of the cluster connects to it.

    Args:
        server_or_cluster_def: A `ClusterSpec`, or what one is made from.
        job_name: "worker" or "ps".
        task_index: The index of this task in its job. Default: 0.
        protocol: "grpc" or `None`: tasks of lockstep speak their own protocol, whatever it is called.
        config: A `tf.compat.v1.ConfigProto`; it says nothing that this task does not do by itself.
        start: Whether to start at once.

    Raises:
        ArgumentError: If an argument is wrong.
        ClusterSpecError: If the cluster breaks a rule, or has no such task.
        AddressError: If the address cannot be bound.

    Source: tf.distribute.Server.
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: object = None,
        start: bool = True,
    ) -> None:
        if protocol not in (None, "", "grpc"):
            raise ArgumentError(f'protocol is "grpc" or None. Received: {protocol!r}. Leave it out.')
        # A ConfigProto has refused by itself what it cannot do.
        if config is not None and type(config).__name__ != "ConfigProto":
            raise ArgumentError(
                f"config is a tf.compat.v1.ConfigProto. Received: {type(config).__name__}. Leave it out."
            )
        spec = ClusterSpec(server_or_cluster_def)
        if job_name not in ("worker", "ps"):
            raise ArgumentError(
                f'job_name is "worker" or "ps". Received: {job_name!r}. The coordinator, task chief, makes a '
                "ParameterServerStrategy and a ClusterCoordinator instead; an evaluator needs neither."
            )
        index = 0 if task_index is None else task_index
        address = spec.task_address(job_name, index)
        if "ps" not in spec.jobs:
            raise ArgumentError(
                f'A cluster with servers has a job "ps". Received: jobs {spec.jobs}. Add its addresses.'
            )
        self._spec, self._task = spec, Task(job_name, index)
        self._target = f"grpc://{address}"
        self._served: Served | None = None
        if start:
            self.start()

    @property
    def target(self) -> str:
        """The address of this task. Source: tf.distribute.Server.target."""
        return self._target

    def start(self) -> None:
        """Starts the task; does nothing if it was. Source: tf.distribute.Server.start."""
        if self._served is None:
            has_chief = any(job in self._spec.jobs for job in _CHIEFS)
            job = Job.connect(self._spec, self._task) if has_chief else None
            self._served = Served(self._spec, self._task, job)

    def join(self) -> None:
        """Serves until the coordinator's program has ended.

        Raises:
            MissingTaskError: If no coordinator has connected, or it has gone and not come back, within
                `LOCKSTEP_JOIN_TIMEOUT`.

        Source: tf.distribute.Server.join.
        """
        self.start()
        assert self._served is not None
        self._served.join()


class Served:
    """A task that serves a coordinator.

    Args:
        spec: The cluster.
        task: The task.
        job: Its part in the chief's job, by which a server listens already; `None` without a chief.
    """

    def __init__(self, spec: ClusterSpec, task: Task, job: Job | None) -> None:
        self._task, self._job = task, job
        self._limits = Limits.from_environment()
        self._connections = _Connections()
        self._ended = threading.Event()
        self._failure: Any = lambda: None
        if task.type == "ps" and job is not None:
            return
        address = spec.task_address(task.type, task.index)
        agreed, secret = agreed_of(spec), authentication.secret_from_environment()
        if task.type == "ps":
            server = ServerService(spec.task_indices("ps").index(task.index), limits=self._limits)
            self._ended, self._failure = server.store.ended, lambda: server.failure
            self._connections.service = server
        else:
            caller = Caller(str(task), "", secrets.token_hex(8), agreed, secret)
            numbers = range(len(spec.task_indices("ps")))
            asks = (
                server_channels(spec, caller, self._limits)
                if job is None
                else [partial(job.ask_server, n) for n in numbers]
            )
            worker = WorkerService(asks)
            self._ended = worker.ended
            if job is not None:
                job.serves()
            self._connections.service = worker
        others = [t for t in spec.tasks if t != task]
        names = (str(task), *map(str, others))
        addresses = (address, *(spec.task_address(t.type, t.index) for t in others))
        roster = Roster(names, addresses, environment.attempt())
        self._listener = Listener(roster, agreed, self._connections, secret, self._limits.join)

    def join(self) -> None:
        """Serves until the coordinator's program has ended; see `Server.join`."""
        if self._job is not None:
            self._join_job(self._job)
        else:
            self._join_alone()

    def _join_job(self, job: Job) -> None:
        # The coordinator of a program that fails does not say so to workers; the job does.
        job.wait_until_ended()
        job.close()

    def _join_alone(self) -> None:
        alone_since = time.monotonic()
        while not self._ended.wait(_POLL_SECONDS):
            if (error := self._failure()) is not None:
                raise error
            if self._connections.count:
                alone_since = time.monotonic()
            elif time.monotonic() - alone_since > self._limits.join:
                raise MissingTaskError(
                    f"A coordinator must connect within {self._limits.join:g} s (LOCKSTEP_JOIN_TIMEOUT). None is there "
                    f"for {self._task}. Start the program that makes a ClusterCoordinator: task chief, or a process "
                    "with the same cluster."
                )


def serve_if_served(cluster: CoordinatedCluster) -> None:
    """Serves on a task that is no coordinator, until the coordinator's program ends, and ends this one then.

    Raises:
        SystemExit: On a task of type `worker` or `ps`, when the coordinator's program has ended.
    """
    job = cluster.job
    if job is None or job.is_chief:
        return
    Served(cluster.spec, job.task, job).join()
    raise SystemExit(0)


class _Connections:
    """A service that counts who is connected."""

    def __init__(self) -> None:
        self.service: Service | None = None
        self.count = 0
        self._lock = threading.Lock()

    def arrive(self, task: str, incarnation: str) -> str | None:
        """Returns why a task cannot take part now, or `None`."""
        assert self.service is not None
        return self.service.arrive(task, incarnation)

    def serve(self, task: str, incarnation: str, frames: FrameSocket) -> None:
        """Serves a connection until it ends."""
        assert self.service is not None
        with self._lock:
            self.count += 1
        try:
            self.service.serve(task, incarnation, frames)
        finally:
            with self._lock:
                self.count -= 1
