"""Steps per second."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.errors import ArgumentError
from lockstep.estimator._hooks import StepCounterHook
from lockstep.estimator.summary import FileWriterCache
from lockstep.summary import scalars
from tests.estimator.hooks.conftest import Clock
from tests.estimator.hooks.fakes import FakeSession, run_each, run_paced


class Recorder:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.written: list[tuple[str, float, int]] = []

    def flush(self) -> None:
        self.is_flushed = True

    def add_summary(self, summary: object, global_step: int) -> None:
        self.is_flushed = False
        (value,) = summary.value
        self.written.append((value.tag, value.simple_value, global_step))


@pytest.mark.parametrize("arguments", [{"every_n_secs": 5}, {"every_n_steps": None}])
def test_exactly_one_of_steps_and_secs(arguments: dict[str, int | None]) -> None:
    with pytest.raises(ArgumentError, match="exactly one of every_n_steps and every_n_secs"):
        StepCounterHook(**arguments)


@pytest.mark.parametrize("run", [run_each, run_paced])
def test_every_n_steps(run: object, clock: Clock, log: pytest.LogCaptureFixture) -> None:
    writer, session = Recorder(), FakeSession(5)
    before = session.step

    def tick(step: int) -> None:
        nonlocal before
        clock.tick((step - before) / 64)
        before = step

    run([StepCounterHook(every_n_steps=10, summary_writer=writer)], 31, session, after=tick)
    assert writer.written == [("global_step/sec", 64.0, step) for step in (16, 26, 36)]
    assert writer.is_flushed
    assert log.messages == ["global_step/sec: 64"] * 3


def test_every_n_secs(clock: Clock, log: pytest.LogCaptureFixture) -> None:
    writer = Recorder()
    hook = StepCounterHook(every_n_steps=None, every_n_secs=1.0, summary_writer=writer)
    run_each([hook], 9, after=lambda step: clock.tick(0.3))
    assert [step for _, _, step in writer.written] == [5, 9]
    assert log.messages == ["global_step/sec: 3.33333"] * 2


def test_a_directory(tmp_path: Path, clock: Clock) -> None:
    run_each([StepCounterHook(every_n_steps=2, output_dir=tmp_path)], 5, after=lambda step: clock.tick(0.5))
    FileWriterCache.clear()
    assert scalars(tmp_path) == {3: {"global_step/sec": 2.0}, 5: {"global_step/sec": 2.0}}


def test_no_directory(log: pytest.LogCaptureFixture, clock: Clock) -> None:
    run_each([StepCounterHook(every_n_steps=2)], 5, after=lambda step: clock.tick(0.5))
    assert log.messages == ["global_step/sec: 2"] * 2


def test_it_warns_five_times_that_the_step_stands_still(log: pytest.LogCaptureFixture) -> None:
    session = FakeSession(3)

    def undo(step: int) -> None:
        session.step = 3

    run_each([StepCounterHook(every_n_steps=1)], 20, session, after=undo)
    assert len(log.records) == 5
    assert {record.levelname for record in log.records} == {"WARNING"}
    assert log.messages[0] == (
        "It seems that global step (tf.train.get_global_step) has not been increased. Current value (could be stable): "
        "3 vs previous value: 3. You could increase the global step by passing tf.train.get_global_step() to "
        "Optimizer.apply_gradients or Optimizer.minimize."
    )


def test_a_second_run_starts_anew(clock: Clock, log: pytest.LogCaptureFixture) -> None:
    hook = StepCounterHook(every_n_steps=2)
    for start in (0, 3):
        run_each([hook], 3, FakeSession(start), after=lambda step: clock.tick(0.5))
        clock.tick(1000)
    assert log.messages == ["global_step/sec: 2"] * 2


def test_time_that_stands_still(clock: Clock, log: pytest.LogCaptureFixture) -> None:
    run_each([StepCounterHook(every_n_steps=1)], 2)
    assert log.messages == ["global_step/sec: 1e+09"]
