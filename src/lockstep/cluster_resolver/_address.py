"""Addresses: "host:port" as a socket can use it, judged without touching the network."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from lockstep.cluster_resolver._field import Field, quote

_EXAMPLE = quote("host1:2222")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
# Underscores are no part of a hostname (RFC 1123), but Docker Compose and Slurm make hosts with them.
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_DOTTED_QUAD = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
_SCOPE = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST_HOST = 253  # characters, by RFC 1035
HIGHEST_PORT = 65535
# RFC 6761 reserves .invalid for names that never resolve.
_UNKNOWN_SUFFIX = ".address-unknown.invalid:1"


class _Flaw(NamedTuple):
    rule: str
    example: str = _EXAMPLE


def check_address(field: Field) -> str:
    """Returns the address in `field`, unchanged; raises `ClusterSpecError` unless it is a legal "host:port"."""
    if not isinstance(field.value, str):
        raise field.error('must be a string "host:port"', _EXAMPLE)
    flaw = _flaw(field.value)
    if flaw:
        raise field.error(flaw.rule, flaw.example)
    return field.value


def check_port(field: Field) -> int:
    """Returns the port number in `field`, an integer from 1 to 65535; raises `ClusterSpecError` if not one."""
    port = field.value
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= HIGHEST_PORT:
        raise field.error("must be a port, an integer from 1 to 65535", 2222)
    return port


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of a valid address; an IPv6 host comes without its brackets."""
    # From the right: an IPv6 host has colons of its own.
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """Returns "host:port", with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def address_key(address: str) -> tuple[str, int]:
    """Returns a key that is equal for two spellings of one address."""
    host, port = split_address(address)
    # "::1" and "0:0:0:0:0:0:0:1" are one address; "Host.", "host" and "HOST" are one name (RFC 4343).
    if _is_ipv6(host):
        return ipaddress.IPv6Address(host).compressed, port
    return host.lower().removesuffix("."), port


def unknown_address(job: str, index: int) -> str:
    """Returns the address that stands for a task whose launcher tells its existence but not its address."""
    return f"{job}-{index}{_UNKNOWN_SUFFIX}"


def is_unknown(address: str) -> bool:
    """Returns whether `address` is a stand-in made by `unknown_address`."""
    return address.endswith(_UNKNOWN_SUFFIX)


def _flaw(address: str) -> _Flaw | None:
    """Returns the first rule that an address breaks, each with what the user probably meant."""
    if any(character.isspace() for character in address):
        return _Flaw("must not contain spaces or other whitespace", _correct_example("".join(address.split())))
    if "://" in address:
        rest = address.partition("://")[2].rstrip("/")
        return _Flaw('must be "host:port" alone: drop the scheme and everything up to "://"', _correct_example(rest))
    host, colon, port = address.rpartition(":")
    # Before the port is looked at: the last group of a bare IPv6 address looks like one.
    if _is_ipv6(host):
        return _Flaw("must have an IPv6 host in brackets", _correct_example(f"[{host}]:{port}"))
    bare = address.strip("[]")
    if _is_ipv6(bare):
        return _Flaw("must have an IPv6 host in brackets, then a port", quote(f"[{bare}]:2222"))
    if not colon:
        return _Flaw('must have a port: "host:port"', _correct_example(f"{address}:2222"))
    if not _PORT.fullmatch(port) or int(port) > HIGHEST_PORT:
        return _Flaw("must end in a port, a decimal number from 1 to 65535", _correct_example(f"{host}:2222"))
    return _host_flaw(host, address)


def _host_flaw(host: str, address: str) -> _Flaw | None:
    if not host:
        return _Flaw("must have a host before the port", _correct_example(f"localhost{address}"))
    if host.startswith("[") and host.endswith("]"):
        return None if _is_ipv6(host[1:-1]) else _Flaw("has no IPv6 address in its brackets", '"[::1]:2222"')
    if _DOTTED_QUAD.fullmatch(host):
        return None if _is_ipv4(host) else _Flaw("must have an IPv4 host of four numbers from 0 to 255")
    labels = host.removesuffix(".").split(".")
    if len(host) <= _LONGEST_HOST and all(_LABEL.fullmatch(label) for label in labels):
        return None
    return _Flaw('must have a host made of letters, digits, "-", "_" and "."')


def _correct_example(address: str) -> str:
    """Returns an example: what the user probably meant, if that is an address; else any correct one."""
    return _EXAMPLE if _flaw(address) else quote(address)


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _is_ipv6(host: str) -> bool:
    try:
        scope = ipaddress.IPv6Address(host).scope_id
    except ValueError:
        return False
    # ipaddress takes any scope, "fe80::1%a b" too; a socket takes the name of an interface.
    return scope is None or _SCOPE.fullmatch(scope) is not None
