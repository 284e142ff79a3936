"""When checkpoints are saved, and who is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.errors import ArgumentError
from lockstep.estimator._hooks import CheckpointSaverHook, CheckpointSaverListener
from lockstep.estimator.summary import FileWriterCache
from lockstep.summary import SessionLog, read_events
from tests.estimator.hooks.conftest import Clock
from tests.estimator.hooks.fakes import FakeSession, Run, run_each, run_paced, started, step_once


class Listener(CheckpointSaverListener):
    """Writes down what it is told; wants to stop from a step on."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.told: list[tuple[str, int | None]] = []
        self._stop_at = stop_at

    def begin(self) -> None:
        self.told.append(("begin", None))

    def before_save(self, session: Any, global_step_value: int) -> None:
        self.told.append(("before", len(session.saved)))

    def after_save(self, session: Any, global_step_value: int) -> bool | None:
        self.told.append(("after", global_step_value))
        return True if self._stop_at is not None and global_step_value >= self._stop_at else None

    def end(self, session: Any, global_step_value: int) -> None:
        self.told.append(("end", global_step_value))

    def __repr__(self) -> str:
        return "a listener"


@pytest.mark.parametrize("arguments", [{}, {"save_secs": 10, "save_steps": 20}])
def test_exactly_one_of_secs_and_steps(arguments: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="every_secs"):
        CheckpointSaverHook(tmp_path, **arguments)


@pytest.mark.parametrize("run", [run_each, run_paced])
@pytest.mark.parametrize(
    ("save_steps", "start", "steps", "saved"),
    [
        (2, 0, 5, [0, 2, 4, 5]),
        (2, 0, 4, [0, 2, 4]),
        (2, 7, 3, [7, 9, 10]),
        (100, 0, 5, [0, 5]),
        (1, 0, 2, [0, 1, 2]),
        (10, 30, 0, [30]),
    ],
)
def test_every_n_steps(
    run: Callable[..., Run], save_steps: int, start: int, steps: int, saved: list[int], tmp_path: Path
) -> None:
    done = run([CheckpointSaverHook(str(tmp_path), save_steps=save_steps)], steps, FakeSession(start))
    assert done.session.saved == [(step, str(tmp_path), "model.ckpt") for step in saved]


def test_every_n_secs(tmp_path: Path, clock: Clock) -> None:
    hook = CheckpointSaverHook(tmp_path, save_secs=1.0)
    run = run_each([hook], 9, after=lambda step: clock.tick(0.3))
    assert [step for step, _, _ in run.session.saved] == [0, 4, 8, 9]


def test_seconds_do_not_keep_steps_apart(tmp_path: Path, clock: Clock) -> None:
    """With a step of a millisecond, a hook that saves every 10 minutes is called a few times a second."""
    run = run_paced([CheckpointSaverHook(tmp_path, save_secs=600)], 700_000, after=_ticking(clock, 0.001))
    first, middle, last = (step for step, _, _ in run.session.saved)
    assert (first, last) == (0, 700_000)
    assert abs(middle - 600_000) <= 1
    assert len(run.called[0]) < 2000


def _ticking(clock: Clock, seconds: float) -> Callable[[int], None]:
    """Returns what lets time pass with the steps."""
    before = 0

    def tick(step: int) -> None:
        nonlocal before
        clock.tick((step - before) * seconds)
        before = step

    return tick


def test_an_error_leaves_no_checkpoint(tmp_path: Path) -> None:
    run = run_each([CheckpointSaverHook(tmp_path, save_steps=3)], 5, ends=False)
    assert [step for step, _, _ in run.session.saved] == [0, 3]


