"""Status files: which run they belong to, and whether their writer is alive, whatever the clocks say."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from lockstep.estimator import EvalSpec, _status
from lockstep.estimator._evaluation.evaluator import Evaluator
from lockstep.estimator._status import StatusFile, StatusWatch
from tests.estimator.small import input_fn, line


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".lockstep" / "trainer.json"


def published(directory: Path, monkeypatch: pytest.MonkeyPatch, run_id: str = "", generation: int = 0) -> StatusFile:
    """A status that a task with these settings has written."""
    settings(monkeypatch, run_id, generation)
    status = StatusFile(str(directory), "trainer")
    status.publish({"state": "running"})
    return status


def watch(directory: Path, monkeypatch: pytest.MonkeyPatch, run_id: str = "", generation: int = 0) -> StatusWatch:
    settings(monkeypatch, run_id, generation)
    return StatusWatch(str(directory), "trainer")


def settings(monkeypatch: pytest.MonkeyPatch, run_id: str, generation: int) -> None:
    monkeypatch.setenv("LOCKSTEP_RUN_ID", run_id)
    monkeypatch.setenv("LOCKSTEP_GENERATION", str(generation))


@pytest.mark.parametrize(
    ("written", "read", "is_known"),
    [
        (("a", 1), ("a", 1), True),
        (("a", 2), ("a", 1), True),
        (("a", 1), ("a", 2), False),
        (("a", 1), ("b", 1), False),
        (("", 1), ("a", 1), False),
        (("a", 1), ("", 1), False),
        (("", 0), ("", 0), False),
    ],
)
def test_a_status_that_was_there_counts_with_the_id_of_this_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: tuple[str, int], read: tuple[str, int], is_known: bool
) -> None:
    published(tmp_path, monkeypatch, *written)
    assert bool(watch(tmp_path, monkeypatch, *read).look()) == is_known


@pytest.mark.parametrize(
    ("written", "read", "counts"),
    [
        (("", 0), ("", 0), True),
        (("a", 0), ("", 0), True),
        (("", 0), ("a", 0), True),
        (("", 0), ("", 1), False),
        (("a", 1), ("b", 1), False),
        (("a", 1), ("a", 2), False),
    ],
)
def test_one_that_changes_counts_unless_it_names_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: tuple[str, int], read: tuple[str, int], counts: bool
) -> None:
    status = published(tmp_path, monkeypatch, *written)
    watching = watch(tmp_path, monkeypatch, *read)
    status.publish({"state": "ended"})
    assert watching.look().get("state") == ("ended" if counts else None)
    assert watching.latest["state"] == "ended"


@pytest.mark.parametrize("seconds", [-7200.0, 0.0, 7200.0])
def test_a_renewal_is_seen_whatever_time_it_bears(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    published(tmp_path, monkeypatch)
    watching = watch(tmp_path, monkeypatch)
    os.utime(path, (time.time() + seconds, time.time() + seconds))
    assert watching.look()["state"] == "running"
    assert watching.silent_seconds < 60


def test_a_writer_that_is_alive_shows_itself_within_a_few_renewals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_status, "RENEWAL_SECONDS", 0.1)
    status = published(tmp_path, monkeypatch)
    watching = watch(tmp_path, monkeypatch)
    assert watching.wait_for_renewal() == {}
    with status.renew_in_background():
        assert watching.wait_for_renewal()["run"] == status.run


def test_silence_is_counted_from_the_last_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whole seconds: sums of them are exact.
    now = float(round(time.monotonic()))
    monkeypatch.setattr(time, "monotonic", lambda: now)
    status = published(tmp_path, monkeypatch)
    watching = watch(tmp_path, monkeypatch)
    now += 50
    watching.look()
    assert watching.silent_seconds == 50
    status.publish({"state": "running"})
    watching.look()
    assert watching.silent_seconds == 0


def test_a_status_that_somebody_has_removed_is_published_again(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_status, "RENEWAL_SECONDS", 0.05)
    status = published(tmp_path, monkeypatch)
    watching = watch(tmp_path, monkeypatch)
    path.unlink()
    path.parent.rmdir()
    assert watching.look() == {}, "a file that has gone is no renewal"
    with status.renew_in_background():
        deadline = time.monotonic() + 20
        while not watching.look():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert watching.latest["run"] == status.run


def test_an_earlier_process_status_is_kept_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = published(tmp_path, monkeypatch)
    assert first.former == {}
    second = StatusFile(str(tmp_path), "trainer")
    assert second.former["run"] == first.run != second.run


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"generation": "x"}', b"7", b'{"run_id": []}'])
def test_what_is_no_status_does_no_harm(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    watching = watch(tmp_path, monkeypatch)
    assert "state" not in watching.look()
    path.write_bytes(json.dumps({"state": "running"}).encode())
    assert watching.look() == {"state": "running"}


@pytest.mark.slow
def test_an_evaluator_that_fails_at_once_has_seen_whom_it_follows(tmp_path: Path) -> None:
    """Else the next trainer takes its error for one of its own run."""

    def fails() -> Any:
        raise RuntimeError("no data to evaluate")

    trained = line(tmp_path)
    trained.train(input_fn(), max_steps=1)
    trainer = StatusFile(str(tmp_path), "trainer")
    trainer.publish({"state": "ended", "step": 1})
    with trainer.renew_in_background(), pytest.raises(RuntimeError, match="no data"):
        Evaluator(trained, EvalSpec(fails, start_delay_secs=0), 1).run()
    assert json.loads((tmp_path / ".lockstep" / "evaluator.json").read_text())["follows"] == trainer.run
