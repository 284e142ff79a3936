"""Gloo's listening sockets: keeps jax's collectives on CPUs to the tasks of the job.

Gloo believes every peer that connects to it: a stranger takes the place of a task that has not connected yet by sending
the eight bytes it would, and each that sends some costs a descriptor until the process ends (seen: 300 connections, 300
descriptors, and an all-reduce that never ended). So it listens on the interface that the cluster names, for as long as
it takes the tasks to connect.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import inspect
import logging
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable
from typing import Any

from lockstep._engine.runtime import addresses, environment

_log = logging.getLogger("lockstep")
# Of Linux's socket options; Python names it only from 3.14 on.
_SO_ATTACH_FILTER = 26
# A program of the kernel's packet filter: return 0, which keeps nothing of any packet.
_KEEP_NOTHING = struct.pack("=HBBI", 0x06, 0, 0, 0)
_GLOO = "gloo"
_SETTING = "LOCKSTEP_CLOSE_COLLECTIVES"


class Listeners:
    """Sockets at which Gloo waits for the other tasks."""

    def __init__(self) -> None:
        self._found: set[int] = set()

    def close(self) -> None:
        """Drops further packets to these sockets, unless `LOCKSTEP_CLOSE_COLLECTIVES=0`; open connections stay."""
        # The setting is for programs with collectives of their own over some of the devices, for which Gloo connects
        # anew. The sockets are filtered, not closed, because Gloo polls them.
        if not environment.env_flag(
            _SETTING, "after the first sum over all devices, collectives accept no more connections"
        ):
            return
        program = ctypes.create_string_buffer(_KEEP_NOTHING, len(_KEEP_NOTHING))
        packed = struct.pack("HP", 1, ctypes.addressof(program))
        for descriptor in sorted(self._found & _listening()):
            try:
                with socket.socket(fileno=os.dup(descriptor)) as sock:
                    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, packed)
            except OSError as error:
                _log.debug("Gloo goes on listening: %s", error)
        self._found.clear()

    def record(self, make: Callable[[], Any]) -> Any:
        """Calls `make`, and records the sockets that listen since; returns its result."""
        before = _listening()
        result = make()
        self._found |= _listening() - before
        return result


def bind(ip: str) -> Listeners:
    """Makes Gloo listen on `ip` alone, in a process whose jax has joined the others and has no devices yet."""
    from jax._src import distributed, xla_bridge

    listeners, factory = Listeners(), _find_factory()
    if factory is None:
        _log.debug("This version of jax makes its collectives in another way; Gloo listens where it likes.")
        return listeners
    # There is no setting for the host name: JAX passes none, and Gloo takes what the machine's own name resolves to.
    theirs = xla_bridge.make_cpu_client

    def make() -> Any:
        import jax

        if getattr(jax.config, "jax_cpu_collectives_implementation", None) != _GLOO:
            return theirs()
        arguments = {"distributed_client": distributed.global_state.client, "hostname": ip}
        return theirs(collectives=listeners.record(lambda: factory(**arguments)))

    xla_bridge.register_backend_factory("cpu", make, priority=0, fail_quietly=False)
    return listeners


def own_address(declared: str | None, towards_chief: str) -> str:
    """Returns the address on which to listen: the one that the cluster names for this task, if it is this machine's."""
    # It may be that of a gateway.
    return declared if declared is not None and addresses.is_own(declared) else towards_chief


def _find_factory() -> Callable[..., Any] | None:
    """Returns jaxlib's factory of Gloo's collectives, if the installed jax has the one that is known here."""
    from jax._src import xla_bridge

    with contextlib.suppress(ImportError, AttributeError):
        factory: Callable[..., Any] = importlib.import_module("jaxlib._jax").make_gloo_tcp_collectives
        if "collectives" in inspect.signature(xla_bridge.make_cpu_client).parameters:
            assert callable(xla_bridge.register_backend_factory)
            return factory
    return None


def _listening() -> set[int]:
    """Returns the descriptors of this process' sockets that listen on the network."""
    if sys.platform != "linux":
        return set()
    return {int(name) for name in os.listdir("/proc/self/fd") if _listens(int(name))}


def _listens(descriptor: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False  # socket.socket() would fail on the copy, and leave it open.
        with socket.socket(fileno=os.dup(descriptor)) as sock:
            is_network = sock.family in (socket.AF_INET, socket.AF_INET6)
            return is_network and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:  # Closed meanwhile.
        return False
