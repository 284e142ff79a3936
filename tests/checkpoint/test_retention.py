"""Which checkpoints stay, beside what TensorFlow 2.15.1's Saver left in the same cases."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.checkpoint import CheckpointStore, all_checkpoints, get_checkpoint_state, step_of, update_checkpoint_state
from lockstep.checkpoint._directory import Retention, Saved

START = 1e6
HOUR = 3600.0


class Clock:
    """The time of day, in hours."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hours = 0.0
        monkeypatch.setattr(time, "time", lambda: START + self.hours * HOUR)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


# keep_max, keep_every_n_hours, hours at which checkpoints 0, 1, ... are saved, what is left, what the file lists.
BY_TENSORFLOW = [
    (2, 10000, [1, 2, 3, 4, 5], [3, 4], [3, 4]),
    (1, 10000, [1, 2, 3], [2], [2]),
    (0, 10000, [1, 2, 3, 4], [0, 1, 2, 3], [3]),
    (None, 10000, [1, 2, 3], [0, 1, 2], [2]),
    (2, 1, [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5], [2, 4, 6, 8, 9], [8, 9]),
    (2, 1, [1.1, 2.2, 3.3, 4.4, 5.5, 6.6], [0, 1, 2, 3, 4, 5], [4, 5]),
    (3, 2, [0.7 * i for i in range(1, 16)], [2, 5, 8, 11, 12, 13, 14], [12, 13, 14]),
    (1, 1, [0.4 * i for i in range(1, 14)], [2, 5, 7, 10, 12], [12]),
    (5, 0.5, [0.25 * i for i in range(1, 13)], [2, 4, 6, 7, 8, 9, 10, 11], [7, 8, 9, 10, 11]),
    (1, 2, [3, 6, 9, 12, 15], [0, 1, 2, 3, 4], [4]),
    (2, 0, [1, 2, 3, 4, 5], [0, 1, 2, 3, 4], [3, 4]),
    (2, 1, [1, 2, 3, 4, 5], [1, 2, 3, 4], [3, 4]),
]


def steps_in(directory: Path) -> list[int]:
    return [step_of(prefix) for prefix in all_checkpoints(directory)]


def listed_in(directory: Path) -> list[int]:
    state = get_checkpoint_state(directory)
    assert state is not None
    assert len(state.all_model_checkpoint_timestamps) == len(state.all_model_checkpoint_paths)
    return [step_of(prefix) for prefix in state.all_model_checkpoint_paths]


@pytest.mark.parametrize("restarts", [False, True], ids=["one writer", "a new writer each time"])
@pytest.mark.parametrize(("keep_max", "hours", "times", "left", "listed"), BY_TENSORFLOW)
def test_what_tensorflow_leaves(
    tmp_path: Path,
    clock: Clock,
    keep_max: int | None,
    hours: float,
    times: list[float],
    left: list[int],
    listed: list[int],
    restarts: bool,
) -> None:
    store = CheckpointStore(tmp_path, keep_max=keep_max, keep_every_n_hours=hours)
    for step, moment in enumerate(times):
        clock.hours = moment
        store.save(step, {})
        store.wait()
        if restarts:
            store.close()
            store = CheckpointStore(tmp_path, keep_max=keep_max, keep_every_n_hours=hours)
            if step == 0:
                # The first writer began at 0.
                clock.hours = 0.0
    store.close()
    assert steps_in(tmp_path) == left
    assert listed_in(tmp_path) == listed


class Saver:
    """TensorFlow's rule, as its documentation and its tests state it."""

    def __init__(self, keep_max: int, period: float) -> None:
        self.keep_max, self.period, self.next = keep_max, period, START + period
        self.listed: list[Saved] = []
        self.kept: list[Saved] = []

    def save(self, saved: Saved) -> None:
        self.listed.append(saved)
        if len(self.listed) > self.keep_max:
            oldest = self.listed.pop(0)
            if oldest.time > self.next:
                self.next += self.period
                self.kept.append(oldest)


@given(st.integers(1, 6), st.integers(1, 20), st.integers(1, 20), st.integers(1, 60))
def test_regular_saves_leave_what_tensorflows_rule_leaves(keep_max: int, period: int, every: int, count: int) -> None:
    theirs, ours, kept = Saver(keep_max, period), Retention(keep_max, period, START), list[Saved]()
    for number in range(1, count + 1):
        saved = Saved(str(number), START + number * every)
        theirs.save(saved)
        before = [*ours.listed, saved]
        ours.add(saved)
        for gone in ours.excess():
            before.remove(gone)
            ours.drop(gone)
        kept += [one for one in before if one not in ours.listed]
    assert ours.listed == theirs.listed
    assert kept == theirs.kept


