"""The secret that the tasks of a job share: who does not know it takes no part in the job."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from pathlib import Path

from lockstep.errors import ArgumentError

VARIABLE = "LOCKSTEP_CLUSTER_SECRET"
FILE_VARIABLE = "LOCKSTEP_CLUSTER_SECRET_FILE"
# Whoever has seen a handshake can try secrets out on it, as fast as machines can: short ones do not last.
_LEAST_BYTES = 16
_MOST_BYTES = 4096
_ADVICE = "Give all tasks the same long random one, such as the output of: openssl rand -hex 32"


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

    White space at both ends does not count.

    Raises:
        ArgumentError: If both are set, the file cannot be read, or the secret has fewer than 16 bytes.
    """
    text, path = os.environ.get(VARIABLE), os.environ.get(FILE_VARIABLE)
    if text is not None and path is not None:
        raise ArgumentError(f"The secret must come from one place. Received: both {VARIABLE} and {FILE_VARIABLE}.")
    if path is not None:
        return Secret(_checked(_content(Path(path)), f"the file that {FILE_VARIABLE} names"))
    return Secret() if text is None else Secret(_checked(os.fsencode(text), VARIABLE))


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
    return key
