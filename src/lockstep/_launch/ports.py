"""The addresses of the tasks, on the loopback interface."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Self

from lockstep.errors import AddressError

_HOST = "127.0.0.1"


class Reservation:
    """Holds `count` ports, from `base` on or any free ones, until they are freed for the tasks to listen on."""

    def __init__(self, count: int, base: int | None) -> None:
        with ExitStack() as sockets:
            ports = [0] * count if base is None else range(base, base + count)
            held = [sockets.enter_context(_listening(port)) for port in ports]
            self.addresses = [f"{_HOST}:{each.getsockname()[1]}" for each in held]
            self._held = sockets.pop_all()

    def free(self) -> None:
        """Let others bind the ports."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.free()


def _listening(port: int) -> socket.socket:
    candidate = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        _listen(candidate, port)
    except OSError as error:
        candidate.close()
        raise AddressError(
            f"Every task needs a free port on {_HOST}, and port {port} cannot be used: {error.strerror}. "
            "Choose another --port-base, or leave it out to have free ports picked."
        ) from error
    return candidate


def _listen(candidate: socket.socket, port: int) -> None:
    """A given port may still wait for packets of an earlier run; one that another process listens on is refused."""
    if port:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    candidate.bind((_HOST, port))
    candidate.listen(1)
