"""Joins this process to its cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lockstep._engine.runtime import (
    addresses,
    compare,
    cpu,
    failure,
    generation,
    gloo,
    leaving,
    mtls,
    randomness,
    secret,
    service,
    sigterm,
    versions,
)
from lockstep._engine.runtime.control import Control
from lockstep._engine.runtime.lifelines import Lifelines
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.rendezvous import Host, Roll
from lockstep._engine.runtime.report import Reporter
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.runtime.tunnel import Tunnel
from lockstep._engine.runtime.watchdog import Watchdog
from lockstep.cluster_resolver import ClusterSpec, Task
from lockstep.cluster_resolver.internal import known_address, training_tasks
from lockstep.errors import StartupOrderError

_log = logging.getLogger("lockstep")
# Of jax's service, which ends the process from C++ when it misses one. The limits are the watchdog's alone: it names
# who is lost. A month is longer than any of them.
_HEARTBEAT_SECONDS = 30 * 24 * 3600

# gRPC reads them in small letters only, and the second only without the first.
_NO_GRPC_PROXY, _NO_PROXY = "no_grpc_proxy", "no_proxy"
# The user's own files may be in a directory of the package's name.
_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep

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
    where = user_line()
    check_startup(where)
    limits = Limits.from_environment()
    if peer_seconds is not None:
        limits = replace(limits, peer=peer_seconds)
    tasks = training_tasks(cluster)
    names = tuple(map(str, tasks))
    known = tuple(known_address(cluster, t) or "address unknown" for t in tasks)
    roll = Roll(names, known, generation.generation())
    process = tasks.index(task)
    hello = {"task": names[process], "cluster": cluster.as_dict(), "versions": versions.installed()}
    cpu.prepare_thread_pool()
    _joined_at = where
    lifelines = Lifelines()
    with contextlib.ExitStack() as arriving:
        listeners, tunnel = _register(roll, process, hello, limits, arriving, lifelines)
        runtime = _start(names, process, limits, lifelines, tunnel)
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


def user_line() -> str:
    """Returns "file:line (source)" of the innermost frame outside this package."""
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(_PACKAGE):
            return f"{frame.filename}:{frame.lineno} (`{frame.line}`)"
    return "this line"


def _register(
    roll: Roll,
    process: int,
    hello: Mapping[str, Any],
    limits: Limits,
    arriving: contextlib.ExitStack,
    lifelines: Lifelines,
) -> tuple[gloo.Listeners, Tunnel | None]:
    """Arrives, and starts jax.distributed; `arriving` closes what is needed until all are connected."""
    import jax

    _log.info("%s joins %s", roll.names[process], roll.describe(list(range(len(roll.names)))))
    shared, certificates = secret.from_environment(), mtls.arguments(jax.distributed.initialize)
    tunnel = None
    door = service.open_door(needed=shared.is_set and not certificates)
    if door is not None:
        arriving.callback(door.close)
    if process == 0:
        host = Host(roll, hello, _disagreement, shared, door, limits.join)
        address = service.serve(host, roll, door, bool(certificates), lifelines.add)
        chief = own = host.ip
    else:
        reporter = Reporter(roll, process, hello, shared)
        admission = reporter.report(limits.join, lifelines.add)
        address, tunnel = service.reach(admission, reporter, door, roll)
        chief = admission.chief
        own = gloo.own_address(addresses.outward(roll.addresses[process], admission.outside), admission.outside)
    _bypass_proxy(chief)
    _initialize(roll, process, address, certificates)
    return gloo.bind(own), tunnel


def _disagreement(hellos: Sequence[Mapping[str, Any]]) -> str | None:
    told = [str(h.get("task")) for h in hellos]
    for what in ("cluster", "versions"):
        if found := compare.first_difference([h.get(what) for h in hellos], told):
            return (
                f"All tasks must see the same {what}. {found}. Give every task the same TF_CONFIG cluster, and the "
                "same environment (a lock file, one container image)."
            )
    return None


def _initialize(roll: Roll, process: int, address: str, certificates: Mapping[str, Any]) -> None:
    import jax

    jax.distributed.initialize(
        coordinator_address=address,
        num_processes=len(roll.names),
        process_id=process,
        cluster_detection_method="deactivate",
        initialization_timeout=int(service.START_SECONDS),
        heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
        coordinator_bind_address=address,
        **certificates,
    )
    service.outlast_cuts(address)


def _bypass_proxy(ip: str) -> None:
    """The way to the first task leads through no proxy, whatever the environment says: gRPC would hang there."""
    import jax

    others = os.environ.get(_NO_GRPC_PROXY) or os.environ.get(_NO_PROXY)
    os.environ[_NO_GRPC_PROXY] = f"{others},{ip}" if others else ip
    jax.config.update("jax_check_proxy_envs", False)


def _start(
    names: tuple[str, ...], process: int, limits: Limits, lifelines: Lifelines, tunnel: Tunnel | None
) -> Runtime:
    from jax._src import distributed

    client = distributed.global_state.client
    assert client is not None
    control = Control(client, process, names)
    watchdog = Watchdog(control, limits, None if tunnel is None else tunnel.outage)
    watchdog.start()
    lifelines.watch(control)
    failure.install()
    sigterm.prepare()
    leaving.install(control, watchdog, limits)
    runtime = Runtime(names, process, control, watchdog, limits)
    follow_chief_randomness(runtime)
    return runtime


def follow_chief_randomness(runtime: Runtime) -> None:
    """Makes the chief's random state everyone's, so that all create the same weights and shuffles."""
    if runtime.is_alone:
        return
    mine = randomness.snapshot() if runtime.is_chief else None
    randomness.restore(runtime.agree("the random state", mine)[0])


def _connect_devices(listeners: gloo.Listeners) -> None:
    """Connects the processes of a job on CPUs, by a first sum over all devices; then nobody else can."""
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
