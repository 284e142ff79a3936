"""The parts of a checkpoint's file: what an array's is called, and the header that numpy wants to see in it.

A file is a zip archive of `.npy` files, stored without compression, which `numpy.load` reads too. The header is a
function of dtype and shape, so that it is compared when reading, never evaluated.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from lockstep.checkpoint._dtypes import DType, stored_as

METADATA = "metadata.json"
# A zip archive counts the bytes of a name in 16 bits.
LONGEST = 65_535
_MAGIC = b"\x93NUMPY\x01\x00"
_ALIGNMENT = 64
# What a zip archive cannot hold or would cut off, and the sign of escapes itself.
_ESCAPED = re.compile("[%\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class Layout:
    """What an array is.

    Attributes:
        dtype: Its dtype.
        shape: Its shape.
    """

    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The size of its values."""
        return math.prod(self.shape) * self.dtype.itemsize

    def header(self) -> bytes:
        """Returns what comes before its values: NPY format 1.0."""
        fields = f"'descr': {stored_as(self.dtype)!r}, 'fortran_order': False, 'shape': {self.shape!r}, "
        text = f"{{{fields}}}".encode("ascii")
        length = len(text) + 1
        length += -(len(_MAGIC) + 2 + length) % _ALIGNMENT
        return _MAGIC + length.to_bytes(2, "little") + text.ljust(length - 1) + b"\n"


def member_of(key: str) -> str:
    """Returns the name of an array's part."""
    return _ESCAPED.sub(_escape, key) + ".npy"


def _escape(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))
