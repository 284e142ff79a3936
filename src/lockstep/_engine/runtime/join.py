"""Joins this process to its cluster."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lockstep._engine.runtime import (
    addresses,
    authentication,
    core_binding,
    environment,
    failure,
    fingerprint,
    gloo,
    local_devices,
    local_training,
    randomness,
    service,
    shutdown,
    sigterm,
)
from lockstep._engine.runtime.control import Control
from lockstep._engine.runtime.heartbeat import HeartbeatMonitor
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.liveness import LivenessSockets
from lockstep._engine.runtime.rendezvous import RendezvousServer, Roster
from lockstep._engine.runtime.rendezvous_client import RendezvousClient
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.runtime.tunnel import Tunnel
from lockstep.cluster_resolver import ClusterSpec, Task
from lockstep.cluster_resolver.internal import known_address, training_tasks
from lockstep.errors import StartupOrderError

_log = logging.getLogger("lockstep")
# Of jax's service, which ends the process from C++ when it misses one. The limits are those of `heartbeat` alone: it
# names the task that is lost. A month is longer than any of them.
_HEARTBEAT_SECONDS = 30 * 24 * 3600

# gRPC reads them in lower case only, and the second only without the first.
_NO_GRPC_PROXY, _NO_PROXY = "no_grpc_proxy", "no_proxy"

_joined_at: str | None = None


def join(cluster: ClusterSpec, task: Task, peer_seconds: float | None = None) -> Runtime:
    """Joins the synchronous cluster as `task` and returns once every task has.

    Args:
        cluster: The cluster, of at least two training tasks.
        task: This process' place in it.
        peer_seconds: Takes precedence over `LOCKSTEP_PEER_TIMEOUT`.

    Raises:
        StartupOrderError: If the JAX backend has started, or this process has joined before.
        AddressError: If an address cannot be bound or resolved.
        MissingTaskError: If a task does not arrive within `LOCKSTEP_JOIN_TIMEOUT`.
        MismatchError: If tasks differ in cluster or versions.
        JoinError: If the first task does not receive this one: of another secret, of another attempt, or twice.
        ArgumentError: If a setting in the environment is wrong.
        UnsupportedError: If it asks for certificates, and the installed jax cannot use them.
    """
    global _joined_at
    where = local_training.user_line()
    check_startup(where)
    limits = Limits.from_environment()
    if peer_seconds is not None:
        limits = replace(limits, peer=peer_seconds)
    tasks = training_tasks(cluster)
    names = tuple(map(str, tasks))
    known = [known_address(cluster, t) for t in tasks]
    roster = Roster(names, tuple(address or "address unknown" for address in known), environment.attempt())
    process = tasks.index(task)
    hello = {"task": names[process], "cluster": cluster.as_dict(), "versions": fingerprint.installed_versions()}
    local_devices.prepare_thread_pool()
    number, count = addresses.place_on_host(known[process], known)
    local_devices.share_machine(count)
    core_binding.bind_to_part(number, count)
    _joined_at = where
    liveness = LivenessSockets()
    with contextlib.ExitStack() as arriving:
        listeners, tunnel = _arrive(roster, process, hello, limits, arriving, liveness)
        runtime = _start(names, process, limits, liveness, tunnel)
        _connect_devices(listeners)
    return runtime


def check_startup(where: str) -> None:
    """Raises `StartupOrderError` unless this process can still join a cluster."""
    from jax._src import xla_bridge

    if _joined_at is not None:
        raise StartupOrderError(
            f"A process joins its cluster once. The strategy created at {_joined_at} has joined; the one at {where} "
            "is a second one. Keep the first in a variable and use it wherever a strategy is needed."
        )
    if xla_bridge.backends_are_initialized():
        raise StartupOrderError(
            "Collective ops must be configured at program startup: a strategy of several workers must be created "
            f"before JAX computes anything. Move {where} up, above every line that makes a tensor, a model or a "
            "random number with keras or jax, or that asks for devices."
        )


def _arrive(
    roster: Roster,
    process: int,
    hello: Mapping[str, Any],
    limits: Limits,
    arriving: contextlib.ExitStack,
    liveness: LivenessSockets,
) -> tuple[gloo.Listeners, Tunnel | None]:
    """Runs the rendezvous, and starts jax.distributed; `arriving` closes what is needed until all are connected."""
    import jax

    _log.info("%s joins %s", roster.names[process], roster.describe(list(range(len(roster.names)))))
    secret = authentication.secret_from_environment()
    certificates = authentication.mtls_arguments(jax.distributed.initialize)
    tunnel = None
    socket_dir = service.open_socket_dir(needed=secret.is_set and not certificates)
    if socket_dir is not None:
        arriving.callback(socket_dir.close)
    if process == 0:
        server = RendezvousServer(roster, hello, _disagreement, secret, socket_dir, limits.join)
        address = service.serve(server, roster, socket_dir, bool(certificates), liveness.add)
        chief = own = server.ip
    else:
        client = RendezvousClient(roster, process, hello, secret)
        admission = client.report(limits.join, liveness.add)
        address, tunnel = service.reach(admission, client, socket_dir, roster)
        chief = admission.chief
        own = gloo.own_address(
            addresses.reachable_address(roster.addresses[process], admission.outside), admission.outside
        )
    _bypass_proxy(chief)
    jax.distributed.initialize(
        coordinator_address=address,
        num_processes=len(roster.names),
        process_id=process,
        cluster_detection_method="deactivate",
        initialization_timeout=int(service.START_SECONDS),
        heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
        coordinator_bind_address=address,
        **certificates,
    )
    service.outlast_cuts(address)
    return gloo.bind(own), tunnel


def _disagreement(hellos: Sequence[Mapping[str, Any]]) -> str | None:
    tasks = [str(h.get("task")) for h in hellos]
    for what in ("cluster", "versions"):
        if found := fingerprint.first_difference([h.get(what) for h in hellos], tasks):
            return (
                f"All tasks must see the same {what}. {found}. Give every task the same TF_CONFIG cluster, and the "
                "same environment (a lock file, one container image)."
            )
    return None


def _bypass_proxy(ip: str) -> None:
    import jax

    # No proxy on the way to the first task, whatever the environment says: gRPC would hang there.
    others = os.environ.get(_NO_GRPC_PROXY) or os.environ.get(_NO_PROXY)
    os.environ[_NO_GRPC_PROXY] = f"{others},{ip}" if others else ip
    jax.config.update("jax_check_proxy_envs", False)


def _start(
    names: tuple[str, ...], process: int, limits: Limits, liveness: LivenessSockets, tunnel: Tunnel | None
) -> Runtime:
    from jax._src import distributed

    client = distributed.global_state.client
    assert client is not None
    control = Control(client, process, names)
    heartbeat = HeartbeatMonitor(
        control, limits, None if tunnel is None else tunnel.outage, liveness.connected_processes
    )
    heartbeat.start()
    liveness.watch(control)
    failure.install()
    # Before `shutdown`: what comes last at the end of the process is registered first.
    sigterm.prepare()
    shutdown.install(control, heartbeat, limits)
    runtime = Runtime(names, process, control, heartbeat, limits)
    follow_chief_randomness(runtime)
    return runtime


def follow_chief_randomness(runtime: Runtime) -> None:
    """Makes the chief's random state everyone's, so that all create the same weights and shuffles."""
    if runtime.is_alone:
        return
    mine = randomness.snapshot() if runtime.is_chief else None
    randomness.restore(runtime.all_gather_object("the random state", mine)[0])


def _connect_devices(listeners: gloo.Listeners) -> None:
    """Connects the processes of a job on CPUs by a first all-reduce over all devices; then no other process can."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = sorted(jax.devices(), key=lambda d: (d.process_index, d.id))
    if devices[0].platform != "cpu":
        return
    mesh = Mesh(np.asarray(devices, dtype=object), ("all",))
    ones = np.ones(len(devices), np.int32)
    placed = jax.make_array_from_callback(ones.shape, NamedSharding(mesh, PartitionSpec("all")), lambda i: ones[i])
    total = jax.jit(lambda a: a.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))(placed)
    jax.block_until_ready(total)
    if jax.local_device_count() == 1:  # Gloo connects a process with itself, for sums over some of its devices.
        listeners.close()
