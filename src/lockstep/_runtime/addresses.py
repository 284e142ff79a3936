"""Addresses of the cluster: resolved and tried before anything waits for them."""

from __future__ import annotations

import socket
import time

from lockstep.errors import AddressError

# A name may be new in the cluster's DNS when its pod starts; a name that is wrong stays wrong.
_RESOLVE_SECONDS = 5.0
_RETRY_SECONDS = 0.2


def split(address: str) -> tuple[str, int]:
    """Splits "host:port" or "[v6]:port"."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def resolve(address: str, whose: str) -> tuple[str, int]:
    """Returns the IP address and port of `address`.

    Raises:
        AddressError: If the host name cannot be resolved within five seconds.
    """
    host, port = split(address)
    deadline = time.monotonic() + _RESOLVE_SECONDS
    while True:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return str(found[0][4][0]), port
        except OSError as error:
            if time.monotonic() > deadline:
                raise AddressError(
                    f"The host of every task must resolve. {address!r}, the address of {whose}, does not: {error}. "
                    "Correct the address in the cluster description (TF_CONFIG), or the machine's DNS or /etc/hosts."
                ) from error
            time.sleep(_RETRY_SECONDS)


def ip_of(address: str) -> str | None:
    """Returns the IP address of `address`, or `None` if it is unknown or does not resolve now."""
    try:
        host, port = split(address)
        return str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, ValueError):
        return None


def join_host(ip: str, port: int) -> str:
    """Formats an IP address and a port as "ip:port", IPv6 in brackets."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def listen(address: str, whose: str) -> socket.socket:
    """Opens a listening socket on exactly the interface that `address` names.

    Raises:
        AddressError: If the address does not resolve, is not of this machine, or its port is in use.
    """
    ip, port = resolve(address, whose)
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((ip, port))
        server.listen(128)
    except OSError as error:
        server.close()
        raise AddressError(
            f"The first task must be able to listen on its own address. {whose} cannot listen on {address!r} ({ip}): "
            f"{error.strerror or error}. If another program, or another process started as {whose}, uses the port, "
            "stop it or choose another port; if the address is not of this machine, correct it in TF_CONFIG."
        ) from error
    return server
