"""Small stand-ins for the files of the other data sets, and a way to publish them."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lockstep.datasets._download import PublishedFile

Bytes = NDArray[np.uint8]


def tar(files: Mapping[str, bytes]) -> bytes:
    """The content of a .tar.gz archive."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as writer:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            writer.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def zipped(files: Mapping[str, bytes]) -> bytes:
    """The content of a .zip archive."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        for name, content in files.items():
            writer.writestr(name, content)
    return archive.getvalue()


def npz(**arrays: NDArray[np.float64]) -> bytes:
    """The content of a .npz file."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def published(file: PublishedFile, content: bytes, url: str = "http://127.0.0.1:9/file") -> PublishedFile:
    """The same file with another content, published elsewhere."""
    return PublishedFile(file.name, url, hashlib.sha256(content).hexdigest(), file.patience)


def cifar_pictures(count: int, seed: int) -> tuple[Bytes, Bytes]:
    """Pictures uint8 (count, 32, 32, 3), and two labels each, below 10."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 32, 32, 3), np.uint8), rng.integers(0, 10, (count, 2), np.uint8)


def cifar_records(images: Bytes, labels: Bytes) -> bytes:
    """The content of a file of CIFAR's binary version: labels, then red, green and blue."""
    return np.concatenate([labels, images.transpose(0, 3, 1, 2).reshape(len(images), -1)], axis=1).tobytes()


def cifar10() -> dict[str, bytes]:
    """The files of CIFAR-10: batches of 3 pictures."""
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    return {
        f"cifar-10-batches-bin/{name}": cifar_records(images, labels[:, :1])
        for i, name in enumerate(names)
        for images, labels in [cifar_pictures(3, i)]
    } | {"cifar-10-batches-bin/readme.html": b"<html>"}


def cifar100() -> dict[str, bytes]:
    """The files of CIFAR-100: 4 pictures, and 2 for testing."""
    return {
        f"cifar-100-binary/{name}.bin": cifar_records(*cifar_pictures(count, count))
        for name, count in (("train", 4), ("test", 2))
    }


def reviews() -> dict[str, bytes]:
    """The files of the archive of reviews: 4 to train with, 2 to test, 1 without a label."""
    return {
        "aclImdb/README": b"Large Movie Review Dataset",
        "aclImdb/train/labeledBow.feat": b"1 0:9",
        "aclImdb/train/pos/0_9.txt": b"A good, good film.<br />Good!",
        "aclImdb/train/pos/1_10.txt": b"the film is good",
        "aclImdb/train/neg/0_1.txt": b"  a bad film\n",
        "aclImdb/train/neg/1_2.txt": "naïve".encode(),
        "aclImdb/train/unsup/0_0.txt": b"who knows",
        "aclImdb/test/pos/0_8.txt": b"good indeed",
        "aclImdb/test/neg/0_3.txt": b"bad",
    }


def write(directory: Path, files: Mapping[str, bytes]) -> Path:
    """Writes files below a directory."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory


def picture(height: int, width: int, colour: int) -> bytes:
    """The content of a grey JPEG file."""
    from lockstep.data._image.encode import encode_jpeg

    return encode_jpeg(np.full((height, width, 3), colour, np.uint8))


def pictures(directory: Path, split: str = "train") -> Path:
    """Cats that are dark and dogs that are bright, in a data directory."""
    content = {f"cat/{i}.jpg": picture(4 + i, 8, i) for i in range(3)}
    content |= {f"dog/{i}.jpg": picture(8, 4 + i, 200 + i) for i in range(3)}
    return write(directory / "cats_vs_dogs" / split, content).parents[1]
