"""Liveness connections: they are open for as long as both processes live.

When a process ends, whatever ends it, the system closes its connections at once. Nothing closes those of a process
that is stopped, or behind a broken network. So this tells a task that has died, for which nobody needs to wait, from
one that is silent, which has `LOCKSTEP_SILENCE_TIMEOUT` to come back.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from lockstep._engine.runtime import failure
from lockstep._engine.runtime.launcher_files import write_error_file

if TYPE_CHECKING:
    from lockstep._engine.runtime.control import Control

# A connection may also be closed by something in between, such as a firewall that finds it idle: then heartbeats go on
# to come, once a second.
_SUSPECT_SECONDS = 2.5
_POLL_SECONDS = 0.05


class LivenessSockets:
    """Connections of the first task with all others; or that of another task with the first."""

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}
        self._ended: set[int] = set()
        # A forked process that keeps a connection open would hide this one's end.
        os.register_at_fork(after_in_child=self.close)

    def add(self, process: int, sock: socket.socket) -> None:
        """Keeps a connection with another task, before `watch`."""
        self._sockets[process] = sock

    def connected_processes(self) -> set[int]:
        """Returns the other processes whose connection with this one is open: they have not ended."""
        return self._sockets.keys() - self._ended

    def close(self) -> None:
        """Closes all connections."""
        for sock in self._sockets.values():
            sock.close()

    def watch(self, control: Control) -> None:
        """Starts to watch; `control` announces a task that has died."""
        threading.Thread(target=self._run, args=(control,), name="lockstep-lifelines", daemon=True).start()

    def _run(self, control: Control) -> None:
        on_close = _on_close_of_task if control.process == 0 else _on_close_of_first
        with selectors.DefaultSelector() as selector:
            for process, sock in self._sockets.items():
                sock.setblocking(False)
                selector.register(sock, selectors.EVENT_READ, process)
            while selector.get_map():
                for key, _ in selector.select():
                    closed = _has_closed(self._sockets[key.data])
                    if closed is not False:
                        selector.unregister(key.fileobj)
                        self._ended.add(key.data)
                    if closed:
                        threading.Thread(target=_call_quietly, args=(on_close, control, key.data), daemon=True).start()


def _has_closed(sock: socket.socket) -> bool | None:
    """Returns whether the peer has closed the connection; `None` if it was lost on the way."""
    try:
        return not sock.recv(1024)
    except BlockingIOError:
        return False
    except OSError:
        return None  # Reset, or out of reach: a cut of the network may do that, and heartbeats may outlast it.


def _call_quietly(call: Callable[[Control, int], None], control: Control, process: int) -> None:
    with contextlib.suppress(Exception):  # The service has gone, or this process ends.
        call(control, process)


def _on_close_of_task(control: Control, process: int) -> None:
    """Announces that a task has died, unless it has ended in order, or goes on to send heartbeats."""
    heartbeat, deadline = control.listing("heartbeats").get(str(process)), time.monotonic() + _SUSPECT_SECONDS
    while time.monotonic() < deadline:
        if process in control.left() | control.ended():
            return
        time.sleep(_POLL_SECONDS)
    if control.listing("heartbeats").get(str(process)) == heartbeat:
        message = f"{control.tasks[process]} has gone: its process ended without a word."
        control.announce_failure("", message, cause=control.record("", message, process))


def _on_close_of_first(control: Control, process: int) -> None:
    """Reports that the first task has died, and ends this process: nothing goes on without its service."""
    # jaxlib notices at the same time, and aborts this process without saying whose end it is. So report first.
    if control.is_over:
        return
    me, first = control.tasks[control.process], control.tasks[process]
    # Where all tasks fail together, this one has said why, and the first one has only ended before it.
    if not failure.has_failed():
        reason = f"{first}, which all others report to, has gone: its process ended, or its connection was closed."
        write_error_file(me, "PeerError", reason, f"lockstep.errors.PeerError: {reason}\n", secondary=True)
        os.write(2, f"lockstep: {me} cannot go on: {reason}\n".encode())
    try:
        control.listing("status")
    except Exception:  # jaxlib raises one class for every status
        os._exit(1)
