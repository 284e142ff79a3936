"""Where jax's coordination service listens, and how the other tasks reach it.

The service believes whoever connects to it: anybody who reaches it can end the job. So it listens on the network only
where nothing better is to be had.

* NEAR: all tasks are on one machine. It listens on a socket in a directory that only this user can enter.
* TUNNEL: tasks are on several machines. It listens in the same way; the first task passes on the connections of the
  other tasks, which prove that they know the secret, if there is one, on the address that the cluster names for it.
  The connections survive a cut of the network.
* OPEN: it listens on that address itself, because it uses certificates (mTLS), which name the address; or because no
  directory for its socket can be made.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from enum import Enum

from lockstep._engine.runtime import addresses, door
from lockstep._engine.runtime.door import Door
from lockstep._engine.runtime.rendezvous import Doorkeeper, Host, Roll
from lockstep._engine.runtime.report import Admission, Reporter
from lockstep._engine.runtime.tunnel import Entrance, Tunnel
from lockstep.errors import AddressError, JoinError

_log = logging.getLogger("lockstep")
# Everyone has reported, so the service only has to start.
START_SECONDS = 120.0
_NO_DOOR = (
    "jax's service must be reached through a directory that only this user can enter, and {}. Let TMPDIR name a "
    "directory in which this user can make others."
)


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
            raise AddressError(_NO_DOOR.format(f"none can be made: {error}")) from error
        _log.debug("No directory for sockets: %s", error)
        return None


def serve(
    host: Host,
    roll: Roll,
    door: Door | None,
    has_mtls: bool,
    keep: Callable[[int, socket.socket], None] | None = None,
) -> str:
    """The first task's side: collects the others, chooses the place, and tells them when the service is up.

    Args:
        host: Collects them.
        roll: Who must arrive.
        door: Of this process, if there is one.
        has_mtls: Whether there are certificates.
        keep: Takes over the connection with each task.

    Returns:
        The address for jax.
    """
    gate = host.collect()
    place = _place(host, door, has_mtls)
    if door is None or place is Place.OPEN:
        gate.close()
        target = host.ip, addresses.split(roll.addresses[0])[1]
        own = addresses.join_host(*target)
    else:
        own, target = f"unix:{door.service}", door.service
        keeper = Doorkeeper(gate, roll, Entrance(door.service) if place is Place.TUNNEL else None)
        threading.Thread(target=keeper.serve, name="lockstep-door", daemon=True).start()
    # The others connect when the service listens: a refused connection would cost them a second.
    threading.Thread(target=_release_when_up, args=(host, target, place, keep), daemon=True).start()
    return own


def reach(admission: Admission, reporter: Reporter, own: Door | None, roll: Roll) -> tuple[str, Tunnel | None]:
    """Another task's side: returns the address for jax, and the tunnel that leads to it, if one does."""
    place = admission.says.get("service")
    if place == Place.NEAR.value and door.seen_through(admission.directory) is not None:
        return f"unix:{door.service_of(admission.directory)}", None
    if place == Place.TUNNEL.value:
        if own is None:
            raise AddressError(_NO_DOOR.format("none can be made here"))
        return f"unix:{own.service}", Tunnel(own.service, reporter)
    if place == Place.OPEN.value:
        return addresses.join_host(admission.chief, addresses.split(roll.addresses[0])[1]), None
    raise JoinError(
        f"All tasks must run the same version of lockstep. {roll.describe([0])} says that jax's service is {place!r}, "
        "which this task does not know or cannot reach."
    )


def outlast_cuts(address: str) -> None:
    """Keeps this process' connections at `address` open while nothing comes on them.

    gRPC ends those of its server after 20 s without an acknowledgement (TCP_USER_TIMEOUT); the system's own limit is a
    quarter of an hour. Where the tunnel is used there is no such connection.
    """
    if address.startswith("unix:") or not hasattr(socket, "TCP_USER_TIMEOUT"):
        return
    _, port = addresses.split(address)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as sock:
                    _outlast_cuts(sock, port)


def _outlast_cuts(sock: socket.socket, port: int) -> None:
    if sock.family in (socket.AF_INET, socket.AF_INET6) and port in (sock.getsockname()[1], sock.getpeername()[1]):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)


def _place(host: Host, door: Door | None, has_mtls: bool) -> Place:
    if door is None or has_mtls:
        return Place.OPEN
    return Place.NEAR if host.are_near else Place.TUNNEL


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
