"""Addresses of the cluster: parsing, name lookup, interfaces, and the sockets of the first task."""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

from lockstep._engine.runtime.limits import Deadline
from lockstep.errors import AddressError

# RFC 6761: such names never resolve, and those below localhost are always this machine.
_NEVER, _LOCAL = "invalid", "localhost"


class Endpoint(NamedTuple):
    """Address of a socket; a host name may have several.

    Attributes:
        family: AF_INET or AF_INET6.
        where: IP address and port; for IPv6 also flow and scope.
    """

    family: int
    where: Any

    @property
    def ip(self) -> str:
        """The IP address."""
        return str(self.where[0])


def split(address: str) -> tuple[str, int]:
    """Splits "host:port" or "[v6]:port"."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def count_on_host(own: str | None, addresses: Sequence[str | None]) -> int:
    """Returns how many tasks have a task's host in their addresses, that one included.

    Args:
        own: The task's address; `None` if it is not known.
        addresses: Those of all tasks.
    """
    if own is None:
        return 1
    host = own.rpartition(":")[0]
    return max(1, sum(address is not None and address.rpartition(":")[0] == host for address in addresses))


def place_on_host(own: str | None, addresses: Sequence[str | None]) -> tuple[int, int]:
    """Returns a task's number among those that have its host in their addresses, and how many these are.

    Args:
        own: The task's address; `None` if it is not known.
        addresses: Those of all tasks, in their order; each differs from the others.
    """
    count = count_on_host(own, addresses)
    return (count_on_host(own, addresses[: addresses.index(own) + 1]) - 1 if count > 1 else 0), count


def join_host(ip: str, port: int) -> str:
    """Formats an IP address and a port as "ip:port", IPv6 in brackets."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def is_ip(text: object) -> bool:
    """Returns whether `text` is an IP address rather than a name."""
    try:
        ipaddress.ip_address(str(text).partition("%")[0])
    except ValueError:
        return False
    return isinstance(text, str)


def is_loopback(ip: str) -> bool:
    """Returns whether an IP address leads to the machine itself: 127.0.0.0/8 or ::1."""
    found = ipaddress.ip_address(ip.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def is_same_family(one: str, other: str) -> bool:
    """Returns whether two IP addresses are both IPv4, or both IPv6."""
    return (":" in one) == (":" in other)


def is_local(host: str) -> bool:
    """Returns whether `host` means, on every machine, the machine itself: a loopback address, or "localhost"."""
    return is_loopback(host) if is_ip(host) else _last_label(host) == _LOCAL


def lookup(address: str) -> list[Endpoint]:
    """Returns the endpoints that the host of `address` resolves to now, in the system's order, each once.

    Raises:
        OSError: It does not resolve.
    """
    host, port = split(address)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(Endpoint(family, where) for family, _, _, _, where in found))


def resolve(address: str, whose: str, deadline: Deadline) -> list[Endpoint]:
    """Returns the endpoints of `address` as soon as it resolves: a pod may start before its record in the DNS exists.

    Raises:
        AddressError: If it does not resolve until the limit, or never can.
    """
    while True:
        try:
            return lookup(address)
        except OSError as error:
            if not deadline.can_retry or _last_label(split(address)[0]) == _NEVER:
                raise AddressError(
                    f"The host of every task must resolve within {deadline.seconds:g} s (LOCKSTEP_JOIN_TIMEOUT). "
                    f"{address!r}, the address of {whose}, does not: {error}. Correct the address in the cluster "
                    "description (TF_CONFIG), or the machine's DNS or /etc/hosts."
                ) from error
            reason = error
        deadline.report(lambda e=reason: f"The host of {address!r}, the address of {whose}, does not resolve yet: {e}.")
        deadline.pause()


def reachable_address(address: str, towards: str) -> str | None:
    """Returns the IP address, of those that `address` has, at which other tasks can reach this process.

    All tasks must use addresses of one family, or Gloo does not connect them.
    """
    try:
        ips = [endpoint.ip for endpoint in lookup(address)]
    except (OSError, ValueError):
        return None
    usable = [ip for ip in ips if is_same_family(ip, towards) and (is_loopback(towards) or not is_loopback(ip))]
    return towards if towards in usable else next(iter(usable), None)


def is_own(ip: str) -> bool:
    """Returns whether an IP address is one of this machine."""
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind((ip, 0))
        except OSError:
            return False
    return True


def local_address_towards(endpoint: Endpoint) -> str | None:
    """Returns the IP address of this machine from which it reaches `endpoint`; `None` if there is no way to it."""
    with socket.socket(endpoint.family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(endpoint.where)  # Chooses a route; datagrams send nothing for it.
        except OSError:
            return None
        return str(sock.getsockname()[0])


def _last_label(host: str) -> str:
    return host.lower().rstrip(".").rpartition(".")[2]


_log = logging.getLogger("lockstep")
_BACKLOG = 128
# Where the first task's name leads to itself alone, so many others are looked up to find the interface towards them.
_MAX_LOOKUPS = 16
LOOPBACK_ADVICE = (
    "Correct the machine's /etc/hosts (Debian's has the machine's own name at 127.0.1.1), or name an IP address in the "
    "cluster description."
)


def listen(address: str, whose: str, others: Sequence[str], deadline: Deadline) -> list[socket.socket]:
    """Opens listening sockets on every interface that `address` names here.

    A name may have several addresses, of which each task reaches another; those that are not of this machine are passed
    over. Where a name leads to the loopback interface alone, which tasks of other machines cannot reach, it is also on
    the interfaces from which this machine reaches them.

    Raises:
        AddressError: If the address does not resolve, is not of this machine, or its port is in use.
    """
    endpoints = resolve(address, whose, deadline)
    if all(is_loopback(endpoint.ip) for endpoint in endpoints):
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
        # A restart follows at once, while connections of the attempt before are in TIME_WAIT.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if endpoint.family == socket.AF_INET6:
            # Else "::" takes the port of IPv4 too, where a name has both.
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind(endpoint.where)
        server.listen(_BACKLOG)
    except BaseException:
        server.close()
        raise
    return server


def _beyond_loopback(address: str, whose: str, own: Sequence[Endpoint], others: Sequence[str]) -> list[Endpoint]:
    """Returns further endpoints to listen at; logs which tasks the loopback addresses leave out."""
    host, port = split(address)
    elsewhere, unknown = _elsewhere(others)
    has_local_name = is_local(host)
    if not elsewhere and (has_local_name or not unknown):
        return []
    # Where every machine takes the name for itself, nobody asks for it from elsewhere.
    found = {} if has_local_name else {ip: e for e in elsewhere if (ip := local_address_towards(e))}
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
    return [Endpoint(e.family, (ip, port)) for ip, e in found.items() if not is_loopback(ip)]


def _elsewhere(others: Sequence[str]) -> tuple[list[Endpoint], bool]:
    """Returns the endpoints on other machines among `others`, and whether some are not known."""
    hosts: dict[str, str] = {}
    unknown = False
    for other in others:
        if ":" in other:
            hosts.setdefault(split(other)[0], other)
        else:
            unknown = True
    found: list[Endpoint] = []
    for other in list(hosts.values())[:_MAX_LOOKUPS]:
        try:
            endpoints = lookup(other)
        except OSError:
            unknown = True
            continue
        found += [e for e in endpoints if not is_loopback(e.ip) and not is_own(e.ip)]
    return found, unknown
