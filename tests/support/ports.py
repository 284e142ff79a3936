"""Ports that nobody else is given until a program of the test has listened on them."""

from __future__ import annotations

import atexit
import socket
from collections import deque

# So many stay held: a test is long over when its ports are let go of.
_MOST = 256
_held: deque[socket.socket] = deque()


def free_ports(count: int, ip: str = "127.0.0.1") -> list[int]:
    """Returns free ports, each of which is held by a socket that does not listen.

    The system gives a port that somebody holds to no other socket, and a program that sets SO_REUSEADDR, as all of
    lockstep's do, may listen on it all the same. A port that was only found free may be anybody's a moment later.
    """
    return [_hold(ip) for _ in range(count)]


def free_port() -> int:
    """Returns one such port."""
    return free_ports(1)[0]


def _hold(ip: str) -> int:
    holder = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((ip, 0))
    _held.append(holder)
    while len(_held) > _MOST:
        _held.popleft().close()
    return holder.getsockname()[1]


@atexit.register
def _let_go() -> None:
    while _held:
        _held.pop().close()
