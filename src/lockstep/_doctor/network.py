"""Checks of the cluster from this machine: descriptions, names, addresses, and ports."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lockstep._doctor.finding import Finding, error, note, ok, warning
from lockstep._engine.runtime import addresses
from lockstep._engine.runtime.addresses import Endpoint
from lockstep.cluster_resolver import (
    ClusterResolver,
    ClusterSpec,
    MPIClusterResolver,
    SlurmClusterResolver,
    Task,
    TFConfigClusterResolver,
    TorchrunClusterResolver,
)
from lockstep.cluster_resolver.internal import chief_task, known_address, launcher_resolver
from lockstep.errors import ClusterSpecError

# Of one name or one connection; all are tried at once.
_SECONDS = 5.0
# What systemd-timesyncd, chrony and ntpd leave while they run, or have synchronised.
_TIME_SERVERS = ("systemd/timesync/synchronized", "chrony", "ntpd.pid")
# Of a large cluster only so many addresses are tried: the first task's is the one that counts.
_MAX_PEERS = 32
_SLOW_LOOKUP = 1.0
# How each launcher is known, and its resolver; Slurm's does not narrow CUDA_VISIBLE_DEVICES here.
_RESOLVERS: dict[str, tuple[str, Callable[[], ClusterResolver]]] = {
    "TF_CONFIG": ("TF_CONFIG", TFConfigClusterResolver),
    "torchrun": ("WORLD_SIZE", TorchrunClusterResolver),
    "Open MPI": ("OMPI_COMM_WORLD_SIZE", MPIClusterResolver),
    "Slurm": ("SLURM_PROCID", lambda: SlurmClusterResolver(gpus_per_node=0, auto_set_gpu=False)),
}


@dataclass(frozen=True)
class Description:
    """The cluster as this process would use it: empty for a process that trains alone."""

    cluster: ClusterSpec
    task: Task | None

    @property
    def has_other_machines(self) -> bool:
        """Returns whether a task has an address beyond the loopback interface."""
        known = [known_address(self.cluster, task) for task in self.cluster.tasks]
        return any(each is None or not addresses.is_local(addresses.split(each)[0]) for each in known)


def describe() -> tuple[Description, list[Finding]]:
    """Returns the cluster that a program would join, and what each resolver sees."""
    # Of all, not only of the one that is used: a job that was started in another way than meant shows so.
    findings = [each for name in _RESOLVERS for each in _resolver(name)]
    try:
        resolver = launcher_resolver(for_training=False) or TFConfigClusterResolver()
        cluster, task = resolver.cluster_spec(), resolver.task
    except ClusterSpecError as problem:
        advice = "Correct the description; docs/clusters.md has an example of each."
        return Description(ClusterSpec({}), None), [*findings, error("cluster", str(problem), advice)]
    if not cluster:
        text = "No cluster is described: a program trains on this process alone"
        return Description(cluster, task), [*findings, ok("cluster", text, tasks=0)]
    counts = ", ".join(f"{len(cluster.task_indices(job))} {job}" for job in cluster.jobs)
    text = f"{type(resolver).__name__} is used: {counts}; this process is {task}"
    return Description(cluster, task), [*findings, ok("cluster", text, cluster=cluster.as_dict(), task=str(task))]


def _resolver(name: str) -> Iterator[Finding]:
    variable, make = _RESOLVERS[name]
    if not os.environ.get(variable, "").strip():
        return
    try:
        resolver = make()
        cluster, task = resolver.cluster_spec(), resolver.task
    except ClusterSpecError as problem:
        # TF_CONFIG is all that counts where it is set; of a launcher's variables some may be for other programs.
        if name == "TF_CONFIG":
            yield error("cluster", str(problem), "Correct TF_CONFIG; TF_CONFIG='{}' is a process that trains alone.")
        else:
            yield note("cluster", f"{name}'s variables describe no cluster: {problem}", "TF_CONFIG takes precedence.")
        return
    seen = ", ".join(f"{job} x {len(cluster.task_indices(job))}" for job in cluster.jobs) or "a process alone"
    source = name if name == variable else f"{name} ({variable})"
    yield ok("cluster", f"{source} says: {seen}{f'; this is {task}' if task else ''}", launcher=name)


def peers(description: Description) -> Iterator[Finding]:
    """Yields for each task whether its name resolves, to where, and whether its machine answers."""
    cluster, own = description.cluster, description.task
    if not cluster:
        return
    tasks = [task for task in cluster.tasks if known_address(cluster, task) is not None]
    if len(tasks) > _MAX_PEERS:
        chief = chief_task(cluster)
        tasks = [task for i, task in enumerate(tasks) if i < _MAX_PEERS or task in (own, chief)]
        yield note("peers", f"{len(tasks)} of {len(cluster.tasks)} tasks are tried")
    # Every wait has a limit, but a lookup has none of its own: its thread is left behind, and ends with this process.
    pool = ThreadPoolExecutor(len(tasks), thread_name_prefix="doctor")
    waits = [(task, pool.submit(_peer, description, task)) for task in tasks]
    deadline = time.monotonic() + 3 * _SECONDS
    for task, wait in waits:
        try:
            yield from wait.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            text = f"{task} ({known_address(cluster, task)}): its name is not answered for within {3 * _SECONDS:g} s"
            yield error("peers", text, "See /etc/resolv.conf: a name server does not answer.", task=str(task))
    pool.shutdown(wait=False, cancel_futures=True)


def _peer(description: Description, task: Task) -> list[Finding]:
    address = known_address(description.cluster, task)
    assert address is not None
    began = time.monotonic()
    try:
        endpoints = addresses.lookup(address)
    except OSError as problem:
        text = f"{task} ({address}): the name does not resolve: {problem.strerror or problem}"
        return [error("peers", text, "Correct it in the cluster's description, the DNS or /etc/hosts.", task=str(task))]
    taken = time.monotonic() - began
    findings = [_loopback(task, address, endpoints)] if _misleads(description, address, endpoints) else []
    if taken > _SLOW_LOOKUP:
        text = f"{task}: it took {taken:.1f} s to look {address} up"
        findings.append(warning("peers", text, "See /etc/resolv.conf: the first name server may not answer."))
    return [*findings, _own(task, address, endpoints) if task == description.task else _other(task, address, endpoints)]


def _misleads(description: Description, address: str, endpoints: Sequence[Endpoint]) -> bool:
    """Returns whether an address leads each machine to itself, though the cluster has several."""
    is_known_to_be_local = addresses.is_local(addresses.split(address)[0])
    loops = all(addresses.is_loopback(each.ip) for each in endpoints)
    return loops and (not is_known_to_be_local or description.has_other_machines)


def _loopback(task: Task, address: str, endpoints: Sequence[Endpoint]) -> Finding:
    ips = ", ".join(each.ip for each in endpoints)
    text = f"{task} ({address}) is {ips} here, on the loopback interface, where other machines do not reach it"
    return warning("peers", text, addresses.LOOPBACK_ADVICE, task=str(task))


def _own(task: Task, address: str, endpoints: Sequence[Endpoint]) -> Finding:
    """Returns whether this process could listen on its own address."""
    problems: list[str] = []
    for endpoint in endpoints:
        where = endpoint.where
        with socket.socket(endpoint.family, socket.SOCK_STREAM) as probe:
            try:
                # As the first task does: connections of an earlier run may still be in TIME_WAIT.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
                return ok("peers", f"{task} ({address}) is this process; its port is free", task=str(task))
            except OSError as problem:
                problems.append(f"{where[0]}: {problem.strerror}")
    text = f"{task} ({address}) is this process, and it cannot listen there ({'; '.join(problems)})"
    advice = "If the port is in use, stop what uses it (`ss -ltnp`); if the address is not this machine's, correct it."
    return error("peers", text, advice, task=str(task))


def _other(task: Task, address: str, endpoints: Sequence[Endpoint]) -> Finding:
    """Returns whether the machine of another task answers; that nothing listens there yet is what one expects."""
    problems: list[str] = []
    for endpoint in endpoints:
        where = endpoint.where
        with socket.socket(endpoint.family, socket.SOCK_STREAM) as probe:
            probe.settimeout(_SECONDS)
            began = time.monotonic()
            try:
                probe.connect(where)
                return ok("peers", f"{task} ({address}): something listens there", task=str(task), listens=True)
            # The machine itself says so, at once; a firewall that drops packets says nothing.
            except ConnectionRefusedError:
                taken = (time.monotonic() - began) * 1e3
                text = f"{task} ({address}): the machine answers in {taken:.1f} ms; nothing listens there yet"
                return ok("peers", text, task=str(task), listens=False, milliseconds=taken)
            except OSError as problem:
                problems.append(f"{where[0]}: {problem.strerror or problem}")
    text = f"{task} ({address}): its machine does not answer ({'; '.join(problems)})"
    advice = "Start the machine, or open the port: a firewall that drops packets looks like this."
    return error("peers", text, advice, task=str(task))


def ports(description: Description) -> Iterator[Finding]:
    """Yields which ports must be open between machines."""
    if not description.has_other_machines or not description.cluster:
        return
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except (OSError, ValueError):
        low, high = "32768", "60999"
    chief = chief_task(description.cluster)
    address = None if chief is None else known_address(description.cluster, chief)
    text = f"Ports that must be open between the machines: {chief}'s ({address}); {low} to {high} for Gloo and NCCL"
    advice = "A firewall that closes the latter lets tasks arrive, and then hang: `--cluster` finds out."
    yield note("ports", text, advice)


def clock() -> Iterator[Finding]:
    """Yields whether the kernel says that a time server keeps this machine's clock."""
    if any(Path("/run", name).exists() for name in _TIME_SERVERS):
        yield ok("clocks", "A time server keeps this machine's clock", synchronized=True)
    else:
        text = "No sign of chrony, ntpd or systemd-timesyncd: nothing may keep this machine's clock"
        advice = "Containers have their host's clock. lockstep compares no clocks; readers of logs do."
        yield note("clocks", text, advice, synchronized=False)
