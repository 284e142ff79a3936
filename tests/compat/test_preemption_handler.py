"""PreemptionCheckpointHandler: a loop of one's own ends with a checkpoint, and goes on from it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError

experimental = tf.distribute.experimental


@pytest.fixture(autouse=True)
def handler_of_before() -> object:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def _make_handler(directory: Path, **settings: object) -> tuple[tf.Variable, object]:
    v = tf.Variable(0.0)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(v=v), directory, max_to_keep=3)
    return v, experimental.PreemptionCheckpointHandler(
        None, manager, termination_config=experimental.TerminationConfig(**settings)
    )


def test_it_saves_at_the_notice_and_goes_on(tmp_path: Path) -> None:
    v, handler = _make_handler(tmp_path)
    for step in range(3):
        assert handler.run(lambda by: v.assign_add(by).numpy(), 2.0) == 2.0 * (step + 1)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        handler.run(v.assign_add, 2.0)
    assert ended.value.code == 143 and float(v) == 6 and handler.total_run_calls == 3
    again, other = _make_handler(tmp_path)
    assert float(again) == 6 and other.total_run_calls == 3


def test_training_goes_on_in_the_time_that_is_left(tmp_path: Path) -> None:
    ends: list[str] = []
    v, handler = _make_handler(tmp_path, grace_period=3600, exit_fn=lambda: ends.append("ended"))
    os.kill(os.getpid(), signal.SIGTERM)
    handler.run(v.assign_add, 1.0)
    assert tf.train.latest_checkpoint(tmp_path) is not None and ends == [] and float(v) == 1


def test_the_program_says_how_it_learns_saves_and_ends(tmp_path: Path) -> None:
    calls: list[object] = []
    config = experimental.TerminationConfig(
        termination_watcher_fn=lambda: True,
        exit_fn=lambda: calls.append("exit"),
        save_fn=lambda number: calls.append(number),
    )
    checkpoint = tf.train.Checkpoint(v=tf.Variable(0.0))
    handler = experimental.PreemptionCheckpointHandler(None, checkpoint, tmp_path, config)
    handler._asked.wait(30)
    with handler.watch_preemption_scope():
        handler.save_checkpoint_if_preempted(7)
    assert calls == [7, "exit"]


def test_what_is_wrong_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="Pass checkpoint_dir"):
        experimental.PreemptionCheckpointHandler(None, tf.train.Checkpoint(v=tf.Variable(0.0)))
    with pytest.raises(ArgumentError, match="number of seconds"):
        experimental.TerminationConfig(grace_period=-1)
