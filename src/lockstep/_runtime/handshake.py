"""What two tasks say before they believe each other: one line of JSON at a time, bounded, never evaluated.

1. The caller greets, with a number used once (a nonce).
2. Who is called answers with one of its own, and says whether it demands a secret.
3. Every later line is sealed: it carries a proof that whoever wrote it knows the secret, over both nonces and the line.
   So a line that was heard elsewhere, or earlier, proves nothing.

Without a secret the seal is empty, and anybody is believed.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Mapping
from typing import Any

from lockstep._runtime.secret import Secret

# Of a line of the one kind and the other.
LINE_BYTES = 1 << 18
GREETING_BYTES = 512
_VERSION = 2
_NONCE_BYTES = 16
_NONCE = re.compile(f"[0-9a-f]{{{2 * _NONCE_BYTES}}}")


class Seal:
    """Writes and reads the lines of one conversation.

    Args:
        secret: This side's.
        caller: The caller's nonce.
        called: The other one's.
    """

    def __init__(self, secret: Secret, caller: str, called: str) -> None:
        self._secret = secret
        self._nonces = caller, called

    def write(self, kind: str, value: Mapping[str, Any]) -> bytes:
        """Returns `value` as a line of this `kind`: a line of one kind cannot be passed off as another."""
        text = json.dumps(value)
        return line({"says": text, "proof": self._secret.proof("lockstep", kind, *self._nonces, text)})

    def read(self, kind: str, data: bytes) -> dict[str, Any] | None:
        """Returns what a line says, or `None` if it is none of this `kind`, or not proven."""
        outer = parse(data)
        if outer is None or not isinstance(text := outer.get("says"), str):
            return None
        if not self._secret.is_proven(outer.get("proof"), "lockstep", kind, *self._nonces, text):
            return None
        return parse(text)

    def shows(self, token: bytes) -> str:
        """Returns what shows, in this conversation alone, that a side can read `token`."""
        return Secret(token).proof("token", *self._nonces)


def new_nonce() -> str:
    """Returns a nonce."""
    return secrets.token_hex(_NONCE_BYTES)


def greeting(nonce: str, **more: Any) -> bytes:
    """Returns the first line of either side."""
    return line({"lockstep": _VERSION, "nonce": nonce, **more})


def greeted(data: bytes) -> dict[str, Any] | None:
    """Returns what a first line says, or `None` if it is none."""
    value = parse(data)
    if value is None or type(value.get("lockstep")) is not int or value["lockstep"] != _VERSION:
        return None
    nonce = value.get("nonce")
    return value if isinstance(nonce, str) and _NONCE.fullmatch(nonce) else None


def line(value: Mapping[str, Any]) -> bytes:
    """Returns a line of JSON."""
    return json.dumps(value).encode() + b"\n"


def parse(data: bytes | str) -> dict[str, Any] | None:
    """Returns the JSON object that `data` is, or `None`."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_line(sock: socket.socket) -> tuple[bytes, bytes]:
    """Receives a line, with its end, and what came with it; the line is not whole if the other side hung up."""
    received = bytearray()
    while (end := received.find(b"\n")) < 0 and len(received) <= LINE_BYTES:
        data = sock.recv(65536)
        if not data:
            return bytes(received), b""
        received += data
    size = end + 1 if end >= 0 else len(received)
    return bytes(received[:size]), bytes(received[size:])


def send(sock: socket.socket, data: bytes) -> None:
    """Sends; whoever has gone is noticed by whoever waits for it."""
    try:
        sock.sendall(data)
    except OSError:
        return
