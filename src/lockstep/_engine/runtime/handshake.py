"""Mutual authentication of two tasks: one line of JSON at a time, bounded, never evaluated.

1. The caller greets, with a number used once (a nonce).
2. The listener answers with one of its own, and says whether it demands a secret; nothing that depends on the secret.
3. The caller proves that it knows the secret: an HMAC over its role and both nonces.
4. Only then the listener proves the same, for its own role. Whoever connects without the secret gets no HMAC on which
   to try out secrets.
5. Every later line is sealed: it carries a proof over its kind, both nonces and the line. So a line that was heard
   elsewhere, or earlier, proves nothing.

One side has to prove itself first, and whom it speaks to can then try out secrets on the proof. It is the caller:
anybody can connect to a listener, but to be called one must stand at the address that the cluster names. The caller's
first proof is over nonces alone: what it says of itself goes only to a listener that knows the secret.

Without a secret the proofs are empty, and anybody is believed.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Mapping
from typing import Any

from lockstep._engine.runtime.secret import Secret

# Of a line, and of one before its sender has proven anything: a greeting, or the proof.
LINE_BYTES = 1 << 18
GREETING_BYTES = 512
# The roles whose proofs are exchanged.
CALLER, LISTENER = "caller", "listener"
# The answer to a caller that has proven nothing. It is not sealed: a seal would be something to try out secrets on.
REFUSED = {"refused": "another secret"}
_VERSION = 3
_NONCE_BYTES = 16
_NONCE = re.compile(f"[0-9a-f]{{{2 * _NONCE_BYTES}}}")


class Seal:
    """Writes and reads the lines of one conversation, after the greetings.

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

    def prove(self, role: str, **more: Any) -> bytes:
        """Returns the line by which the side of this `role` proves that it knows the secret."""
        return self.write(role, more)

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


class LineReader:
    """The lines that come over a connection; a time-out of the socket loses nothing.

    Args:
        sock: The connection.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._received = bytearray()

    def read(self) -> bytes:
        """Receives a line, with its end; it is not whole if the other side hung up, or it is too long."""
        while (end := self._received.find(b"\n")) < 0 and len(self._received) <= LINE_BYTES:
            data = self._sock.recv(65536)
            if not data:
                break
            self._received += data
        return self._take(end + 1 if end >= 0 else len(self._received))

    def rest(self) -> bytes:
        """Returns what has come after the last line."""
        return self._take(len(self._received))

    def _take(self, size: int) -> bytes:
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


def send(sock: socket.socket, data: bytes) -> None:
    """Sends; whoever has gone is noticed by whoever waits for it."""
    try:
        sock.sendall(data)
    except OSError:
        return
