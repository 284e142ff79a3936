"""Row 5: lockstep.data beside tf.data: batches of digits, JPEG pictures, TFRecords."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.case import OURS, TENSORFLOW, Bar, Case, Side

_COLD, _WARM, _JPEG, _RECORDS = "cold, batches/s", "warm, batches/s", "JPEG, images/s", "TFRecord, records/s"


def lockstep(options: Mapping[str, Any]) -> dict[str, float]:
    """lockstep.data; pictures by TensorFlow's functions, as lockstep.compat has them."""
    import lockstep
    from lockstep.compat import tensorflow as tf

    return _all(lockstep.data, tf, lambda image: image.astype(np.float32), options)


def tensorflow(options: Mapping[str, Any]) -> dict[str, float]:
    """tf.data."""
    import tensorflow as tf

    return _all(tf.data, tf, lambda image: tf.cast(image, tf.float32), options)


def _all(data: Any, tf: Any, cast: Callable[[Any], Any], options: Any) -> dict[str, float]:
    directory = Path(options["data"])
    passes = options["passes"]
    return {
        **_digits(data, cast, directory, passes),
        **_pictures(tf, directory, passes),
        **_records(data, directory, passes),
    }


def _rate(batches: Iterable[Any], each: int = 1) -> float:
    """Reads all batches; returns how many (times `each`) came in a second."""
    start = time.perf_counter()
    count = sum(1 for _ in batches)
    return count * each / (time.perf_counter() - start)


def _digits(data: Any, cast: Callable[[Any], Any], directory: Path, passes: int) -> dict[str, float]:
    """map(scale), cache, shuffle(10000), batch(64): the first pass of a new dataset, and later ones."""
    from benchmarks.harness.data import load_digits

    images, labels = load_digits(str(directory))
    arrays = (images[..., None], labels.astype(np.int64))

    def scale(image: Any, label: Any) -> Any:
        return cast(image) / 255, label

    def dataset() -> Any:
        return data.Dataset.from_tensor_slices(arrays).map(scale).cache().shuffle(10000).batch(64)

    _rate(dataset().take(20))  # Libraries are loaded; the dataset that is measured is another one.
    measured = dataset()
    return {_COLD: _rate(measured), _WARM: statistics.median(_rate(measured) for _ in range(passes))}


def _pictures(tf: Any, directory: Path, passes: int) -> dict[str, float]:
    """Decode and resize to 224 x 224, batch(16): the same program on both sides."""

    def read(path: Any) -> Any:
        return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), (224, 224))

    paths = sorted(str(p) for p in (directory / "pictures").resolve().rglob("*.jpg"))
    names = np.array([p.encode() for p in paths], object)
    dataset = tf.data.Dataset.from_tensor_slices(names).map(read, num_parallel_calls=tf.data.AUTOTUNE).batch(16)
    _rate(dataset.take(4))
    return {_JPEG: statistics.median(_rate(dataset, 16) for _ in range(passes))}


def _records(data: Any, directory: Path, passes: int) -> dict[str, float]:
    """Read, verify, batch(64)."""
    dataset = data.TFRecordDataset(str(directory / "records")).batch(64)
    _rate(dataset.take(20))
    return {_RECORDS: statistics.median(_rate(dataset, 64) for _ in range(passes))}


def _bar(what: str, metric: str, must: float, aim: float | None = None) -> Bar:
    return Bar(f"x tf.data, {what}", (OURS, metric), [(TENSORFLOW, metric)], must, aim)


CASES = [
    Case(
        row=5,
        name="Input",
        title="Input: map, cache, shuffle, batch cold and warm; JPEG; TFRecord",
        module="benchmarks.rows.input",
        metrics={
            _COLD: "digits: map(scale), cache, shuffle(10000), batch(64), first pass of a new dataset",
            _WARM: "later passes",
            _JPEG: "decode, resize to 224x224, batch(16)",
            _RECORDS: "100 bytes each, verified, batch(64)",
        },
        needs=["digits", "pictures", "records"],
        sides=[Side(OURS, "lockstep", "development", "ours"), Side(TENSORFLOW, "tensorflow", "tensorflow")],
        bars=[
            _bar("cold", _COLD, 2.0, 5.0),
            _bar("warm", _WARM, 2.0, 5.0),
            _bar("JPEG", _JPEG, 1.1),
            _bar("TFRecord", _RECORDS, 0.5),
        ],
    )
]
