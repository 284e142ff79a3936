"""Where jax's coordination service listens, and how the other tasks reach it.

The service believes whoever connects to it: anybody who reaches it can end the job. So it listens on the network only
where nothing better is to be had.

* NEAR: all tasks are on one machine. It listens on a socket in a directory that only this user can enter.
* TUNNEL: there is a secret. It listens in the same way; the first task passes on the connections of those who prove
  that they know the secret, on the address that the cluster names for it.
* OPEN: it listens on that address itself; with mTLS it believes only those with a certificate.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from enum import Enum

from lockstep._runtime import addresses, door
from lockstep._runtime.door import Door
from lockstep._runtime.relay import Relay
from lockstep._runtime.rendezvous import Doorkeeper, Host, Roll
from lockstep._runtime.report import Admission, Reporter
from lockstep.errors import AddressError, JoinError, LockstepError

_log = logging.getLogger("lockstep")
# Everyone has reported, so the service only has to start.
START_SECONDS = 120.0
_REACH_SECONDS = 30.0


class Place(Enum):
    """Where the service listens."""

    NEAR = "near"
    TUNNEL = "tunnel"
    OPEN = "open"


def open_door(needed: bool) -> Door | None:
    """Returns a door for this process, if one can be made.

    Raises:
        AddressError: If none can be made and it is `needed`.
    """
    try:
        return Door()
    except OSError as error:
        if needed:
            raise AddressError(
                "With a secret, jax's service must listen in a directory that only this user can enter. None can be "
                f"made: {error}. Let TMPDIR name a directory in which this user can make others."
            ) from error
        _log.debug("No directory for sockets: %s", error)
        return None


def serve(
    host: Host,
    roll: Roll,
    door: Door | None,
    has_secret: bool,
    has_mtls: bool,
    keep: Callable[[int, socket.socket], None] | None = None,
) -> str:
    """The first task's side: collects the others, chooses the place, and tells them when the service is up.

    Args:
        host: Collects them.
        roll: Who must arrive.
        door: Of this process, if there is one.
        has_secret: Whether there is a secret.
        has_mtls: Whether there are certificates.
        keep: Takes over the connection with each task.

    Returns:
        The address for jax.
    """
    gate = host.collect()
    place = _place(host, door, has_secret, has_mtls)
    if door is None or place is Place.OPEN:
        gate.close()
        target = host.ip, addresses.split(roll.addresses[0])[1]
        own = addresses.join_host(*target)
    else:
        own, target = f"unix:{door.service}", door.service
        let_in = _passing_on(door.service) if place is Place.TUNNEL else None
        keeper = Doorkeeper(gate, roll, let_in)
        threading.Thread(target=keeper.serve, name="lockstep-door", daemon=True).start()
    # The others connect when the service listens: a refused connection would cost them a second.
    threading.Thread(target=_release_when_up, args=(host, target, place, keep), daemon=True).start()
    return own


def reach(admission: Admission, reporter: Reporter, own: Door | None, roll: Roll) -> str:
    """Another task's side: returns the address for jax."""
    place = admission.says.get("service")
    if place == Place.NEAR.value and door.seen_through(admission.directory) is not None:
        return f"unix:{door.service_of(admission.directory)}"
    if place == Place.TUNNEL.value and own is not None:
        _Tunnel(own.service, reporter)
        return f"unix:{own.service}"
    if place == Place.OPEN.value:
        return addresses.join_host(admission.chief, addresses.split(roll.addresses[0])[1])
    raise JoinError(
        f"All tasks must run the same version of lockstep. {roll.describe([0])} says that jax's service is {place!r}, "
        "which this task does not know or cannot reach."
    )


def _place(host: Host, door: Door | None, has_secret: bool, has_mtls: bool) -> Place:
    if door is None or has_mtls:
        return Place.OPEN
    if host.are_near:
        return Place.NEAR
    return Place.TUNNEL if has_secret else Place.OPEN


def _passing_on(path: str) -> Callable[[socket.socket], None]:
    relay = Relay()

    def let_in(sock: socket.socket) -> None:
        service = socket.socket(socket.AF_UNIX)
        try:
            service.connect(path)
        except OSError as error:
            _log.debug("jax's service does not listen: %s", error)
            service.close()
            sock.close()
            return
        relay.add(sock, service)

    return let_in


class _Tunnel:
    """Listens for this process' own jax, and passes its connections on to the first task.

    Args:
        path: Where.
        reporter: Speaks with the first task.
    """

    def __init__(self, path: str, reporter: Reporter) -> None:
        self._reporter = reporter
        self._relay = Relay()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen(16)
        os.register_at_fork(after_in_child=self._server.close)
        threading.Thread(target=self._serve, name="lockstep-tunnel", daemon=True).start()

    def _serve(self) -> None:
        while True:
            own, _ = self._server.accept()
            try:
                far, first = self._reporter.reach_service(_REACH_SECONDS)
            except (LockstepError, OSError) as error:
                _log.warning("jax's service cannot be reached: %s", error)
                own.close()
                continue
            self._relay.add(own, far, first)


def _release_when_up(
    host: Host, target: str | tuple[str, int], place: Place, keep: Callable[[int, socket.socket], None] | None
) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and not _listens(target):
        time.sleep(0.01)
    host.release(keep, service=place.value, ip=host.ip)


def _listens(target: str | tuple[str, int]) -> bool:
    if isinstance(target, tuple):
        with contextlib.suppress(OSError), socket.create_connection(target, timeout=1.0):
            return True
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
        sock.connect(os.fspath(target))
        return True
    return False
