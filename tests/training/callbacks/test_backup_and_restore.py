"""Backups that are damaged, cut off or cannot be written; a full training in tests/engine/keras/test_resume.py."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep as ls
from lockstep.checkpoint import CheckpointStore, _archive
from lockstep.errors import CheckpointError
from lockstep.training.callbacks._backup_and_restore import BackupAndRestore
from tests.checkpoint.support import other
from tests.engine.keras import resuming


class Run:
    """A training of which the callback sees nothing but numbers."""

    is_chief = True
    is_restored = True

    def __init__(self) -> None:
        self.progress = resuming_progress(0)

    def snapshot(self) -> tuple[int, dict[str, Any], dict[str, Any]]:
        total = self.progress.total
        return total, {"w": np.full(50, total)}, {"version": 1, "total": total}

    def is_sound(self) -> bool:
        return True

    def require_saved(self, error: CheckpointError | None) -> None:
        if error is not None:
            raise error


def resuming_progress(total: int) -> Any:
    from lockstep._engine.keras.recovery import Progress

    return Progress(begun=True, total=total)


def saving(directory: Path, steps: int, **arguments: Any) -> BackupAndRestore:
    """A callback that has saved so many backups."""
    callback, run = BackupAndRestore(directory, 1, **arguments), Run()
    callback.attach_run(run)
    for step in range(1, steps + 1):
        run.progress = resuming_progress(step)
        callback.on_batches(step - 1, step)
    return callback


@pytest.fixture
def backups(tmp_path: Path) -> Path:
    """Those of steps 2 and 3."""
    saving(tmp_path, 3).finish(is_done=False)
    assert sorted(os.listdir(tmp_path)) == ["backup-2.npz", "backup-3.npz", "checkpoint"]
    return tmp_path


def loaded(directory: Path, **arguments: Any) -> int | None:
    callback = BackupAndRestore(directory, **arguments)
    callback.attach_run(Run())
    found = callback.load()
    callback.finish(is_done=False)
    return None if found is None else found[1].get("total") or found[1]["progress"]["total"]


def test_row_16_truncated_at_every_power_of_two(backups: Path, caplog: pytest.LogCaptureFixture) -> None:
    newest = backups / "backup-3.npz"
    content = newest.read_bytes()
    sizes = [0, *(1 << n for n in range(len(content).bit_length()) if 1 << n < len(content)), len(content) - 1]
    for size in sizes:
        caplog.clear()
        newest.write_bytes(content[:size])
        assert loaded(backups) == 2
        assert "backup-3 is passed over" in caplog.text
        with pytest.raises(CheckpointError, match=r"must be whole.*backup-3"):
            loaded(backups, strict=True)
    newest.write_bytes(content)
    assert loaded(backups, strict=True) == 3


def test_row_16_flipped_bits(backups: Path, caplog: pytest.LogCaptureFixture) -> None:
    newest = backups / "backup-3.npz"
    content = newest.read_bytes()
    fallen_back = 0
    for place in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        newest.write_bytes(damaged)
        caplog.clear()
        # What is harmless (a date) changes nothing; what is not is noticed.
        total = loaded(backups)
        assert total == (2 if "passed over" in caplog.text else 3)
        fallen_back += total == 2
    assert fallen_back > len(content) // 7 // 2


def test_row_16_all_are_damaged(backups: Path, caplog: pytest.LogCaptureFixture) -> None:
    for file in backups.glob("*.npz"):
        file.write_bytes(b"")
    assert loaded(backups) is None
    assert caplog.text.count("passed over") == 2


def test_row_20_steps_and_not_times_order_backups(backups: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the clock said when they were written, or the files say, or the list that is lost."""
    for number, file in enumerate(sorted(backups.glob("*.npz"), reverse=True)):
        os.utime(file, (number * 1e9, number * 1e9))
    assert loaded(backups) == 3
    (backups / "checkpoint").unlink()
    assert loaded(backups) == 3
    assert "found by the names of the files" in caplog.text


def failing(patch: pytest.MonkeyPatch, steps: range, code: int = errno.ENOSPC) -> None:
    """Has the backups of some steps fail."""
    write = _archive.write

    def maybe(file: str, step: int, *rest: Any) -> None:
        if step in steps:
            raise OSError(code, os.strerror(code))
        write(file, step, *rest)

    patch.setattr(_archive, "write", maybe)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
