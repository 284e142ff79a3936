"""The secret that the tasks of a job share: who does not know it takes no part in the job."""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import os
import stat
import string
from pathlib import Path

from lockstep.errors import ArgumentError

VARIABLE = "LOCKSTEP_CLUSTER_SECRET"
FILE_VARIABLE = "LOCKSTEP_CLUSTER_SECRET_FILE"
_log = logging.getLogger("lockstep")
# Whoever has seen a handshake can try secrets out on it, as fast as machines can: short ones do not last.
_LEAST_BYTES = 16
_MOST_BYTES = 4096
# As many as nobody can try out. 32 random hexadecimal digits have them, or 22 random letters and digits.
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


class Secret:
    """A key that proves who knows it, without being told; or none, when anybody is believed.

    Args:
        key: The secret, or `None`.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"Secret({'***' if self.is_set else None})"  # It must not get into logs and tracebacks.

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return self._key is not None

    def proof(self, *parts: str) -> str:
        """Returns the HMAC-SHA256 of `parts`, in hexadecimal; without a secret, nothing."""
        if self._key is None:
            return ""
        code = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in parts:
            data = part.encode("utf-8", "surrogatepass")
            code.update(len(data).to_bytes(8, "big") + data)  # So that no two lists of parts read the same.
        return code.hexdigest()

    def is_proven(self, proof: object, *parts: str) -> bool:
        """Whether `proof` is that of `parts`; in a time that does not tell how much of it is right."""
        expected = self.proof(*parts).encode()
        return isinstance(proof, str) and hmac.compare_digest(proof.encode("utf-8", "replace"), expected)


def from_environment() -> Secret:
    """Reads `LOCKSTEP_CLUSTER_SECRET`, or the file that `LOCKSTEP_CLUSTER_SECRET_FILE` names.

    White space at both ends does not count. A secret of less than 128 bits, by `estimated_bits`, draws a warning.

    Raises:
        ArgumentError: If both are set, the file cannot be read, or the secret has fewer than 16 bytes.
    """
    text, path = os.environ.get(VARIABLE), os.environ.get(FILE_VARIABLE)
    if text is not None and path is not None:
        raise ArgumentError(f"The secret must come from one place. Received: both {VARIABLE} and {FILE_VARIABLE}.")
    if path is not None:
        return Secret(_checked(_content(Path(path)), f"the file that {FILE_VARIABLE} names"))
    return Secret() if text is None else Secret(_checked(os.fsencode(text), VARIABLE))


def estimated_bits(key: bytes) -> float:
    """Returns at most how many bits of chance a secret holds: its length times those of a character of its alphabet.

    It is an upper bound: a text of words, or a password that is somewhere in a list, has fewer.
    """
    characters = frozenset(key)
    size = next((len(alphabet) for alphabet in _ALPHABETS if characters <= alphabet), 256)
    if len(characters) < _FEW_CHARACTERS:
        size = len(characters)
    return len(key) * math.log2(size) if size else 0.0


def _content(path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError("it is not a file")
        with path.open("rb") as file:
            return file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ArgumentError(
            f"{FILE_VARIABLE} must name a file that holds the secret of the cluster. Received: {str(path)!r}: {error}. "
            f"{_ADVICE}"
        ) from error


def _checked(content: bytes, whence: str) -> bytes:
    """An empty secret is most likely one that somebody forgot to fill in: it is no reason to do without."""
    key = content.strip()
    if not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        received = f"{len(key)} bytes" if len(key) <= _MOST_BYTES else "more than that"
        raise ArgumentError(
            f"The secret of a cluster must have {_LEAST_BYTES} to {_MOST_BYTES} bytes. Received: {received} in "
            f"{whence}. {_ADVICE}"
        )
    if (bits := estimated_bits(key)) < _ENOUGH_BITS:
        _log.warning(
            "The secret of a cluster should have %.0f bits or more: whoever hears a handshake can try out secrets on "
            "it. That in %s has at most %.0f. Make a random one: %s",
            *(_ENOUGH_BITS, whence, bits, _MAKE),
        )
    return key
