"""MNIST, from IDX files, from Keras' cache or, where there is none, a sample of it."""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

import numpy as np
from numpy.typing import NDArray

from lockstep import _decoded_size
from lockstep.datasets import _download
from lockstep.datasets._download import UnavailableError
from lockstep.datasets._location import DataLocation, data_location, find
from lockstep.errors import InputError

_UNSIGNED_BYTES = 0x08
_GZIP = b"\x1f\x8b"
Bytes = NDArray[np.uint8]
_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_SIDE = 28
_CLASSES = 10
# Begins the source of the sample, by which `is_sample` knows it.
_SAMPLE = "a sample of MNIST"
_PUBLISHED = _download.PublishedFile(
    name="mnist.npz",
    url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
    sha256="731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
)


def read_idx(file: Traversable, dimensions: int) -> NDArray[np.uint8]:
    """Returns the array of unsigned bytes, of so many dimensions, in an IDX file, which may be compressed with gzip."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}. Check its permissions.") from error
    return parse_idx(content, dimensions, str(file))


def parse_idx(content: bytes, dimensions: int, name: str) -> NDArray[np.uint8]:
    """Returns the array in the bytes of an IDX file; `name` is for messages. Otherwise as `read_idx`."""
    # By content, not by suffix: files are renamed, and browsers unpack .gz.
    if content.startswith(_GZIP):
        try:
            # Up to the limit of decoded sizes: a small gzip file can stand for gigabytes.
            content = _decoded_size.inflate(content, _decoded_size.WINDOW_BITS["GZIP"], name)
        except (OSError, EOFError, zlib.error) as error:
            raise _damaged_file(name, f"Its gzip compression is broken: {error}.") from error
    # Type and rank are the last two bytes of the magic number.
    magic, expected = content[:4], bytes((0, 0, _UNSIGNED_BYTES, dimensions))
    if magic != expected:
        raise _damaged_file(
            name,
            f"It must begin with the magic number 0x{expected.hex()} (unsigned bytes, {dimensions} "
            f"dimension{'s' if dimensions > 1 else ''}). Received: {f'0x{magic.hex()}' if magic else 'an empty file'}.",
        )
    header, data = content[4 : 4 + 4 * dimensions], content[4 + 4 * dimensions :]
    if len(header) != 4 * dimensions:
        raise _damaged_file(name, f"It must give {dimensions} sizes of 4 bytes each. Received: {len(header)} bytes.")
    sizes = struct.unpack(f">{dimensions}I", header)
    # A download that broke off has a whole header.
    if math.prod(sizes) != len(data):
        product = f"{' x '.join(map(str, sizes))} = {math.prod(sizes)}"
        raise _damaged_file(name, f"Its header promises {product} bytes of data. Received: {len(data)}.")
    # A copy, because an array over bytes cannot be written to.
    return np.frombuffer(data, np.uint8).reshape(sizes).copy()


def _damaged_file(name: str, problem: str) -> InputError:
    return InputError(f"{name} is no complete IDX file. {problem} Replace it with a fresh copy.")


@dataclass(frozen=True, eq=False)
class Mnist:
    """Images of digits and which digits they are.

    Attributes:
        train_images: uint8 (n, 28, 28), from 0 (paper) to 255 (ink).
        train_labels: uint8 (n,), from 0 to 9.
        test_images: uint8 (m, 28, 28).
        test_labels: uint8 (m,).
        source: In words, which data this is and where it was found.

    Raises:
        InputError: If the arrays are not such data.
    """

    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes
    source: str

    def __post_init__(self) -> None:
        """Refuses arrays that are not images and labels of digits."""
        _check_split("training", self.train_images, self.train_labels, self.source)
        _check_split("test", self.test_images, self.test_labels, self.source)


def load_mnist() -> Mnist:
    """Returns MNIST, or a sample of it; its `source` says which.

    Looks, in this order, for

    1. the four IDX files, as they are or with .gz, in `$LOCKSTEP_DATA_DIR/mnist` or `$LOCKSTEP_DATA_DIR`; when the
       variable is set, nowhere else;
    2. `datasets/mnist.npz` in `$KERAS_HOME`, else `~/.keras`, where Keras caches it;
    3. the same file in the network, unless `LOCKSTEP_OFFLINE=1`; without network this gives up within seconds;
    4. the sample that comes with lockstep: 5,000 training and 1,000 test images.

    All workers must load the same data. On several machines, let `LOCKSTEP_DATA_DIR` name a directory on each.

    Raises:
        DataNotFoundError: If `LOCKSTEP_DATA_DIR` is set and does not hold MNIST.
        InputError: If a file in it is damaged; the message names the file and what is wrong.
    """
    return load_from(data_location(None))


def load_from(data_location: DataLocation) -> Mnist:
    """Returns MNIST from a place, as `load_mnist` does."""
    if data_location.root is not None:
        files = find(data_location.root, "mnist", _NAMES, data_location.setting)
        return _from_idx(files, f"MNIST from {files[0].parent}")
    try:
        content, path = _download.obtain(_PUBLISHED, data_location.may_download)
    # A tutorial must run on a plane; `source`, and a line on standard error, say what it runs on.
    except UnavailableError as reason:
        directory = resources.files("lockstep.datasets") / "sample" / "mnist"
        source = f"{_SAMPLE}, 5,000 training and 1,000 test images, that comes with lockstep ({reason})"
        return _from_idx([directory / f"{name}.gz" for name in _NAMES], source)
    return _from_npz(content, f"MNIST from {path}")


def _from_npz(content: bytes, source: str) -> Mnist:
    # Never a pickle: loading one runs code.
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return Mnist(arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"], source)


def _from_idx(files: Sequence[Traversable], source: str) -> Mnist:
    images, labels, test_images, test_labels = (
        read_idx(file, dimensions) for file, dimensions in zip(files, (3, 1, 3, 1), strict=True)
    )
    return Mnist(images, labels, test_images, test_labels, source)


def is_sample(mnist: Mnist) -> bool:
    """Returns whether this is the sample that comes with lockstep, not MNIST."""
    return mnist.source.startswith(_SAMPLE)


def _check_split(name: str, images: Bytes, labels: Bytes, source: str) -> None:
    # Also of files of the right format that belong to another data set.
    well_formed = images.shape == (labels.size, _SIDE, _SIDE) and labels.ndim == 1 and labels.size > 0
    if not well_formed or images.dtype != np.uint8 or labels.dtype != np.uint8:
        raise InputError(
            f"The {name} data of MNIST must be images uint8(n, {_SIDE}, {_SIDE}) and labels uint8(n,), at least one. "
            f"Received: {images.dtype}{images.shape} and {labels.dtype}{labels.shape}, in {source}. Use files that "
            "belong together."
        )
    if labels.max() >= _CLASSES:
        raise InputError(
            f"The {name} labels of MNIST must be from 0 to {_CLASSES - 1}. Received: {labels.max()}, in {source}. Use "
            "the files of the digits."
        )
