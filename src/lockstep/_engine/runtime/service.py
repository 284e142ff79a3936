"""The address of jax's coordination service, and the way of the other tasks to it.

The service believes every peer that connects to it: whoever reaches it can end the job. So it listens on the network
only where nothing better is to be had.

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

from lockstep._engine.runtime import addresses, unix_sockets
from lockstep._engine.runtime.rendezvous import LateJoinServer, RendezvousServer, Roster
from lockstep._engine.runtime.rendezvous_client import Admission, RendezvousClient
from lockstep._engine.runtime.tunnel import Tunnel, TunnelServer
from lockstep._engine.runtime.unix_sockets import SocketDir
from lockstep.errors import AddressError, JoinError

_log = logging.getLogger("lockstep")
# Everyone has reported, so the service only has to start.
START_SECONDS = 120.0
_NO_DIRECTORY = (
    "jax's service must be reached through a directory that only this user can enter, and {}. Let TMPDIR name a "
    "directory in which this user can make others."
)


class Transport(Enum):
    """The transport to the service."""

    NEAR = "near"
    TUNNEL = "tunnel"
    OPEN = "open"


def open_socket_dir(needed: bool) -> SocketDir | None:
    """Returns a socket directory for this process, if one can be made.

    Raises:
        AddressError: If none can be made and it is `needed`.
    """
    try:
        return SocketDir()
    except OSError as error:
        if needed:
            raise AddressError(_NO_DIRECTORY.format(f"none can be made: {error}")) from error
        _log.debug("No directory for sockets: %s", error)
        return None


def serve(
    server: RendezvousServer,
    roster: Roster,
    socket_dir: SocketDir | None,
    has_mtls: bool,
    keep: Callable[[int, socket.socket], None] | None = None,
) -> str:
    """Collects the other tasks and releases them when the service is up; returns the address for jax."""
    listener = server.collect()
    target: str | tuple[str, int]
    if socket_dir is None or has_mtls:
        transport = Transport.OPEN
        listener.close()  # jax's service takes the address.
        target = server.ip, addresses.split(roster.addresses[0])[1]
        own = addresses.join_host(*target)
    else:
        transport = Transport.NEAR if server.are_all_local else Transport.TUNNEL
        own, target = f"unix:{socket_dir.service}", socket_dir.service
        proxy = TunnelServer(socket_dir.service) if transport is Transport.TUNNEL else None
        late = LateJoinServer(listener, roster, proxy)
        threading.Thread(target=late.serve, name="lockstep-late-join", daemon=True).start()

    def release_when_up() -> None:
        # The others connect when the service listens: a refused connection would cost them a second.
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and not _listens(target):
            time.sleep(0.01)
        server.release(keep, service=transport.value, ip=server.ip)

    threading.Thread(target=release_when_up, daemon=True).start()
    return own


def reach(
    admission: Admission, client: RendezvousClient, own: SocketDir | None, roster: Roster
) -> tuple[str, Tunnel | None]:
    """Returns the address for jax of a task that is not the first, and the tunnel that leads to it, if one does."""
    transport = admission.verdict.get("service")
    if transport == Transport.NEAR.value and unix_sockets.read_token(admission.directory) is not None:
        return f"unix:{unix_sockets.service_path(admission.directory)}", None
    if transport == Transport.TUNNEL.value:
        if own is None:
            raise AddressError(_NO_DIRECTORY.format("none can be made here"))
        return f"unix:{own.service}", Tunnel(own.service, client)
    if transport == Transport.OPEN.value:
        return addresses.join_host(admission.chief, addresses.split(roster.addresses[0])[1]), None
    raise JoinError(
        f"All tasks must run the same version of lockstep. {roster.describe([0])} says that jax's service is "
        f"{transport!r}, which this task does not know or cannot reach."
    )


def outlast_cuts(address: str) -> None:
    """Keeps this process' connections at `address` open while nothing comes on them."""
    # gRPC ends those of its server after 20 s without an acknowledgement (TCP_USER_TIMEOUT); the system's own limit is
    # a quarter of an hour. Where the tunnel is used there is no such connection.
    if address.startswith("unix:") or not hasattr(socket, "TCP_USER_TIMEOUT"):
        return
    _, port = addresses.split(address)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as sock:
                is_network = sock.family in (socket.AF_INET, socket.AF_INET6)
                if is_network and port in (sock.getsockname()[1], sock.getpeername()[1]):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)


def _listens(target: str | tuple[str, int]) -> bool:
    if isinstance(target, tuple):
        with contextlib.suppress(OSError), socket.create_connection(target, timeout=1.0):
            return True
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
        sock.connect(target)
        return True
    return False
