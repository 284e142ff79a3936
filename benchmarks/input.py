"""lockstep.data beside tf.data, in turn on the same machine: batches of MNIST, JPEG pictures, TFRecords.

    .venv/bin/python benchmarks/input.py [--rounds N] [--peer PYTHON]     or: make bench-input

`--peer` names the Python of an environment with tensorflow-cpu 2.15.1. Each measurement runs in a process of its own;
the two sides take turns, so that drift of the machine meets both, and medians are compared.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

RECORDS, RECORD_BYTES = 400_000, 100
# What must be reached, as a multiple of the peer.
BARS = {"mnist, first pass": 2.0, "mnist, cached": 2.0, "jpeg": 1.0, "tfrecord": 0.5}
UNITS = {"mnist, first pass": "batches/s", "mnist, cached": "batches/s", "jpeg": "images/s", "tfrecord": "records/s"}


def rate(batches: Iterable[Any], each: int = 1) -> float:
    """Reads all batches; returns how many (times `each`) came in a second."""
    start = time.perf_counter()
    count = sum(1 for _ in batches)
    return count * each / (time.perf_counter() - start)


def mnist(data: Any, cast: Callable[[Any], Any], directory: Path) -> dict[str, float]:
    """map(scale), cache, shuffle(10000), batch(64): the first pass of a new dataset, and later ones."""
    arrays = np.load(directory / "mnist.npz")
    images, labels = arrays["images"], arrays["labels"]

    def scale(image: Any, label: Any) -> Any:
        return cast(image) / 255, label

    def dataset() -> Any:
        return data.Dataset.from_tensor_slices((images, labels)).map(scale).cache().shuffle(10000).batch(64)

    rate(dataset().take(20))  # Libraries are loaded; the dataset that is measured is another one.
    measured = dataset()
    first = rate(measured)
    return {"mnist, first pass": first, "mnist, cached": statistics.median(rate(measured) for _ in range(5))}


def jpeg(data: Any, read: Callable[[Any], Any], directory: Path) -> dict[str, float]:
    """Decode and resize to 224 x 224, batch(16)."""
    paths = sorted(glob.glob(str(directory / "pictures" / "**" / "*.jpg"), recursive=True))
    names = np.array([p.encode() for p in paths], object)
    dataset = data.Dataset.from_tensor_slices(names).map(read, num_parallel_calls=data.AUTOTUNE).batch(16)
    rate(dataset.take(4))
    return {"jpeg": statistics.median(rate(dataset, 16) for _ in range(3))}


def tfrecord(data: Any, directory: Path) -> dict[str, float]:
    """Read, verify, batch(64)."""
    dataset = data.TFRecordDataset(str(directory / "records")).batch(64)
    rate(dataset.take(20))
    return {"tfrecord": statistics.median(rate(dataset, 64) for _ in range(3))}


def lockstep_side(directory: Path) -> dict[str, float]:
    """Measures lockstep."""
    import lockstep
    from lockstep.data._image.decode import decode_jpeg
    from lockstep.data._image.resize import resize

    def read(path: bytes) -> Any:
        return resize(decode_jpeg(Path(path.decode()).read_bytes(), channels=3), (224, 224))

    data = lockstep.data
    return {
        **mnist(data, lambda image: image.astype(np.float32), directory),
        **jpeg(data, read, directory),
        **tfrecord(data, directory),
    }


def tensorflow_side(directory: Path) -> dict[str, float]:
    """Measures TensorFlow."""
    import tensorflow as tf

    def read(path: Any) -> Any:
        return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), (224, 224))

    data = tf.data
    return {
        **mnist(data, lambda image: tf.cast(image, tf.float32), directory),
        **jpeg(data, read, directory),
        **tfrecord(data, directory),
    }


SIDES = {"lockstep": lockstep_side, "tensorflow": tensorflow_side}


def prepare(directory: Path) -> None:
    """Writes what both sides read."""
    import lockstep

    digits = lockstep.datasets.load_mnist()
    np.savez(
        directory / "mnist.npz", images=digits.train_images[..., None], labels=digits.train_labels.astype(np.int64)
    )
    print(f"{digits.source}: {len(digits.train_labels)} images")
    with lockstep.data.TFRecordWriter(str(directory / "records")) as writer:
        content = np.random.default_rng(0).bytes(RECORDS + RECORD_BYTES)
        for i in range(RECORDS):
            writer.write(content[i : i + RECORD_BYTES])
    found = Path(os.environ.get("LOCKSTEP_DATA_DIR", "nowhere")) / "cats_vs_dogs"
    if found.is_dir():
        (directory / "pictures").symlink_to(found.resolve())
    else:
        draw_pictures(directory / "pictures")


def draw_pictures(directory: Path) -> None:
    """Makes pictures of the size of photographs, where there are none."""
    from lockstep.data._image.encode import encode_jpeg

    random = np.random.default_rng(0)
    directory.mkdir()
    for i in range(400):
        coarse = random.integers(0, 256, (47, 63, 3), dtype=np.uint8)
        picture = coarse.repeat(8, axis=0).repeat(8, axis=1)[: 375 - i % 40, : 500 - i % 60]
        (directory / f"{i}.jpg").write_bytes(encode_jpeg(np.ascontiguousarray(picture)))


def measured(side: str, python: str, directory: Path) -> dict[str, float]:
    """Measures one side in a process of its own."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [python, __file__, "--side", side, "--directory", str(directory)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{side} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(rounds: int, peer: str) -> None:
    """Prints a table."""
    found: dict[str, dict[str, list[float]]] = {side: {row: [] for row in BARS} for side in SIDES}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        prepare(directory)
        for _ in range(rounds):
            for side, python in (("tensorflow", peer), ("lockstep", sys.executable)):
                for row, value in measured(side, python, directory).items():
                    found[side][row].append(value)
    print(f"{'':<20}{'lockstep':>12}{'tensorflow':>12}  {'':<10}{'ratio':>7}{'bar':>6}")
    for row, bar in BARS.items():
        ours, theirs = (statistics.median(found[side][row]) for side in ("lockstep", "tensorflow"))
        print(f"{row:<20}{ours:>12,.0f}{theirs:>12,.0f}  {UNITS[row]:<10}{ours / theirs:>7.2f}{bar:>6.1f}")


def main() -> None:
    """Compares, or measures one side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", default=".venv/tensorflow/bin/python")
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    if given.side:
        print(json.dumps(SIDES[given.side](given.directory)))
    elif not Path(given.peer).exists():
        sys.exit(f"There is no {given.peer}. Run `make bench-input`, or name a Python with tensorflow-cpu 2.15.1.")
    else:
        compare(given.rounds, given.peer)


if __name__ == "__main__":
    main()