def test_the_log(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    run_each([CheckpointSaverHook(tmp_path, save_steps=5, checkpoint_basename="mine")], 5, FakeSession(10))
    assert log.messages == [
        "Create CheckpointSaverHook.",
        "Calling checkpoint listeners before saving checkpoint 10...",
        f"Saving checkpoints for 10 into {tmp_path}/mine.",
        "Calling checkpoint listeners after saving checkpoint 10...",
        "Calling checkpoint listeners before saving checkpoint 15...",
        f"Saving checkpoints for 15 into {tmp_path}/mine.",
        "Calling checkpoint listeners after saving checkpoint 15...",
    ]


def test_listeners(tmp_path: Path) -> None:
    first, second = Listener(), Listener()
    hook = CheckpointSaverHook(tmp_path, save_steps=2, listeners=[first])
    hook.listeners.append(second)
    run_each([hook], 3)
    assert first.told == [
        ("begin", None),
        *(("before", 0), ("after", 0)),
        *(("before", 1), ("after", 2)),
        *(("before", 2), ("after", 3)),
        ("end", 3),
    ]
    assert second.told == first.told


def test_a_listener_stops_training(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    """All listeners are told, and the run ends after this step; what the first save says does not count."""
    listeners = [Listener(stop_at=0), Listener()]
    run = run_each([CheckpointSaverHook(tmp_path, save_steps=2, listeners=listeners)], 9)
    assert run.stopped_at == 2
    assert [step for step, _, _ in run.session.saved] == [0, 2]
    assert listeners[0].told == listeners[1].told
    stopped = "A CheckpointSaverListener requested that training be stopped. listener: a listener"
    assert log.messages.count(stopped) == 2
    assert log.messages[-1] == stopped


def test_another_saver(tmp_path: Path) -> None:
    saved = []

    class Saver:
        def save(self, session: FakeSession, path: str, global_step: int) -> None:
            saved.append((path, global_step))

    for arguments in ({"saver": Saver()}, {"scaffold": SimpleNamespace(saver=Saver())}):
        run = run_each([CheckpointSaverHook(tmp_path, save_steps=1, **arguments)], 1)
        assert run.session.saved == []
    assert saved == [(f"{tmp_path}/model.ckpt", step) for step in (0, 1)] * 2
    run = run_each([CheckpointSaverHook(tmp_path, save_steps=1, scaffold=SimpleNamespace(saver=None))], 1)
    assert len(run.session.saved) == 2


def test_who_saves_must_be_clear(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="both saver and scaffold"):
        CheckpointSaverHook(tmp_path, save_steps=1, saver=object(), scaffold=object())
    with pytest.raises(ArgumentError, match="has a method save"):
        CheckpointSaverHook(tmp_path, save_steps=1, saver=object())


@pytest.mark.parametrize("is_chief", [True, False])
def test_the_chief_notes_checkpoints_in_its_event_file(is_chief: bool, tmp_path: Path) -> None:
    run_each([CheckpointSaverHook(tmp_path, save_steps=1)], 1, FakeSession(is_chief=is_chief))
    FileWriterCache.clear()
    logs = [event for event in read_events(tmp_path) if event.HasField("session_log")]
    assert [(event.step, event.session_log.status) for event in logs] == [
        (step, SessionLog.CHECKPOINT) for step in (0, 1) if is_chief
    ]


def test_the_chiefs_clock_counts_for_all(tmp_path: Path, clock: Clock) -> None:
    """The chief asks; every task saves after the step at which it is told."""
    tasks = [FakeSession(is_chief=i == 0, is_alone=False) for i in range(2)]
    hooks = [CheckpointSaverHook(tmp_path / str(i), save_secs=1.0) for i in range(2)]
    runs = [started([hook], task) for hook, task in zip(hooks, tasks, strict=True)]
    for step in range(1, 12):
        clock.tick(0.3)
        if step == 7:
            for task in tasks:
                task.words.add("save")
        for hook, run in zip(hooks, runs, strict=True):
            step_once(run, [hook], [0])
        # It can be told after any run, and the chief too, once it has asked.
        assert hooks[1].next_step(step) == step
        assert not 4 <= step < 7 or hooks[0].next_step(step) == step
    assert tasks[0].asked == [(4, "save"), (11, "save")]
    assert tasks[1].asked == []
    for task in tasks:
        assert [step for step, _, _ in task.saved] == [0, 7]


def test_steps_need_no_words(tmp_path: Path) -> None:
    task = FakeSession(is_chief=False, is_alone=False)
    run = run_paced([CheckpointSaverHook(tmp_path, save_steps=5)], 12, task)
    assert [step for step, _, _ in run.session.saved] == [0, 5, 10, 12]
    assert run.called == [[5, 10]]
    assert task.asked == []