@given(st.integers(1, 5), st.lists(st.floats(0.01, 30), min_size=1, max_size=60))
def test_one_is_kept_for_each_period_and_never_more(keep_max: int, gaps: list[float]) -> None:
    period = 10.0
    retention, now, kept = Retention(keep_max, period, START), START, list[Saved]()
    for number, gap in enumerate(gaps):
        now += gap
        saved = Saved(str(number), now)
        retention.add(saved)
        before = list(retention.listed)
        for gone in retention.excess():
            retention.drop(gone)
            before.remove(gone)
        kept += [one for one in before if one not in retention.listed]
        assert retention.listed[-1] == saved
        assert len(retention.listed) == min(number + 1, keep_max)
    periods = [int((one.time - START) / period - 1e-9) for one in kept]
    assert len(set(periods)) == len(periods), "two of one period, also after a long gap"


def test_a_restart_keeps_what_was_listed_and_goes_on(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path, keep_max=3) as store:
        for step in (1, 2, 3):
            store.save(step, {})
    with CheckpointStore(tmp_path, keep_max=3) as store:
        assert steps_in(tmp_path) == [1, 2, 3]
        store.save(4, {})
    assert steps_in(tmp_path) == listed_in(tmp_path) == [2, 3, 4]
    with CheckpointStore(tmp_path, keep_max=2) as store:
        store.save(5, {})
    assert steps_in(tmp_path) == listed_in(tmp_path) == [4, 5]


def test_the_time_counts_on_across_restarts(tmp_path: Path, clock: Clock) -> None:
    for step in range(12):
        # A job that is interrupted each hour: none of its processes would last until something is kept.
        clock.hours = step
        with CheckpointStore(tmp_path, keep_max=1, keep_every_n_hours=3.5) as store:
            store.save(step, {})
    assert steps_in(tmp_path) == [4, 8, 11]


def test_a_clock_that_was_wrong_does_not_stop_it(tmp_path: Path, clock: Clock) -> None:
    clock.hours = 1e6
    with CheckpointStore(tmp_path, keep_max=1, keep_every_n_hours=1) as store:
        store.save(0, {})
    for step in range(1, 6):
        clock.hours = step
        with CheckpointStore(tmp_path, keep_max=1, keep_every_n_hours=1) as store:
            store.save(step, {})
    assert steps_in(tmp_path)[-2:] == [4, 5]


def test_the_same_step_again_counts_once(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path, keep_max=2) as store:
        for step in (1, 2, 1, 3):
            store.save(step, {})
    assert steps_in(tmp_path) == [1, 3]
    assert listed_in(tmp_path) == [1, 3]


def test_what_the_file_does_not_list_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for step in range(3):
        with CheckpointStore(tmp_path, keep_max=1) as store:
            store.save(step, {})
        (tmp_path / "checkpoint").write_text("broken" if step else "")
    assert steps_in(tmp_path) == [0, 1, 2]
    assert "checkpoints from before are never removed" in caplog.text


def test_what_lies_elsewhere_is_never_removed(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for directory in (here, there):
        with CheckpointStore(directory) as store:
            store.save(1, {})
    paths = "".join(f'all_model_checkpoint_paths: "{p}/model.ckpt-1"\n' for p in (there, "../there"))
    (here / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-1"\n{paths}')
    with CheckpointStore(here, keep_max=1) as store:
        store.save(2, {})
    assert steps_in(here) == [1, 2]
    assert steps_in(there) == [1]


def test_something_that_cannot_be_removed_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    obstacle = tmp_path / "model.ckpt-1.npz"
    with CheckpointStore(tmp_path, keep_max=1) as store:
        store.save(1, {})
        store.wait()
        obstacle.unlink()
        obstacle.mkdir()
        store.save(2, {})
        store.wait()
        assert "Ignoring: " in caplog.text
        assert listed_in(tmp_path) == [1, 2]
        obstacle.rmdir()
        store.save(3, {})
    assert listed_in(tmp_path) == steps_in(tmp_path) == [3]


def test_what_a_person_left_out_of_the_list_stays(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path, keep_max=3) as store:
        for step in (1, 2, 3):
            store.save(step, {})
    update_checkpoint_state(tmp_path, "model.ckpt-1")
    with CheckpointStore(tmp_path, keep_max=1) as store:
        for step in (4, 5):
            store.save(step, {})
    assert steps_in(tmp_path) == [2, 3, 5]
    assert listed_in(tmp_path) == [5]
