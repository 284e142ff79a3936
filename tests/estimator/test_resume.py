"""An Estimator whose training is interrupted goes on with exactly the next batch."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep as ls
from lockstep import checkpoint, estimator
from lockstep.checkpoint import _archive
from lockstep.errors import CheckpointError
from tests.estimator import small
from tests.estimator.resuming import Interrupted, Interrupts, run
from tests.support.cluster import Cluster, shared

_RUN = "tests.estimator.resuming:run"
Results = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def mirrored() -> Any:
    return ls.distribute.MirroredStrategy()


def check(found: Results, expected: Results, tolerance: float = 0.0) -> None:
    """Compares the variables, and the losses of the steps that were left."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        theirs = value[len(value) - len(found[name]) :] if name == "seen" else value
        np.testing.assert_allclose(found[name], theirs, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "at", "how", "left"),
    [
        ("shuffled", 7, "error", 4),
        ("shuffled", 7, "preempted", 7),
        ("shuffled", 8, "error", 8),
        ("filtered", 10, "error", 8),
    ],
)
@pytest.mark.parametrize("layout", ["one device", "four devices"])
def test_goes_on(kind: str, at: int, how: str, left: int, layout: str, mirrored: Any, tmp_path: Path) -> None:
    strategy = None if layout == "one device" else mirrored
    expected = run(strategy, str(tmp_path / "whole"), kind)
    assert "interrupted" in run(strategy, str(tmp_path / "parts"), kind, at, how)
    found = run(strategy, str(tmp_path / "parts"), kind)
    check(found, expected)
    assert len(found["seen"]) == len(expected["seen"]) - left


@pytest.mark.slow
def test_a_call_that_has_ended_is_not_gone_on_with(tmp_path: Path) -> None:
    """As in TensorFlow: each call of train begins with the beginning of its data, if the one before has ended."""
    # The last step was saved on the way (8), or at the end alone (30): both know that it is the end.
    for steps, last in ((8, 8), (22, 30), (24, 54)):
        assert len(run(None, str(tmp_path), steps=steps)["seen"]) == steps
        assert checkpoint.load(tmp_path / f"model.ckpt-{last}").extra["training"]["ended"]
    assert not checkpoint.load(tmp_path / "model.ckpt-50").extra["training"]["ended"]


def test_a_checkpoint_of_before_there_were_positions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(None, str(tmp_path), at=6)
    newest = checkpoint.load_newest(tmp_path)
    assert newest is not None
    with checkpoint.CheckpointStore(tmp_path) as store:
        store.save(newest.step, newest.arrays)
    with caplog.at_level(logging.INFO, "lockstep"):
        found = run(None, str(tmp_path))
    assert "does not say how far the data were used" in caplog.text
    assert found["seen"][0][0] == newest.step + 1
    assert len(found["seen"]) == 24


