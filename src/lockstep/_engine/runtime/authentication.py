"""Mutual authentication of two tasks: one line of JSON at a time, bounded, never evaluated.

1. The caller sends a number used once (a nonce).
2. The listener answers with one of its own, and says whether it demands a secret; nothing that depends on the secret.
3. The caller proves that it knows the secret: an HMAC over its role and both nonces.
4. Only then the listener proves the same, for its own role. Whoever connects without the secret gets no HMAC on which
   to try out secrets.
5. Every later line carries an HMAC over its kind, both nonces and the line. So a line of another conversation, or of
   another kind, proves nothing.

One side has to prove itself first, and its peer can then try out secrets on the HMAC. It is the caller: anybody can
connect to a listener, but to be called one must stand at the address that the cluster names. The caller's first HMAC
is over nonces alone: its description of itself goes only to a listener that knows the secret.

Without a secret the HMACs are empty, and every peer is believed.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import json
import logging
import math
import os
import re
import secrets
import socket
import stat
import string
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from lockstep.errors import ArgumentError, UnsupportedError

_log = logging.getLogger("lockstep")

# A hello holds the whole cluster, some 30 bytes a task.
LINE_BYTES = 1 << 18
# Before its sender has proven anything: a nonce, or the first HMAC, each of about 150 bytes.
NONCE_LINE_BYTES = 512
# The roles that are authenticated.
CALLER, LISTENER = "caller", "listener"
# The answer to a caller without the secret. It has no HMAC: that would be something to try out secrets on.
REFUSED = {"refused": "another secret"}
_PROTOCOL = 3
_NONCE_BYTES = 16
_NONCE = re.compile(f"[0-9a-f]{{{2 * _NONCE_BYTES}}}")

VARIABLE = "LOCKSTEP_CLUSTER_SECRET"
FILE_VARIABLE = "LOCKSTEP_CLUSTER_SECRET_FILE"
# A handshake that was overheard lets machines try out secrets as fast as they can hash: short ones do not last.
_MIN_BYTES = 16
_MAX_BYTES = 4096
# 128 bits cannot be tried out. 32 random hexadecimal digits have them, or 22 random letters and digits.
_ENOUGH_BITS = 128.0
# A random secret of 16 bytes or more has more different characters than that; one of fewer has them from a small set.
_FEW_CHARACTERS = 8
_MAKE = 'python -c "import secrets; print(secrets.token_hex(32))"'
_ADVICE = f"Give all tasks the same long random one, such as the output of: {_MAKE}"
# From the smallest set to the largest: a secret is taken to be drawn from the first that has all its characters.
_ALPHABETS = tuple(
    frozenset(characters.encode())
    for characters in (
        string.digits,
        string.digits + "abcdef",
        string.digits + "ABCDEF",
        string.ascii_lowercase,
        string.ascii_uppercase,
        string.digits + string.ascii_lowercase,
        string.digits + string.ascii_uppercase,
        string.ascii_letters,
        string.ascii_letters + string.digits,
        string.ascii_letters + string.digits + "+/=-_",
        string.printable,
    )
)

_MTLS_ARGUMENTS = {
    "LOCKSTEP_MTLS_CERT": "mtls_cert_file",
    "LOCKSTEP_MTLS_KEY": "mtls_key_file",
    "LOCKSTEP_MTLS_CA": "mtls_ca_file",
}


class Secret:
    """The secret that all tasks of a job share; without a `key` there is none, and every peer is believed."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"Secret({'***' if self.is_set else None})"  # It must not get into logs and tracebacks.

    @property
    def is_set(self) -> bool:
        """Returns whether there is a secret."""
        return self._key is not None

    def mac(self, *parts: str) -> str:
        """Returns the HMAC-SHA256 of `parts`, in hexadecimal; without a secret, nothing."""
        if self._key is None:
            return ""
        code = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in parts:
            data = part.encode("utf-8", "surrogatepass")
            code.update(len(data).to_bytes(8, "big") + data)  # So that no two lists of parts read the same.
        return code.hexdigest()

    def verify(self, mac: object, *parts: str) -> bool:
        """Returns whether `mac` is that of `parts`; in a time that does not tell how much of it is right."""
        expected = self.mac(*parts).encode()
        return isinstance(mac, str) and hmac.compare_digest(mac.encode("utf-8", "replace"), expected)


class Session:
    """Signs and verifies the lines of one conversation, which is known by the nonces of caller and listener."""

    def __init__(self, secret: Secret, caller: str, listener: str) -> None:
        self._secret = secret
        self._nonces = caller, listener

    def sign(self, kind: str, value: Mapping[str, Any]) -> bytes:
        """Returns `value` as a line of this `kind`: a line of one kind cannot be passed off as another."""
        text = json.dumps(value)
        return line({"says": text, "proof": self._secret.mac("lockstep", kind, *self._nonces, text)})

    def verify(self, kind: str, data: bytes) -> dict[str, Any] | None:
        """Returns the value of a signed line, or `None` if it is none of this `kind`, or its HMAC is wrong."""
        outer = parse(data)
        if outer is None or not isinstance(text := outer.get("says"), str):
            return None
        # Verified before it is parsed: JSON of strangers costs no more than its outer object.
        return parse(text) if self._secret.verify(outer.get("proof"), "lockstep", kind, *self._nonces, text) else None

    def token_mac(self, token: bytes) -> str:
        """Returns an HMAC that proves, in this conversation alone, that a side can read `token`."""
        return Secret(token).mac("token", *self._nonces)


