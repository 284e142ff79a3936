"""IDX files, the format of MNIST: a magic number, the size of each dimension, then one array of bytes."""

from __future__ import annotations

import math
import struct
import zlib
from importlib.resources.abc import Traversable

import numpy as np
from numpy.typing import NDArray

from lockstep import _decoded_size
from lockstep.errors import InputError

_UNSIGNED_BYTES = 0x08
_GZIP = b"\x1f\x8b"


def read_idx(file: Traversable, dimensions: int) -> NDArray[np.uint8]:
    """Returns the array of unsigned bytes in an IDX file, which may be compressed with gzip.

    Args:
        file: A path, or a file of a package.
        dimensions: How many the array must have.

    Raises:
        InputError: If the file cannot be read, is damaged, or holds something else.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}. Check its permissions.") from error
    return parse_idx(content, dimensions, str(file))


def parse_idx(content: bytes, dimensions: int, name: str) -> NDArray[np.uint8]:
    """Returns the array in the bytes of an IDX file; `name` is for messages. Otherwise as `read_idx`."""
    # By content, not by suffix: files are renamed, and browsers unpack .gz.
    content = _decompress(content, name)
    _check_magic(content[:4], dimensions, name)
    data = content[4 + 4 * dimensions :]
    sizes = _sizes(content[4 : 4 + 4 * dimensions], dimensions, name)
    _check_length(data, sizes, name)
    # A copy, because an array over bytes cannot be written to.
    return np.frombuffer(data, np.uint8).reshape(sizes).copy()


def _decompress(content: bytes, name: str) -> bytes:
    if not content.startswith(_GZIP):
        return content
    try:
        # Up to the limit of decoded sizes: a small gzip file can stand for gigabytes.
        return _decoded_size.inflated(content, _decoded_size.WINDOW_BITS["GZIP"], name)
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged_file(name, f"Its gzip compression is broken: {error}.") from error


def _check_magic(magic: bytes, dimensions: int, name: str) -> None:
    # Type and rank are the last two bytes of the magic number.
    expected = bytes((0, 0, _UNSIGNED_BYTES, dimensions))
    if magic != expected:
        raise _damaged_file(
            name,
            f"It must begin with the magic number 0x{expected.hex()} (unsigned bytes, {dimensions} "
            f"dimension{'s' if dimensions > 1 else ''}). Received: {f'0x{magic.hex()}' if magic else 'an empty file'}.",
        )


def _sizes(header: bytes, dimensions: int, name: str) -> tuple[int, ...]:
    if len(header) != 4 * dimensions:
        raise _damaged_file(name, f"It must give {dimensions} sizes of 4 bytes each. Received: {len(header)} bytes.")
    return struct.unpack(f">{dimensions}I", header)


def _check_length(data: bytes, sizes: tuple[int, ...], name: str) -> None:
    # A download that broke off has a whole header.
    if math.prod(sizes) != len(data):
        product = " x ".join(map(str, sizes))
        raise _damaged_file(
            name,
            f"Its header promises {product} = {math.prod(sizes)} bytes of data. Received: {len(data)}.",
        )


def _damaged_file(name: str, problem: str) -> InputError:
    return InputError(f"{name} is no complete IDX file. {problem} Replace it with a fresh copy.")
