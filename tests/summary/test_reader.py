"""Event files, whole, half written and damaged."""

from __future__ import annotations

import itertools
import logging
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.errors import DataNotFoundError
from lockstep.summary import EventFile, read_events, scalars
from lockstep.summary import _event_file as event_file
from lockstep.summary import _reader as reader


def write(directory: Path, values: dict[int, float], tag: str = "loss") -> Path:
    """Writes a file of one number a step."""
    before = set(directory.glob("*"))
    file = EventFile(directory)
    for step, value in values.items():
        file.scalar(tag, value, step)
    file.close()
    (new,) = set(directory.glob("*")) - before
    return new


def test_numbers_by_step_and_tag(tmp_path: Path) -> None:
    write(tmp_path, {300: 1, 100: 2})
    write(tmp_path, {100: 3, 200: 4}, "accuracy")
    write(tmp_path, {100: 5})
    found = scalars(tmp_path)
    assert list(found) == [100, 200, 300]
    assert found == {100: {"loss": 5.0, "accuracy": 3.0}, 200: {"accuracy": 4.0}, 300: {"loss": 1.0}}


def test_the_last_of_many_files_of_a_second_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file, "_count", itertools.count(8))
    monkeypatch.setattr(event_file.time, "time", lambda: 1.7e9)
    for value in range(4):
        write(tmp_path, {100: value})
    assert scalars(tmp_path) == {100: {"loss": 3.0}}


def test_only_numbers_and_only_event_files_count(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    file.text_of_plugin("checkpoint_path", "text", "model.ckpt-1", 1)
    file.close()
    (tmp_path / "checkpoint").write_text("no records")
    assert scalars(tmp_path) == {}
    assert len(list(read_events(tmp_path))) == 2


def test_nothing_there(tmp_path: Path) -> None:
    assert scalars(tmp_path) == {}
    assert scalars(tmp_path / "not yet") == {}
    with pytest.raises(DataNotFoundError, match="not yet"):
        list(read_events(tmp_path / "not yet"))


def test_one_file(tmp_path: Path) -> None:
    file = write(tmp_path, {1: 1})
    write(tmp_path, {2: 2})
    assert [event.step for event in read_events(file)] == [0, 1]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 400))
def test_a_file_that_is_being_written_ends_before_its_last_record(
    cut: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / str(len(list(tmp_path.iterdir())))
    directory.mkdir()
    file = write(directory, {step: step for step in range(1, 9)})
    whole = file.read_bytes()
    cut = min(cut, len(whole))
    file.write_bytes(whole[:cut])
    found = scalars(directory)
    assert list(found) == list(range(1, len(found) + 1))
    assert len(found) == 8 or cut < len(whole)
    assert len(found) >= 8 * cut // len(whole) - 2
    assert not caplog.records


def test_reading_while_another_thread_writes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = EventFile(tmp_path)
    count = 3000

    def write_all() -> None:
        for step in range(1, count + 1):
            file.histogram("weights", np.full(50, step), step)
            file.scalar("loss", step, step)
            file.flush()
        file.close()

    writing = threading.Thread(target=write_all)
    writing.start()
    seen = [0]
    is_writing = True
    while is_writing:
        is_writing = writing.is_alive()
        found = scalars(tmp_path)
        assert list(found) == list(range(1, len(found) + 1))
        seen.append(len(found))
    assert seen == sorted(seen)
    assert seen[-1] == count
    assert not caplog.records


def test_a_record_that_is_completed_while_it_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, {1: 1, 2: 2, 3: 3})
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    asked = reader._is_cut_short

    def is_cut_short(path: Path, position: int) -> bool:
        file.write_bytes(whole)
        return asked(path, position)

    monkeypatch.setattr(reader, "_is_cut_short", is_cut_short)
    assert list(scalars(tmp_path)) == [1, 2, 3]
    assert not caplog.records


@pytest.mark.parametrize("place", ["length", "data"])
def test_the_rest_of_a_damaged_file_is_left_out(place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(tmp_path, {1: 1, 2: 2, 3: 3})
    content = bytearray(file.read_bytes())
    size = (len(content) - len(EventFileVersion.of(content))) // 3
    content[-size + (0 if place == "length" else 14)] ^= 0xFF
    file.write_bytes(content)
    write(tmp_path, {9: 9})
    with caplog.at_level(logging.WARNING, "lockstep"):
        assert scalars(tmp_path) == {1: {"loss": 1.0}, 2: {"loss": 2.0}, 9: {"loss": 9.0}}
    (record,) = caplog.records
    assert "Skipping rest of the file due to encountering data corruption error" in record.getMessage()
    assert file.name in record.getMessage()


def test_records_of_something_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from lockstep.data import TFRecordWriter

    with TFRecordWriter(tmp_path / "events.out.tfevents.1.other") as writer:
        writer.write(b"\xff\xff\xff\xff")
    assert scalars(tmp_path) == {}
    assert "data corruption" in caplog.text


class EventFileVersion:
    """The first record of an event file."""

    @staticmethod
    def of(content: bytearray) -> bytes:
        length = int.from_bytes(content[:8], "little")
        return bytes(content[: 16 + length])