def test_row_17_an_error_stops_training_at_the_next_step(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callback = saving(tmp_path, 2)
    callback._require_last()
    failing(monkeypatch, range(3, 9), code)
    run: Any = callback._run
    run.progress = resuming_progress(3)
    callback.on_batches(2, 3)
    store: Any = callback._store
    store._background._work.exception()  # Waits until it has failed.
    with pytest.raises(CheckpointError, match=rf"backup-3\.npz could not be written: \[Errno {code}\]"):
        callback.check()
    callback.finish(is_done=False)
    assert loaded(tmp_path, strict=True) == 2
    assert sorted(os.listdir(tmp_path)) == ["backup-1.npz", "backup-2.npz", "checkpoint"]


def test_row_17_an_error_in_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = ls.distribute.OneDeviceStrategy("/cpu:0")
    data = ls.data.Dataset.from_tensor_slices(resuming.data()).repeat().batch(10)
    seen = resuming.Interrupts(None)
    failing(monkeypatch, range(8, 10**6))
    with pytest.raises(CheckpointError, match="No space left on device"):
        resuming.model_of(strategy).fit(
            data, steps_per_epoch=5000, verbose=0, callbacks=[BackupAndRestore(tmp_path, 4), seen]
        )
    assert 8 <= len(seen.seen) < 5000
    assert loaded(tmp_path, strict=True) == 4


def test_row_17_a_warning_by_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing(monkeypatch, range(2, 4))
    callback = saving(tmp_path, 5, on_save_error="warn")
    callback.finish(is_done=False)
    assert caplog.text.count("Training goes on without a new backup") == 2
    assert loaded(tmp_path, strict=True) == 5
    assert sorted(os.listdir(tmp_path)) == ["backup-4.npz", "backup-5.npz", "checkpoint"]


def test_row_17_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    callback = saving(tmp_path / "file", 1)
    with pytest.raises(CheckpointError, match="could not be written"):
        callback._require_last()
    callback.finish(is_done=False)


def test_only_backups_are_removed(backups: Path) -> None:
    (backups / "notes.txt").touch()
    with CheckpointStore(backups, "model") as store:
        store.save(7, {"w": np.ones(1)})
    callback = BackupAndRestore(backups)
    callback.attach_run(Run())
    callback.finish(is_done=True)
    assert sorted(os.listdir(backups)) == ["model-7.npz", "notes.txt"]


# Forks a process for each point at which the end of a training can be killed.
CLEARING = """
import os, sys, numpy
from lockstep.checkpoint import CheckpointStore, load_newest
from lockstep.checkpoint._listing import remove_all
from tests.support.dying import die_in_os

directory = sys.argv[1]

point = 0
while True:
    point += 1
    with CheckpointStore(directory, "backup", keep_max=3) as store:
        for step in (1, 2, 3):
            store.save(step, {"w": numpy.full(10, step)})
    child = os.fork()
    if not child:
        die_in_os(point, "unlink", "rmdir", "scandir", "listdir")
        remove_all(directory, "backup")
        os._exit(0)
    killed = os.waitpid(child, 0)[1] != 0
    found = load_newest(directory)
    print(int(killed), 0 if found is None else found.step, flush=True)
    remove_all(directory, "backup")
    print(int(os.path.exists(directory)), flush=True)
    if not killed:
        break
"""


@pytest.mark.slow
@pytest.mark.cluster
def test_row_3_killed_while_backups_are_removed(tmp_path: Path) -> None:
    """The newest goes last: what is left leads to it or to nothing, and the next time nothing is left."""
    with other(CLEARING, tmp_path / "backups") as program:
        lines = program.finish()
    reports, left = [tuple(map(int, line.split())) for line in lines[::2]], lines[1::2]
    assert len(reports) >= 6
    assert [step for _, step in reports] == sorted((step for _, step in reports), reverse=True)
    assert {step for _, step in reports} == {3, 0}
    assert reports[-1] == (0, 0)
    assert set(left) == {"0"}


# A training that says which batch it has come to; started again, it goes on.
TRAINING = """
import os, sys
import numpy as np
import lockstep as ls
import keras
from lockstep.training.callbacks._backup_and_restore import BackupAndRestore
from tests.engine.keras import resuming
from tests.support.dying import dying_at

directory, dies = sys.argv[1], int(sys.argv[2])
if dies:
    dying = dying_at(dies)
    from lockstep.checkpoint import _archive, _atomic
    _atomic.os = type("os", (), {**vars(os), "replace": dying(os.replace), "fsync": dying(os.fsync)})
    _archive.zipfile._ZipWriteFile.write = dying(_archive.zipfile._ZipWriteFile.write)
found = resuming.train(ls.distribute.OneDeviceStrategy("/cpu:0"), directory, source="dataset over epochs",
                       **({} if dies < 0 else {"save_freq": 1}))
np.savez(os.path.join(directory, "result.npz"), **found)
"""


@pytest.mark.cluster
def test_row_3_killed_while_backups_are_written(tmp_path: Path) -> None:
    """By SIGKILL, at points of the writing of several backups; the end is that of the undisturbed run."""
    env = {"PYTHONPATH": os.pathsep.join(["src", "."])}
    results: list[dict[str, np.ndarray]] = []
    for name, points in (("whole", [-1]), ("parts", [40, 173, 301, 0])):
        directory = tmp_path / name
        directory.mkdir()
        for point in points:
            code = finished(TRAINING, env, directory, point)
            assert code == (-signal.SIGKILL if point > 0 else 0)
        results.append(dict(np.load(directory / "result.npz")))
    expected, found = results
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        theirs = value[len(value) - len(found[key]) :] if key == "seen" else value
        np.testing.assert_array_equal(found[key], theirs, err_msg=key)
    assert len(found["seen"]) < len(expected["seen"])
    assert sorted(os.listdir(tmp_path / "parts")) == ["best.weights.h5", "log.csv", "result.npz"]


def finished(code: str, env: dict[str, str], *arguments: object) -> int:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        with other(code, *arguments) as program:
            program.process.communicate(timeout=240)  # It compiles and trains.
            return program.process.returncode
