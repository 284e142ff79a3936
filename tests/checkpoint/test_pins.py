"""Checkpoints that somebody reads are not removed, and removed later."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lockstep.checkpoint import (
    CheckpointStore,
    _owners,
    _pins,
    all_checkpoints,
    load,
    pinned,
    remove_checkpoint,
    step_of,
)
from lockstep.checkpoint._owners import Life, Owned
from lockstep.errors import CheckpointError
from tests.checkpoint.support import other

READER = """
import sys
from lockstep.checkpoint import load, pinned
with pinned(sys.argv[1]) as prefix:
    print("pinned", flush=True)
    sys.stdin.readline()
    print(load(prefix).step, flush=True)
"""


class Writer:
    """Saves one step after the other, keeping one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = CheckpointStore(directory, keep_max=1)
        self.step = 0

    def save(self) -> str:
        self.step += 1
        prefix = self.store.save(self.step, {"w": float(self.step)})
        self.store.wait()
        return prefix

    def steps(self) -> list[int]:
        return [step_of(prefix) for prefix in all_checkpoints(self.directory)]

    def restart(self) -> None:
        self.store.close()
        self.store = CheckpointStore(self.directory, keep_max=1)

    def pins(self) -> list[Path]:
        return sorted((self.directory / ".pins").iterdir())


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path)
    yield writer
    writer.store.close()


def test_another_process_reads(writer: Writer) -> None:
    prefix = writer.save()
    with other(READER, prefix) as reader:
        assert reader.hear() == "pinned"
        (pin,) = writer.pins()
        assert pin.name.startswith("model.ckpt-1.")
        assert json.loads(pin.read_text()) == {"host": os.uname().nodename, "pid": reader.pid}
        writer.save()
        writer.save()
        assert writer.steps() == [1, 3]
        writer.restart()
        writer.save()
        assert writer.steps() == [1, 4]
        reader.tell()
        assert reader.hear() == "1"
        reader.finish()
    writer.save()
    assert writer.steps() == [5]
    assert writer.pins() == []


def test_a_reader_that_was_killed(writer: Writer) -> None:
    prefix = writer.save()
    with other(READER, prefix) as reader:
        assert reader.hear() == "pinned"
        reader.process.kill()
        # It has ended, but its parent (this process) has not taken note.
        os.waitid(os.P_PID, reader.pid, os.WEXITED | os.WNOWAIT)
        assert len(writer.pins()) == 1
        writer.save()
    assert writer.steps() == [2]
    assert writer.pins() == []


def test_the_next_reader_clears_away_what_a_killed_one_left(writer: Writer) -> None:
    """Also where the writer has no reason to look at that checkpoint again."""
    prefix = writer.save()
    with other(READER, prefix) as reader:
        assert reader.hear() == "pinned"
    assert len(writer.pins()) == 1
    writer.restart()
    with pinned(prefix):
        assert len(writer.pins()) == 1
    assert writer.pins() == []


@pytest.mark.slow
def test_a_reader_that_was_stopped_for_an_hour(writer: Writer) -> None:
    prefix = writer.save()
    with other(READER, prefix) as reader:
        assert reader.hear() == "pinned"
        os.kill(reader.pid, signal.SIGSTOP)
        (pin,) = writer.pins()
        os.utime(pin, (0, time.time() - 3500))
        writer.save()
        assert writer.steps() == [1, 2]
        os.utime(pin, (0, time.time() - 3700))
        writer.save()
    assert writer.steps() == [3]


def test_readers_of_other_machines(writer: Writer) -> None:
    prefix = writer.save()
    with pinned(prefix):
        (mine,) = writer.pins()
        name, machine, pid, start, token, suffix = mine.name.rsplit(".", 5)
        elsewhere = mine.with_name(f"{name}.{'0' * 12}.{pid}.{start}.{token}.{suffix}")
        elsewhere.touch()
        # Another process had the same number; it started before.
        mine.with_name(f"{name}.{machine}.{pid}.{int(start) - 1}.{token}.{suffix}").touch()
        for stranger in ("readme", f"{name}.pin", f"{name}.{machine}.x.0.{token}.pin"):
            mine.with_name(stranger).touch()
    writer.save()
    assert writer.steps() == [1, 2]
    os.utime(elsewhere, (0, time.time() - 3700))
    writer.save()
    assert writer.steps() == [3]


def as_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, boot: str, namespace: str) -> None:
    """Has this process run on another machine of the same name: started at another time, or in another container."""
    for name, text in (("_BOOT_ID", boot), ("_PID_NAMESPACE", namespace)):
        path = tmp_path / f"{name}-{text}"
        path.write_text(text)
        monkeypatch.setattr(_owners, name, path)


