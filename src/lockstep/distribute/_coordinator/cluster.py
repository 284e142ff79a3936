"""The cluster of a coordinator: who it is, where workers and servers listen, and what the strategy asks for."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lockstep._engine.runtime import authentication
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.servers.closures.dispatch import Ask
from lockstep._engine.servers.closures.placement import Partition
from lockstep._engine.servers.connection import Caller
from lockstep._engine.servers.job import Job
from lockstep._engine.servers.job_cluster import agreed_of
from lockstep._engine.servers.message_channel import MessageChannel
from lockstep._engine.servers.messages import Message
from lockstep.cluster_resolver import ClusterSpec
from lockstep.errors import ArgumentError, UnsupportedError


@dataclass(frozen=True)
class CoordinatedCluster:
    """Holds what a coordinator needs of its strategy.

    Attributes:
        spec: The cluster.
        job: This process' part in a job with a chief; `None` for a coordinator outside of the cluster.
        caller: This process, as workers see it.
        workers: Names and addresses of the workers.
        limits: The limits of all waits.
        staleness: How many earlier functions may be unfinished when one begins; `None` for any number.
        partition: Into how many ranges of rows a variable is divided.
    """

    spec: ClusterSpec
    job: Job | None
    caller: Caller
    workers: Mapping[str, str]
    limits: Limits
    staleness: int | None
    partition: Partition

    @classmethod
    def of(cls, strategy: Any) -> CoordinatedCluster:
        """Returns the cluster of a strategy.

        Raises:
            ArgumentError: If it is another strategy, or its cluster has no servers or no workers.
            UnsupportedError: If it has an option that functions cannot follow.
        """
        # By what it has: its own module imports this one.
        if not hasattr(strategy, "_asked"):
            raise ArgumentError(
                "ClusterCoordinator takes a ParameterServerStrategy. Received: "
                f"{type(strategy).__name__}. Other strategies run functions by strategy.run."
            )
        asked, servers = strategy._asked, strategy._servers  # pyright: ignore[reportPrivateUsage]
        _check_options(asked)
        resolver = strategy.cluster_resolver
        spec = ClusterSpec({}) if resolver is None else resolver.cluster_spec()
        job = None if servers is None else servers.job
        name = "the coordinator" if job is None else str(job.task)
        jobs = spec.jobs if spec else []
        workers = (
            {f"worker {i}": spec.task_address("worker", i) for i in spec.task_indices("worker")}
            if "worker" in jobs
            else {}
        )
        if job is None or job.is_chief:
            workers.pop(name, None)
        if "ps" not in jobs or not workers:
            raise ArgumentError(
                "ClusterCoordinator needs a cluster with at least one `ps` task, and one `worker` task besides the "
                f"coordinator, which computes nothing itself. Received: jobs {jobs}. Add them to TF_CONFIG, or start "
                "the program with `lockstep run --chief --workers 2 --ps 1`."
            )
        agreed = agreed_of(spec)
        own = agreed["chief"] if job is not None and job.is_chief else ""
        caller = Caller(name, own, secrets.token_hex(8), agreed, authentication.secret_from_environment())
        partitioner = asked.partitioner

        def partition(shape: tuple[int, ...], dtype: str) -> int | None:
            from lockstep._engine.servers.layout import dtype_of

            return None if partitioner is None else int(partitioner(shape, dtype_of(dtype))[0])

        return cls(spec, job, caller, workers, Limits.from_environment(), asked.staleness, partition)

    def servers(self) -> Sequence[Ask]:
        """Returns the ways to the servers."""
        numbers = self.spec.task_indices("ps")
        if self.job is not None:
            return [partial(self.job.ask_server, n) for n in range(len(numbers))]
        return server_channels(self.spec, self.caller, self.limits)


def server_channels(spec: ClusterSpec, caller: Caller, limits: Limits) -> list[Ask]:
    """Returns ways to the servers of a cluster whose chief this process does not know."""
    found: list[Ask] = []
    for index in spec.task_indices("ps"):
        channel = MessageChannel(caller, f"ps {index}", spec.task_address("ps", index), limits)

        def ask(message: Message, channel: MessageChannel = channel) -> Message:
            return channel.ask(message, limits.silence)

        found.append(ask)
    return found


def _check_options(asked: Any) -> None:
    """Raises `UnsupportedError` for options that are about gradients."""
    given = {"mode='sync'": asked.mode == "sync", "lazy": asked.lazy, "log_order": asked.log_order}
    for name, is_given in given.items():
        if is_given:
            raise UnsupportedError(
                "ClusterCoordinator applies the effects of a function as they come. Received: a strategy with "
                f"{name}, which Model.fit has. Leave it out, or train with Model.fit."
            )