@pytest.mark.slow
def test_another_pipeline_begins_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(None, str(tmp_path), "plain", at=6)
    found = run(None, str(tmp_path), "other")
    assert "The data begin at their beginning, and not where training was interrupted." in caplog.text
    assert "Take(90)" in caplog.text
    assert len(found["seen"]) == -(-90 * 3 // 12)


@pytest.mark.slow
def test_row_16_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(None, str(tmp_path / "whole"))
    run(None, str(tmp_path), at=11)
    newest = tmp_path / "model.ckpt-8.npz"
    content = bytearray(newest.read_bytes())
    content[len(content) // 3] ^= 1
    newest.write_bytes(content)
    monkeypatch.setenv("LOCKSTEP_STRICT_CHECKPOINTS", "1")
    with pytest.raises(CheckpointError, match=r"model\.ckpt-8"):
        run(None, str(tmp_path))
    monkeypatch.delenv("LOCKSTEP_STRICT_CHECKPOINTS")
    found = run(None, str(tmp_path))
    assert "model.ckpt-8 is passed over" in caplog.text
    check(found, expected)
    assert len(found["seen"]) == len(expected["seen"]) - 4


def test_row_17_a_save_that_fails_stops_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = _archive.write

    def failing(file: str, step: int, *rest: Any) -> None:
        if step >= 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, step, *rest)

    monkeypatch.setattr(_archive, "write", failing)
    config = estimator.RunConfig(save_checkpoints_steps=4)
    hook = Interrupts(None, "")
    endless = small.line(tmp_path, config)
    with pytest.raises(CheckpointError, match="No space left on device"):
        endless.train(lambda: small.input_fn()().repeat(), hooks=[hook], steps=5000)
    assert 8 <= len(hook.seen) < 5000
    monkeypatch.undo()
    newest = checkpoint.load_newest(tmp_path)
    assert newest is not None
    assert newest.step == 4


pair = shared(2)


@pytest.mark.parametrize(
    ("kind", "how"), [pytest.param("shuffled", "error", marks=pytest.mark.exhaustive), ("filtered", "preempted")]
)
def test_two_workers(kind: str, how: str, pair: Cluster, tmp_path: Path) -> None:
    expected = pair.run(_RUN, directory=str(tmp_path / "whole"), kind=kind)
    parts = str(tmp_path / "parts")
    pair.run(_RUN, directory=parts, kind=kind, at=7, how=how)
    for found, other in zip(pair.run(_RUN, directory=parts, kind=kind), expected, strict=True):
        check(found, other)
        assert len(found["seen"]) == len(other["seen"]) - (4 if how == "error" else 7)


def test_row_22_another_number_of_workers(pair: Cluster, tmp_path: Path) -> None:
    """Two replicas in two processes, then in one, then in two: each goes on with the pipelines of the first."""
    expected = pair.run(_RUN, directory=str(tmp_path / "whole"))[0]
    parts = str(tmp_path / "parts")
    pair.run(_RUN, directory=parts, at=7)
    two = ls.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    run(two, parts, at=14)
    for found in pair.run(_RUN, directory=parts):
        check(found, expected, 2e-5)
        assert len(found["seen"]) == len(expected["seen"]) - 12


def test_row_22_another_global_batch(pair: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Pipelines that do not fit the replicas: the log gives both numbers, and the data begin anew."""
    pair.run(_RUN, directory=str(tmp_path), at=7)
    found = run(None, str(tmp_path))
    assert "A position of 2 pipelines" in caplog.text and "1 replicas" in caplog.text
    assert len(found["seen"]) == 24


def test_chief_alone_saves_without_a_position(pair: Cluster, tmp_path: Path) -> None:
    for found in pair.run("tests.estimator.resuming:chief_saves", directory=str(tmp_path)):
        assert int(found["global_step"]) == 24
    newest = checkpoint.load(tmp_path / "model.ckpt-20")
    assert "data" not in newest.extra["training"]


def test_row_17_a_save_that_fails_on_the_chief_stops_all(pair: Cluster, tmp_path: Path) -> None:
    for found in pair.run("tests.estimator.resuming:full_disk", directory=str(tmp_path)):
        assert str(found["type"]) == "CheckpointError"
        assert "model.ckpt-4.npz could not be written: [Errno 28] No space left on device" in str(found["text"])
        assert 4 < int(found["steps"]) < 1000


def test_interruptions_while_it_begins(tmp_path: Path) -> None:
    """Killed before the first step: what the first checkpoint holds is the beginning."""

    class Dies(estimator.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            raise Interrupted

    made = small.line(tmp_path / "parts", estimator.RunConfig(tf_random_seed=1))
    with pytest.raises(Interrupted):
        made.train(small.input_fn(), hooks=[Dies()])
    made.train(small.input_fn())
    other = small.line(tmp_path / "whole", estimator.RunConfig(tf_random_seed=1))
    other.train(small.input_fn())
    for name in other.get_variable_names():
        np.testing.assert_array_equal(made.get_variable_value(name), other.get_variable_value(name))
