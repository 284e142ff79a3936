"""Tunnel of other tasks to jax's coordination service, through the first task's listener, across network cuts."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from lockstep._engine.runtime.proxy import ProxiedConnection, Proxy
from lockstep._engine.runtime.rendezvous_client import RendezvousClient
from lockstep.errors import JoinError, LockstepError

_log = logging.getLogger("lockstep")
# Of one attempt to connect: a packet that is lost is sent again after 1 s, then after 3 s, then after 7 s.
_ATTEMPT_SECONDS = 1.0
_PAUSE_SECONDS = 0.2
# A machine that refuses connections for so long can be reached, and the process has ended.
_REFUSED_SECONDS = 5.0


@dataclass(frozen=True)
class Outage:
    """A lost connection to the first task."""

    seconds: float  # Since the last byte came.
    final: str = ""  # Why no other connection will be made, if that is known.


class TunnelServer:
    """The first task's side: connects tasks that take part to jax's service, which listens at the path `service`."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._proxy = Proxy()
        self._streams: dict[str, ProxiedConnection] = {}

    def admits(self, hello: Mapping[str, Any]) -> bool:
        """Returns whether the stream that a task names is a new one, or one that it resumes."""
        name = hello.get("stream")
        return isinstance(name, str) and (name in self._streams or hello.get("resumes") is False)

    def take(self, link: socket.socket, hello: Mapping[str, Any]) -> None:
        """Takes over the connection of a task that `admits` was asked about."""
        name = hello["stream"]
        if name not in self._streams:
            service = socket.socket(socket.AF_UNIX)
            try:
                service.connect(self._service)
            except OSError as error:
                _log.debug("jax's service does not listen: %s", error)
                service.close()
                link.close()
                return
            self._streams[name] = ProxiedConnection(service)
            self._proxy.add(self._streams[name])
        self._proxy.carry(self._streams[name], link)


class Tunnel:
    """Listens at `path` for this process' own jax, and carries its connections to the first task by `client`."""

    def __init__(self, path: str, client: RendezvousClient) -> None:
        self._client = client
        self._proxy = Proxy()
        # Streams that have been carried, and have no connection now.
        self._lost: set[ProxiedConnection] = set()
        self._final = ""
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen(16)
        # A forked process must not accept connections that this one would carry.
        os.register_at_fork(after_in_child=self._server.close)
        threading.Thread(target=self._serve, name="lockstep-tunnel", daemon=True).start()

    def outage(self) -> Outage | None:
        """Returns what is known of a lost connection to the first task, or `None` if there is none."""
        heard = [carried.received_at for carried in list(self._lost)]
        return Outage(time.monotonic() - min(heard), self._final) if heard else None

    def _serve(self) -> None:
        while True:
            own, _ = self._server.accept()
            name, carried = secrets.token_hex(16), ProxiedConnection(own)
            carried.on_lost = partial(self._resume, carried, name)
            self._proxy.add(carried)
            # A thread for each, so that jax's next connection does not wait while this one is tried again.
            self._start(carried, name, resumes=False)

    def _resume(self, carried: ProxiedConnection, name: str) -> None:
        _log.debug("the connection to the first task is lost")
        self._lost.add(carried)
        self._start(carried, name, resumes=True)

    def _start(self, carried: ProxiedConnection, name: str, resumes: bool) -> None:
        connect = partial(self._connect, carried, name, resumes)
        threading.Thread(target=connect, name="lockstep-connect", daemon=True).start()

    def _connect(self, carried: ProxiedConnection, name: str, resumes: bool) -> None:
        refused_since: float | None = None
        while True:
            try:
                link, first = self._client.reach_service(_ATTEMPT_SECONDS, name, resumes)
            except ConnectionRefusedError:
                refused_since = refused_since or time.monotonic()
                if time.monotonic() - refused_since > _REFUSED_SECONDS:
                    self._final = "Nothing listens at its address any more: its process has ended."
            except (LockstepError, OSError) as error:
                refused_since = None
                if type(error) is JoinError:
                    self._final = str(error)  # It answers, and refuses this task: trying again would not help.
            else:
                self._final = ""
                carried.received_at = time.monotonic()
                self._lost.discard(carried)
                self._proxy.carry(carried, link, first)
                return
            time.sleep(_PAUSE_SECONDS)
