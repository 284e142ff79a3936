"""Waiting for checkpoints."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from lockstep.checkpoint import CheckpointStore, checkpoints_iterator, step_of


def save(directory: Path, step: int) -> None:
    with CheckpointStore(directory) as store:
        store.save(step, {})


def test_new_ones_are_yielded_and_old_ones_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lockstep")
    save(tmp_path, 1)
    found = checkpoints_iterator(tmp_path, timeout=0)
    assert next(found) == f"{tmp_path}/model.ckpt-1"
    save(tmp_path, 2)
    save(tmp_path, 3)
    assert next(found) == f"{tmp_path}/model.ckpt-3"
    assert list(found) == []
    assert caplog.messages == [
        f"Waiting for new checkpoint at {tmp_path}",
        f"Found new checkpoint at {tmp_path}/model.ckpt-1",
        f"Waiting for new checkpoint at {tmp_path}",
        f"Found new checkpoint at {tmp_path}/model.ckpt-3",
        f"Waiting for new checkpoint at {tmp_path}",
        "Timed-out waiting for a checkpoint.",
    ]


def test_it_waits_for_another_thread(tmp_path: Path) -> None:
    found = checkpoints_iterator(tmp_path / "later", timeout=60)
    writer = threading.Timer(0.05, save, (tmp_path / "later", 5))
    writer.start()
    assert step_of(next(found)) == 5
    writer.join()


def test_the_function_decides_after_the_time(tmp_path: Path) -> None:
    asked: list[int] = []

    def ends() -> bool:
        asked.append(len(asked))
        if len(asked) < 3:
            save(tmp_path, len(asked))
        return len(asked) == 4

    assert [step_of(prefix) for prefix in checkpoints_iterator(tmp_path, timeout=0, timeout_fn=ends)] == [1, 2]
    assert asked == [0, 1, 2, 3]


def test_there_is_time_between_two(tmp_path: Path) -> None:
    save(tmp_path, 1)
    found = checkpoints_iterator(tmp_path, min_interval_secs=0.1, timeout=0)
    began = time.monotonic()
    next(found)
    save(tmp_path, 2)
    next(found)
    assert time.monotonic() - began >= 0.1


def test_a_broken_one_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.checkpoint._listing._PAUSE", 0.001)
    save(tmp_path, 1)
    (tmp_path / "model.ckpt-1.npz").write_bytes(b"")
    assert list(checkpoints_iterator(tmp_path, timeout=0.05)) == []
    assert caplog.text.count("model.ckpt-1 is passed over") == 1
