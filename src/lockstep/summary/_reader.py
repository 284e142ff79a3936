"""Reader of event files."""

from __future__ import annotations

import contextlib
import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from lockstep.data.internal import masked_crc, open_tfrecord
from lockstep.errors import InputError
from lockstep.summary._protos import messages

_log = logging.getLogger("lockstep")
_PATTERN = "events.out.tfevents.*"
# Records read at a time.
_AT_ONCE = 4096


def read_events(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Yields the `Event`s of an event file, or of all event files of a directory, one file after another.

    A file whose last record is cut short, because it is being written, ends there. Where a file is damaged, the rest of
    it is left out, with a warning.

    Args:
        path: The file or the directory.

    Source: tf.compat.v1.train.summary_iterator.

    Raises:
        DataNotFoundError: If there is no such path.
    """
    path = Path(path)
    for file in sorted(path.glob(_PATTERN)) if path.is_dir() else [path]:
        yield from _events(file)


def scalars(directory: str | os.PathLike[str]) -> dict[int, dict[str, float]]:
    """Returns the numbers in the event files of a directory: by step, in ascending order, and tag.

    Of a number that was written several times for a step, the last one counts. A directory that does not exist (yet)
    has none.

    Args:
        directory: Where the files are.
    """
    found: dict[int, dict[str, float]] = {}
    for event in read_events(directory) if os.path.exists(directory) else ():
        # Written by `EventFile.scalar` and by TensorFlow 1; TensorFlow 2 keeps them as tensors.
        numbers = {v.tag: v.simple_value for v in event.summary.value if v.WhichOneof("value") == "simple_value"}
        if numbers:
            found.setdefault(event.step, {}).update(numbers)
    return dict(sorted(found.items()))


def _events(file: Path) -> Iterator[Any]:
    # TensorFlow's summary_iterator raises at damage; what is before it is what a reader wants after a crash.
    parse = messages("event").Event.FromString
    try:
        for record in _records(file):
            yield parse(record)
    except (InputError, DecodeError) as error:
        _log.warning(
            "Skipping rest of the file due to encountering data corruption error; file path: %s; original error: %s",
            file,
            error,
        )


def _records(file: Path) -> Iterator[bytes]:
    """Yields the records of a file as far as it is written; raises `InputError` if it is damaged."""
    position, broken_at = 0, -1
    while True:
        with contextlib.closing(open_tfrecord(file)) as reader:
            reader.seek(position)
            try:
                while (records := reader.read(_AT_ONCE)) is not None:
                    yield from records
                return
            except InputError:
                position = reader.tell()
                if _is_cut_short(file, position):
                    return
                # It may have been cut short a moment ago; if it is not whole now, it never will be.
                if position == broken_at:
                    raise
                broken_at = position


def _is_cut_short(file: Path, position: int) -> bool:
    """Returns whether the record at a position continues after the end of the file."""
    with file.open("rb") as opened:
        opened.seek(position)
        header = opened.read(12)
    if len(header) < 12:
        return True
    length, crc = struct.unpack("<QI", header)
    return crc == masked_crc(header[:8]) and position + 16 + length > file.stat().st_size