def new_nonce() -> str:
    """Returns a nonce."""
    return secrets.token_hex(_NONCE_BYTES)


def nonce_line(nonce: str, **more: Any) -> bytes:
    """Returns the first line of either side."""
    return line({"lockstep": _PROTOCOL, "nonce": nonce, **more})


def parse_nonce_line(data: bytes) -> dict[str, Any] | None:
    """Returns the object in a first line, or `None` if it is none of this version of the protocol."""
    value = parse(data)
    if value is None or type(value.get("lockstep")) is not int or value["lockstep"] != _PROTOCOL:
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
    """Reads lines from a connection; a time-out of the socket loses nothing."""

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
        """Returns the bytes after the last line."""
        return self._take(len(self._received))

    def _take(self, size: int) -> bytes:
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


def send(sock: socket.socket, data: bytes) -> None:
    """Sends; a peer that has gone is noticed by the next read."""
    try:
        sock.sendall(data)
    except OSError:
        return


def secret_from_environment() -> Secret:
    """Reads `LOCKSTEP_CLUSTER_SECRET`, or the file that `LOCKSTEP_CLUSTER_SECRET_FILE` names.

    White space at both ends does not count. A secret of less than 128 bits, by `estimated_bits`, draws a warning.

    Raises:
        ArgumentError: If both are set, the file cannot be read, or the secret has fewer than 16 bytes.
    """
    text, path = os.environ.get(VARIABLE), os.environ.get(FILE_VARIABLE)
    if text is not None and path is not None:
        raise ArgumentError(f"The secret must come from one place. Received: both {VARIABLE} and {FILE_VARIABLE}.")
    if path is not None:
        return Secret(_check_key(_read_key(Path(path)), f"the file that {FILE_VARIABLE} names"))
    return Secret() if text is None else Secret(_check_key(os.fsencode(text), VARIABLE))


def estimated_bits(key: bytes) -> float:
    """Returns an upper bound of a secret's entropy: its length times the bits of a character of its alphabet.

    A text of words, or a password that is somewhere in a list, has fewer.
    """
    characters = frozenset(key)
    size = next((len(alphabet) for alphabet in _ALPHABETS if characters <= alphabet), 256)
    if len(characters) < _FEW_CHARACTERS:
        size = len(characters)
    return len(key) * math.log2(size) if size else 0.0


def _read_key(path: Path) -> bytes:
    try:
        # A pipe would wait for a writer, a device might never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError("it is not a file")
        with path.open("rb") as file:
            return file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ArgumentError(
            f"{FILE_VARIABLE} must name a file that holds the secret of the cluster. Received: {str(path)!r}: {error}. "
            f"{_ADVICE}"
        ) from error


def _check_key(content: bytes, whence: str) -> bytes:
    key = content.strip()
    # An empty secret is most likely one that somebody forgot to fill in: it is no reason to do without.
    if not _MIN_BYTES <= len(key) <= _MAX_BYTES:
        received = f"{len(key)} bytes" if len(key) <= _MAX_BYTES else "more than that"
        raise ArgumentError(
            f"The secret of a cluster must have {_MIN_BYTES} to {_MAX_BYTES} bytes. Received: {received} in "
            f"{whence}. {_ADVICE}"
        )
    if (bits := estimated_bits(key)) < _ENOUGH_BITS:
        _log.warning(
            "The secret of a cluster should have %.0f bits or more: whoever hears a handshake can try out secrets on "
            "it. That in %s has at most %.0f. Make a random one: %s",
            *(_ENOUGH_BITS, whence, bits, _MAKE),
        )
    return key


def mtls_arguments(initialize: Callable[..., Any]) -> dict[str, Any]:
    """Returns the arguments that make `jax.distributed.initialize` use certificates, if the environment names them.

    Raises:
        ArgumentError: If some but not all files are named, or one is not there.
        UnsupportedError: If the installed jax has no such arguments.
    """
    given = {name: os.environ.get(name) for name in _MTLS_ARGUMENTS}
    if not any(given.values()):
        return {}
    for name, path in given.items():
        if not path or not Path(path).is_file():
            raise ArgumentError(
                f"mTLS takes three files: {', '.join(_MTLS_ARGUMENTS)}. Received: {name}={path!r}"
                f"{', which is no file' if path else ''}. Set all three to files in PEM format, or none."
            )
    # To go on would start jax's service open to everybody, although certificates were asked for.
    if not set(_MTLS_ARGUMENTS.values()) <= inspect.signature(initialize).parameters.keys():
        raise UnsupportedError(
            "LOCKSTEP_MTLS_CERT and its siblings need a jax whose coordination service can use certificates, such as "
            f"0.12. Received: jax {metadata.version('jax')}. Install a newer one, or set LOCKSTEP_CLUSTER_SECRET."
        )
    return {_MTLS_ARGUMENTS[name]: path for name, path in given.items()}
