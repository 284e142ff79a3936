"""Addresses of the cluster: taken apart, looked up, and tried."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, NamedTuple

from lockstep._engine.runtime.waiting import Waiting
from lockstep.errors import AddressError

# RFC 6761: such names never resolve, and those below localhost are always this machine.
_NEVER, _LOCAL = "invalid", "localhost"


class Endpoint(NamedTuple):
    """An address as sockets take it: a name may have several.

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


def join_host(ip: str, port: int) -> str:
    """Formats an IP address and a port as "ip:port", IPv6 in brackets."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def is_ip(text: object) -> bool:
    """Returns whether `text` is an IP address, and no name."""
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
    """Returns whether every machine takes `host` for itself: a loopback address, or "localhost"."""
    return is_loopback(host) if is_ip(host) else _last_label(host) == _LOCAL


def lookup(address: str) -> list[Endpoint]:
    """Returns all that the host of `address` resolves to now, in the system's order, each once.

    Raises:
        OSError: It does not resolve.
    """
    host, port = split(address)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(Endpoint(family, where) for family, _, _, _, where in found))


def resolve(address: str, whose: str, waiting: Waiting) -> list[Endpoint]:
    """Returns what `address` resolves to, as soon as it does: a pod may start before its record in the DNS exists.

    Raises:
        AddressError: If it does not resolve until the limit, or never can.
    """
    while True:
        try:
            return lookup(address)
        except OSError as error:
            problem = _unresolved(address, whose, waiting, error)
            if not waiting.can_retry or _never_resolves(address):
                raise problem from error
            reason = error
        waiting.report(lambda e=reason: f"The host of {address!r}, the address of {whose}, does not resolve yet: {e}.")
        waiting.pause()


def _never_resolves(address: str) -> bool:
    """Returns whether the host's name is one that no DNS ever has."""
    return _last_label(split(address)[0]) == _NEVER


def _unresolved(address: str, whose: str, waiting: Waiting, error: OSError) -> AddressError:
    """Returns the error of an address that has not resolved until the limit."""
    return AddressError(
        f"The host of every task must resolve within {waiting.seconds:g} s (LOCKSTEP_JOIN_TIMEOUT). {address!r}, the "
        f"address of {whose}, does not: {error}. Correct the address in the cluster description (TF_CONFIG), or the "
        "machine's DNS or /etc/hosts."
    )


def outward(address: str, towards: str) -> str | None:
    """Returns the IP address, of those that `address` has, at which other tasks can reach this process.

    All tasks must use addresses of one family, or Gloo does not connect them.

    Args:
        address: What the cluster names for this task; a name may lead here to the loopback interface.
        towards: The IP address of this machine from which it reaches others.

    Returns:
        The address, or `None` if there is none that can be used, or it is unknown.
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


def facing(endpoint: Endpoint) -> str | None:
    """Returns the IP address of this machine from which it reaches `endpoint`; `None` if there is no way to it."""
    with socket.socket(endpoint.family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(endpoint.where)  # Chooses a route; datagrams send nothing for it.
        except OSError:
            return None
        return str(sock.getsockname()[0])


def _last_label(host: str) -> str:
    return host.lower().rstrip(".").rpartition(".")[2]
