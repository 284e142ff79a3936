"""The sockets at which the first task can be reached: where the cluster names it, and nowhere else."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Sequence

from lockstep._engine.runtime import addresses
from lockstep._engine.runtime.addresses import Endpoint
from lockstep._engine.runtime.waiting import Waiting
from lockstep.errors import AddressError

_log = logging.getLogger("lockstep")
_BACKLOG = 128
# Where the first task's name leads to itself alone, so many others are looked up to find the interface towards them.
_MOST_LOOKUPS = 16
LOOPBACK_ADVICE = (
    "Correct the machine's /etc/hosts (Debian's has the machine's own name at 127.0.1.1), or name an IP address in the "
    "cluster description."
)


def listen(address: str, whose: str, others: Sequence[str], waiting: Waiting) -> list[socket.socket]:
    """Opens listening sockets on every interface that `address` names here.

    A name may have several addresses, of which each task reaches another; those that are not of this machine are passed
    over. Where a name leads to the loopback interface alone, which tasks of other machines cannot reach, it is also on
    the interfaces from which this machine reaches them.

    Args:
        address: Of the first task.
        whose: Its name.
        others: Addresses of the other tasks, where they are known.
        waiting: How long the name may take to resolve.

    Raises:
        AddressError: If the address does not resolve, is not of this machine, or its port is in use.
    """
    endpoints = addresses.resolve(address, whose, waiting)
    if all(addresses.is_loopback(endpoint.ip) for endpoint in endpoints):
        endpoints = [*endpoints, *_beyond_loopback(address, whose, endpoints, others)]
    servers: list[socket.socket] = []
    failed: list[tuple[Endpoint, OSError]] = []
    for endpoint in endpoints:
        try:
            servers.append(_server(endpoint))
        except OSError as error:
            failed.append((endpoint, error))
    if servers and not any(error.errno == errno.EADDRINUSE for _, error in failed):
        return servers
    for server in servers:
        server.close()
    tried = "; ".join(f"({endpoint.ip}): {error.strerror or error}" for endpoint, error in failed)
    raise AddressError(
        f"The first task must be able to listen on its own address. {whose} cannot listen on {address!r} {tried}. If "
        f"another program, or another process started as {whose}, uses the port, stop it or choose another port; if "
        "the address is not of this machine, correct it in TF_CONFIG."
    ) from failed[0][1]


def _server(endpoint: Endpoint) -> socket.socket:
    server = socket.socket(endpoint.family, socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if endpoint.family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind(endpoint.where)
        server.listen(_BACKLOG)
    except BaseException:
        server.close()
        raise
    return server


def _beyond_loopback(address: str, whose: str, own: Sequence[Endpoint], others: Sequence[str]) -> list[Endpoint]:
    """Returns where else to listen, and logs at once whom the loopback addresses leave out."""
    host, port = addresses.split(address)
    elsewhere, unknown = _elsewhere(others)
    is_local = addresses.is_local(host)
    if not elsewhere and (is_local or not unknown):
        return []
    # Where every machine takes the name for itself, nobody asks for it from elsewhere.
    found = {} if is_local else {ip: e for e in elsewhere if (ip := addresses.facing(e))}
    reach = (
        f"It also listens on {', '.join(found)}, from which this machine reaches the others."
        if found
        else "Tasks on other machines cannot reach it."
    )
    ips = ", ".join(endpoint.ip for endpoint in own)
    _log.warning(
        "%r, the address of %s, is %s here, on the loopback interface. %s %s",
        *(address, whose, ips, reach, LOOPBACK_ADVICE),
    )
    return [Endpoint(e.family, (ip, port)) for ip, e in found.items() if not addresses.is_loopback(ip)]


def _elsewhere(others: Sequence[str]) -> tuple[list[Endpoint], bool]:
    """Returns the endpoints on other machines among `others`, and whether some are not known."""
    hosts: dict[str, str] = {}
    unknown = False
    for other in others:
        if ":" in other:
            hosts.setdefault(addresses.split(other)[0], other)
        else:
            unknown = True
    found: list[Endpoint] = []
    for other in list(hosts.values())[:_MOST_LOOKUPS]:
        try:
            endpoints = addresses.lookup(other)
        except OSError:
            unknown = True
            continue
        found += [e for e in endpoints if not addresses.is_loopback(e.ip) and not addresses.is_own(e.ip)]
    return found, unknown
