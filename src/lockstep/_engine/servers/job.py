"""A job with parameter servers, from one of its tasks: the way in for strategies and Estimators."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any

from lockstep._engine.runtime import authentication, core_binding, environment, failure, local_devices, progress
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.rendezvous import Roster
from lockstep._engine.servers.call import Call
from lockstep._engine.servers.chief_call import ChiefCall
from lockstep._engine.servers.connection import Caller, Listener
from lockstep._engine.servers.coordinator import Coordinator
from lockstep._engine.servers.coordinator_service import CoordinatorService, LocalChannel
from lockstep._engine.servers.job_cluster import agreed_of, chief_of, place_beside, tasks_beside
from lockstep._engine.servers.message_channel import MessageChannel
from lockstep._engine.servers.messages import Message, Superseded
from lockstep._engine.servers.place import Channel, Place
from lockstep._engine.servers.reachability import Reachability
from lockstep._engine.servers.server import LocalServerLink, ServerService, SocketServerLink
from lockstep._engine.servers.server_group import ServerGroup
from lockstep.cluster_resolver import ClusterSpec, Task
from lockstep.errors import ArgumentError, LockstepError, MissingTaskError, PeerError

_log = logging.getLogger("lockstep")
_BEAT_SECONDS = 1.0
_POLL_SECONDS = 1.0
# The chief's own threads outlive a program that fails for so long, for tasks that still learn of it.
_GOODBYE_SECONDS = 5.0
_RESTARTS_LEFT = "LOCKSTEP_RESTARTS_LEFT"


class Job:
    """Part of this process in a job with parameter servers.

    Attributes:
        task: The task that this process is.
        num_servers: The number of servers.
    """

    def __init__(
        self,
        task: Task,
        chief: Task,
        servers: Mapping[str, str],
        channel: Channel,
        group: ServerGroup,
        coordinator: Coordinator | None,
        limits: Limits,
        service: ServerService | None = None,
    ) -> None:
        self.task = task
        self.num_servers = len(servers)
        self._chief, self._servers = chief, dict(servers)
        self._channel, self._group, self._coordinator, self._limits = channel, group, coordinator, limits
        self._service = service
        self._calls = 0
        self._call: Call | None = None
        self._is_closed = False
        self._closers: list[Any] = []
        self._place = Place(str(task), str(chief), channel, group, limits, self._check)

    @property
    def is_chief(self) -> bool:
        """Returns whether this process is the chief: it calls callbacks, prints and saves, and computes, too."""
        return self._coordinator is not None

    @property
    def is_server(self) -> bool:
        """Returns whether this process is a server."""
        return self.task.type == "ps"

    def serves(self) -> None:
        """Tells the chief that this worker has no program, and computes functions of its `ClusterCoordinator`."""
        self._channel.ask(Message("serves"))

    def workers(self, seconds: float) -> tuple[list[str], list[str]]:
        """Waits up to `seconds` for a worker; returns those that are there, without and with a program.

        It is the chief that asks.
        """
        assert self._coordinator is not None, "only the chief does this"
        return self._coordinator.members.workers(seconds)

    def ask_server(self, server: int, message: Message) -> Message:
        """Returns a server's answer to a message, sent again for as long as a server may be silent.

        Raises:
            MissingTaskError: If it cannot be reached.
        """
        return self._group.links[server].ask(message, self._limits.silence)

    @classmethod
    def connect(cls, cluster: ClusterSpec, task: Task, limits: Limits | None = None) -> Job:
        """Makes this process part of the job; other tasks may come later.

        Args:
            cluster: The cluster, with at least one "ps" task.
            task: The task that this process is. A worker's index may lie beyond the cluster's.
            limits: The limits of all waits; by default those of the environment.

        Raises:
            AddressError: If the chief or a server cannot listen on its address.
            ArgumentError: If the cluster has no servers, or a setting is wrong.
        """
        limits = limits or Limits.from_environment()
        if "ps" not in cluster.jobs:
            raise ArgumentError('A job with parameter servers has a job "ps" in its cluster. Add its addresses.')
        chief = chief_of(cluster)
        servers = {f"ps {i}": cluster.task_address("ps", i) for i in cluster.task_indices("ps")}
        chief_address = cluster.task_address(chief.type, chief.index)
        secret = authentication.secret_from_environment()
        agreed = agreed_of(cluster)
        local_devices.share_machine(tasks_beside(cluster, task))
        local_devices.compute_where_called()
        core_binding.bind_to_part(*place_beside(cluster, task))
        incarnation = secrets.token_hex(8)
        own = servers.get(str(task), chief_address if task == chief else "")
        caller = Caller(str(task), own, incarnation, agreed, secret)
        places = enumerate(servers.items())
        links = [SocketServerLink(caller, name, address, i, limits) for i, (name, address) in places]
        coordinator = service = None
        if task == chief:
            coordinator = Coordinator(str(chief), servers, limits)
        elif task.type == "ps":
            service = ServerService(list(servers).index(str(task)), limits=limits)
        channel: Channel = (
            LocalChannel(coordinator, str(task))
            if coordinator
            else MessageChannel(caller, str(chief), chief_address, limits)
        )
        reachability = Reachability(str(task), channel, coordinator, servers, limits)
        group = ServerGroup(links, reachability.check)
        job = cls(task, chief, servers, channel, group, coordinator, limits, service)
        # The names first: whoever listens is named first in errors.
        others = [(str(chief), chief_address), *servers.items()]
        names = [(n, a) for n, a in others if n != str(task)]
        roster = Roster((str(task), *(n for n, _ in names)), (own, *(a for _, a in names)), environment.attempt())
        if coordinator is not None:
            listening = Listener(roster, agreed, CoordinatorService(coordinator), secret, limits.join)
            job._closers.append(listening.close)
        elif service is not None:
            listening = Listener(roster, agreed, service, secret, limits.join)
            job._closers.append(listening.close)
        job._start()
        return job

    @classmethod
    def in_process(cls, workers: int, servers: int, limits: Limits | None = None) -> list[Job]:
        """Returns the jobs of threads of this process, the chief's (worker 0) first: for tests without sockets."""
        limits = limits or Limits()
        names = {f"ps {i}": "this process" for i in range(servers)}
        services = [ServerService(i, limits=limits) for i in range(servers)]
        chief = Task("worker", 0)
        coordinator = Coordinator(str(chief), names, limits)
        for name in names:
            coordinator.members.connect(name, "in process", _nothing)
        jobs: list[Job] = []
        for index in range(workers):
            task = Task("worker", index)
            channel = LocalChannel(coordinator, str(task))
            own = coordinator if index == 0 else None
            links = [LocalServerLink(service, name) for name, service in zip(names, services, strict=True)]
            reachability = Reachability(str(task), channel, own, names, limits)
            group = ServerGroup(links, reachability.check)
            jobs.append(cls(task, chief, names, channel, group, own, limits))
            if index:
                coordinator.members.connect(str(task), "in process", _nothing)
        return jobs

    def begin(self, kind: str, facts: Any = None) -> Call:
        """Begins the next call of the sequence that all tasks make: on the chief a `ChiefCall`.

        Args:
            kind: The method, such as "fit".
            facts: What must be equal on all tasks, such as arguments; JSON.

        Raises:
            MismatchError: If the chief's call is another one.
            MissingTaskError: If the chief has not begun it within `LOCKSTEP_PEER_TIMEOUT`, or cannot be reached.
        """
        number, coordinator = self._calls, self._coordinator
        call = (
            Call(self._place, number, kind, facts)
            if coordinator is None
            else ChiefCall(self._place, number, kind, facts, coordinator)
        )
        call.begin()
        self._calls += 1
        self._call = call
        return call

    def serve_until_end(self) -> None:
        """Serves, on a server, until the chief's program and the workers' have ended; returns at once elsewhere.

        Raises:
            MissingTaskError: If the chief has gone and does not come back within `LOCKSTEP_JOIN_TIMEOUT`.
        """
        if self.is_server:
            self.wait_until_ended()

    def wait_until_ended(self) -> None:
        """Waits, on a task that is not the chief, until the chief's program has ended; a server, until workers' have.

        Raises:
            MissingTaskError: If the chief has gone and does not come back within `LOCKSTEP_JOIN_TIMEOUT`.
        """
        while not self._is_closed:
            answer = self._channel.ask(Message("state", {}))
            self._check()
            if answer.facts.get("ended"):
                return
            time.sleep(_POLL_SECONDS / 4)

    def close(self, error: BaseException | None = None) -> None:
        """Leaves the job: the chief ends it for all, a server serves until then, a worker is not missed.

        Args:
            error: What has ended this task's program; the chief learns it.
        """
        if self._is_closed:
            return
        if error is not None:
            self._report(error)
        elif self.is_server and not failure.has_failed():
            with contextlib.suppress(LockstepError):
                self.serve_until_end()
        self._is_closed = True
        if self._coordinator is not None:
            if error is None and not failure.has_failed():
                self._coordinator.end_job()
                # One that has joined lately may build its model still, and asks only then. Another may compute a batch
                # that others have computed meanwhile, and pushes it: servers end after the workers.
                self._coordinator.members.wait_until_workers_left(self._limits.leave)
                self._coordinator.release_servers()
                self._coordinator.members.wait_until_left(self._limits.leave)
        elif self._call is not None and error is None:
            with contextlib.suppress(LockstepError, Superseded):
                self._call.flush()
        for close in self._closers:
            close()
        for link in self._group.links:
            link.close()
        if isinstance(self._channel, MessageChannel):
            self._channel.close()

    def _start(self) -> None:
        """Starts what runs for as long as the process: signs of life, and the report of how it ends."""
        threading.Thread(target=self._beat, name="lockstep-heartbeat", daemon=True).start()
        failure.report_to_launcher()
        failure.on_failure(self._report)
        atexit.register(self.close)
        if isinstance(self._channel, MessageChannel):
            # Connected at once: the chief counts on a server from then on, and sees when it goes.
            self._channel.ask(Message("state", {}))
        # The launcher ends a task that comes when the job is over: it has never joined.
        progress.mark("joined")
        progress.write_progress(progress.Progress(), at_once=True)

    def _beat(self) -> None:
        while not self._is_closed:
            time.sleep(_BEAT_SECONDS)
            if self._coordinator is not None:
                self._look_for_silence(self._coordinator)
                continue
            assert isinstance(self._channel, MessageChannel)
            self._channel.beat()
            call = self._call
            if call is not None and not call.is_over:
                with contextlib.suppress(LockstepError, Superseded):
                    call.flush()

    def _look_for_silence(self, coordinator: Coordinator) -> None:
        for name in coordinator.members.look_for_silence():
            text = (
                f"Every task must send a heartbeat at least every {self._limits.silence:g} s "
                f"(LOCKSTEP_SILENCE_TIMEOUT). {name} does not: its process is stopped, or its machine is unreachable."
            )
            # A server is waited for as one that has ended: the launcher kills what is stopped, and starts it again.
            _log.warning("%s", text)
            coordinator.members.disconnect(name)

    def _check(self) -> None:
        """Raises the error that has ended this server's service."""
        if self._service is not None and self._service.failure is not None:
            raise self._service.failure

    def _report(self, error: BaseException) -> None:
        """Tells the chief why this task ends; on the chief, all others."""
        record = {
            "type": type(error).__name__,
            "message": str(error)[:4000],
            "traceback": "".join(traceback.format_exception(error))[-16000:],
            # One that is started again is missed by nobody.
            "final": not _restarts_left(),
        }
        if self._coordinator is not None:
            if not _restarts_left():
                kind = error if isinstance(error, LockstepError) else None
                text = f"{self.task} failed first. {type(error).__name__}: {error}"
                self._coordinator.fail(kind or PeerError(text))
                self._coordinator.members.wait_until_left(_GOODBYE_SECONDS)
            return
        if isinstance(error, (PeerError, MissingTaskError)) and failure.attached_cause(error) is None:
            return  # A consequence: the chief knows the cause, or cannot be reached.
        with contextlib.suppress(Exception):
            self._channel.ask(Message("failed", record), _GOODBYE_SECONDS)


def _restarts_left() -> bool:
    """Returns whether the launcher starts this task again after a failure."""
    try:
        return int(os.environ.get(_RESTARTS_LEFT, "0")) > 0
    except ValueError:
        return False


def _nothing() -> None:
    """Closes nothing: a thread has no connection."""