@pytest.mark.parametrize(("boot", "namespace"), [("second", "first"), ("first", "second")])
def test_machines_of_the_same_name_keep_each_other_s_pins(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boot: str, namespace: str
) -> None:
    """A process id of the one says nothing about the other, where it may be none, or another process'."""
    as_on(monkeypatch, tmp_path, "first", "first")
    prefix = writer.save()
    with pinned(prefix):
        (pin,) = writer.pins()
        name, machine, _, start, token, suffix = pin.name.rsplit(".", 5)
        # A reader that is no process here.
        other = pin.rename(pin.with_name(f"{name}.{machine}.{(1 << 22) + 1}.{start}.{token}.{suffix}"))
        as_on(monkeypatch, tmp_path, boot, namespace)
        writer.save()
        assert writer.steps() == [1, 2]
        os.utime(other, (0, time.time() - 3700))
        writer.save()
        assert writer.steps() == [3]
        other.touch()
        as_on(monkeypatch, tmp_path, "first", "first")
        writer.save()
        assert other not in writer.pins(), "on its own machine a reader that has ended is known at once"


def test_a_machine_that_does_not_say_when_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_owners, "_BOOT_ID", tmp_path / "none")
    name = _owners.tag_name("model")
    assert _owners.parse_tag(name) == Owned("model", Life.ALIVE)


def test_several_readers_in_this_process(writer: Writer) -> None:
    first = writer.save()
    with pinned(first):
        second = writer.save()
        with pinned(second), pinned(first), pinned(f"{first}.npz") as name:
            assert name == first
            writer.save()
            assert writer.steps() == [1, 2, 3]
        writer.save()
        assert writer.steps() == [1, 4]
    writer.save()
    assert writer.steps() == [5]


def test_a_name_that_begins_with_anothers(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path, keep_max=1) as store, pinned_when_saved(store, 1):
        for step in (11, 12):
            store.save(step, {})
        store.wait()
    assert [step_of(prefix) for prefix in all_checkpoints(tmp_path)] == [1, 12]


def pinned_when_saved(store: CheckpointStore, step: int) -> AbstractContextManager[str]:
    prefix = store.save(step, {})
    store.wait()
    return pinned(prefix)


def test_what_is_not_there_cannot_be_pinned(writer: Writer) -> None:
    prefix = writer.save()
    remove_checkpoint(prefix)
    with pytest.raises(CheckpointError, match=r"model.ckpt-1.npz cannot be pinned: .*take a newer one"), pinned(prefix):
        pass


def test_an_explicit_removal_does_not_ask(writer: Writer) -> None:
    prefix = writer.save()
    with pinned(prefix):
        remove_checkpoint(prefix)
    assert writer.steps() == []


def test_where_nothing_can_be_written_nothing_is_pinned(writer: Writer, caplog: pytest.LogCaptureFixture) -> None:
    prefix = writer.save()
    (writer.directory / ".pins").touch()
    with pinned(prefix):
        assert "cannot be pinned (" in caplog.text
        assert load(prefix).step == 1
        writer.save()
    assert writer.steps() == [2]


def test_a_pin_is_refreshed(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = writer.save()
    monkeypatch.setattr(_pins, "_REFRESHED", 0.001)
    with pinned(prefix):
        (pin,) = writer.pins()
        pin.unlink()
        end = time.monotonic() + 120
        while not pin.exists():
            assert time.monotonic() < end
        os.utime(pin, (0, 0))
        while pin.stat().st_mtime < time.time() - 1000:
            assert time.monotonic() < end
        writer.save()
        assert writer.steps() == [1, 2]
    assert writer.pins() == []


def test_the_writer_does_not_wait_for_a_reader_about_to_pin(writer: Writer) -> None:
    prefix = writer.save()
    with open(f"{prefix}.npz", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        writer.save()
        assert writer.steps() == [1, 2]
    writer.save()
    assert writer.steps() == [3]


def test_a_reader_waits_until_the_writer_has_decided(writer: Writer) -> None:
    prefix = writer.save()
    removed, began = threading.Event(), threading.Event()
    outcome: list[str] = []

    def read() -> None:
        began.set()
        try:
            with pinned(prefix):
                outcome.append("pinned" if not removed.is_set() else "pinned too late")
        except CheckpointError:
            outcome.append("gone")

    with open(f"{prefix}.npz", "rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        reader = threading.Thread(target=read)
        reader.start()
        began.wait(30)
        reader.join(0.05)
        assert outcome == []
        os.unlink(f"{prefix}.npz")
        removed.set()
    reader.join(30)
    assert outcome == ["gone"]


def test_a_reader_does_not_wait_for_ever(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = writer.save()
    monkeypatch.setattr(_pins, "_PATIENCE", 0.02)
    with open(f"{prefix}.npz", "rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pinned(prefix):
            assert len(writer.pins()) == 1
