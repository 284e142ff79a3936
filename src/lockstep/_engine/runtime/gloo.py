"""Keeps the sockets of jax's collectives on CPUs to the tasks of the job.

Gloo believes whoever connects to it: a stranger takes the place of a task that has not connected yet by sending the
eight bytes it would, and each that sends some costs a descriptor until the process ends (seen: 300 connections, 300
descriptors, and a sum that never ended). So it listens on the interface that the cluster names, for as long as it
takes the tasks to connect.
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

from lockstep._engine.runtime import switch

_log = logging.getLogger("lockstep")
# Of Linux's socket options; Python names it only from 3.14 on.
_SO_ATTACH_FILTER = 26
# A program of the kernel's packet filter: return 0, which keeps nothing of any packet.
_KEEP_NOTHING = struct.pack("=HBBI", 0x06, 0, 0, 0)
_GLOO = "gloo"
_SETTING = "LOCKSTEP_CLOSE_COLLECTIVES"


class Listeners:
    """The sockets at which Gloo waits for the other tasks."""

    def __init__(self) -> None:
        self._found: set[int] = set()

    def close(self) -> None:
        """Lets nobody in any more: what comes for these sockets is dropped. Open connections stay.

        They are not closed, because Gloo looks at them; where the kernel cannot filter, they stay as they are. With
        `LOCKSTEP_CLOSE_COLLECTIVES=0` they stay open, for programs with sums of their own over some of the devices,
        for which Gloo connects anew.
        """
        if not switch.is_on(_SETTING, "after the first sum over all devices, collectives accept no more connections"):
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

    def made_by(self, make: Callable[[], Any]) -> Any:
        """Calls `make`, and remembers the sockets that listen since."""
        before = _listening()
        made = make()
        self._found |= _listening() - before
        return made


def bind(ip: str) -> Listeners:
    """Makes Gloo listen on `ip` alone, in a process whose jax has joined the others and has no devices yet."""
    from jax._src import distributed, xla_bridge

    listeners, maker = Listeners(), _maker()
    if maker is None:
        _log.debug("This version of jax makes its collectives in another way; Gloo listens where it likes.")
        return listeners
    theirs = xla_bridge.make_cpu_client

    def make() -> Any:
        import jax

        if getattr(jax.config, "jax_cpu_collectives_implementation", None) != _GLOO:
            return theirs()
        arguments = {"distributed_client": distributed.global_state.client, "hostname": ip}
        return theirs(collectives=listeners.made_by(lambda: maker(**arguments)))

    xla_bridge.register_backend_factory("cpu", make, priority=0, fail_quietly=False)
    return listeners


def own_address(declared: str | None, towards_chief: str) -> str:
    """Returns the address of this machine on which to listen: the one that the cluster names, if it is one.

    Args:
        declared: The IP address that the cluster names for this task, if any. It may be that of a gateway.
        towards_chief: The address from which the first task is reached.
    """
    if declared is not None:
        family = socket.AF_INET6 if ":" in declared else socket.AF_INET
        try:
            with socket.socket(family) as sock:
                sock.bind((declared, 0))
            return declared
        except OSError:
            _log.debug("%s is no address of this machine", declared)
    return towards_chief


def _maker() -> Callable[..., Any] | None:
    """What makes the collectives, if the installed jax does so in the way that is known here."""
    from jax._src import xla_bridge

    with contextlib.suppress(ImportError, AttributeError):
        maker: Callable[..., Any] = importlib.import_module("jaxlib._jax").make_gloo_tcp_collectives
        if "collectives" in inspect.signature(xla_bridge.make_cpu_client).parameters:
            assert callable(xla_bridge.register_backend_factory)
            return maker
    return None


def _listening() -> set[int]:
    """The descriptors of this process at which something listens on the network."""
    if sys.platform != "linux":
        return set()
    return {int(name) for name in os.listdir("/proc/self/fd") if _listens(int(name))}


def _listens(descriptor: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False  # A socket object that cannot be made of a copy would not close the copy either.
        with socket.socket(fileno=os.dup(descriptor)) as sock:
            is_network = sock.family in (socket.AF_INET, socket.AF_INET6)
            return is_network and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:  # Closed meanwhile.
        return False
