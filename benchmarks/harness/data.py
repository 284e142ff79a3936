"""What the sides read, written once for all of them.

Real data where there are some: `--data DIR`, else `$LOCKSTEP_DATA_DIR`, holding `mnist` and `cats_vs_dogs`. Otherwise
the sample of MNIST that comes with lockstep, over and over, and drawn pictures. Speed does not depend on which.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

RECORDS, RECORD_BYTES = 400_000, 100
_IMAGES = 60_000


def prepare(directory: Path, needs: set[str], data: str | None) -> dict[str, str]:
    """Writes what is needed; returns, for each, where it came from."""
    if data:
        os.environ["LOCKSTEP_DATA_DIR"] = data
    os.environ.setdefault("LOCKSTEP_OFFLINE", "1")
    return {need: PREPARATIONS[need](directory) for need in sorted(needs)}


def digits(directory: Path) -> str:
    """Writes 60,000 pictures of digits: `digits.npz`, and `mnist/` as MNIST is published, unpacked."""
    import lockstep

    found = lockstep.datasets.load_mnist()
    images = np.resize(found.train_images, (_IMAGES, 28, 28))
    labels = np.resize(found.train_labels, (_IMAGES,))
    np.savez(directory / "digits.npz", images=images, labels=labels)
    (directory / "mnist").mkdir()
    parts = {"train": (images, labels), "t10k": (found.test_images, found.test_labels)}
    for name, (pictures, classes) in parts.items():
        _write_idx(directory / "mnist" / f"{name}-images-idx3-ubyte", pictures)
        _write_idx(directory / "mnist" / f"{name}-labels-idx1-ubyte", classes)
    kind = "MNIST" if len(found.train_images) == _IMAGES else f"a sample of MNIST ({len(found.train_images)}), repeated"
    return f"60,000 pictures of digits: {kind}"


def _write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(header + np.ascontiguousarray(array).tobytes())


def records(directory: Path) -> str:
    """Writes a TFRecord file."""
    import lockstep

    content = np.random.default_rng(0).bytes(RECORDS + RECORD_BYTES)
    with lockstep.data.TFRecordWriter(str(directory / "records")) as writer:
        for i in range(RECORDS):
            writer.write(content[i : i + RECORD_BYTES])
    return f"{RECORDS:,} records of {RECORD_BYTES} bytes"


def pictures(directory: Path) -> str:
    """Links photographs, or draws pictures of their size."""
    found = Path(os.environ.get("LOCKSTEP_DATA_DIR", "nowhere")) / "cats_vs_dogs"
    if found.is_dir():
        (directory / "pictures").symlink_to(found.resolve())
        return "photographs of cats_vs_dogs"
    _draw(directory / "pictures")
    return "400 drawn pictures of the size of photographs"


def _draw(directory: Path) -> None:
    from lockstep.data._image.encode import encode_jpeg

    random = np.random.default_rng(0)
    directory.mkdir()
    for i in range(400):
        coarse = random.integers(0, 256, (47, 63, 3), dtype=np.uint8)
        picture = coarse.repeat(8, axis=0).repeat(8, axis=1)[: 375 - i % 40, : 500 - i % 60]
        (directory / f"{i}.jpg").write_bytes(encode_jpeg(np.ascontiguousarray(picture)))


PREPARATIONS: Mapping[str, Callable[[Path], str]] = {"digits": digits, "records": records, "pictures": pictures}


def load_digits(directory: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns uint8 (60000, 28, 28) images and uint8 (60000,) labels; called by sides."""
    with np.load(Path(directory) / "digits.npz") as found:
        return found["images"], found["labels"]
