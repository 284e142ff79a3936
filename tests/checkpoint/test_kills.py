"""Writers that are killed at any moment: what they said was saved is there, and nothing half-written is ever seen."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from lockstep.checkpoint import CheckpointStore, all_checkpoints, load, load_newest, step_of
from tests.checkpoint.support import Other, other

pytestmark = pytest.mark.cluster

WRITER = """
import sys, numpy
from lockstep.checkpoint import CheckpointStore, load_newest
directory, keep = sys.argv[1], int(sys.argv[2])
found = load_newest(directory)
step = found.step + 1 if found else 0
with CheckpointStore(directory, keep_max=keep) as store:
    while True:
        store.save(step, {f"w{n}": numpy.full(20_000, step + n, float) for n in range(4)}, {"step": step})
        store.wait()
        print(step, flush=True)
        step += 1
"""


def check(prefix: str) -> int:
    found = load(prefix)
    assert found.extra == {"step": found.step}
    assert all((found.arrays[f"w{n}"] == found.step + n).all() for n in range(4))
    assert step_of(prefix) == found.step
    return found.step


def hidden_files(directory: Path) -> list[str]:
    return [name for name in os.listdir(directory) if name.startswith(".")]


def kill_after(writer: Other, seconds: float) -> list[int]:
    """Kills a writer some time after its first words; returns the steps that it said it had saved."""
    said = [writer.hear()]
    try:
        writer.process.wait(seconds)
    except subprocess.TimeoutExpired:
        writer.process.kill()
    return [int(line) for line in said + writer.finish()]


def kill_within_a_save(writer: Other, directory: Path) -> list[int]:
    """Stops a writer, as often as it takes to find a file that has no final name yet, and kills it there."""
    said = [writer.hear()]
    deadline = time.monotonic() + 60
    while True:
        writer.process.send_signal(signal.SIGSTOP)
        os.waitpid(writer.pid, os.WUNTRACED)
        if hidden_files(directory):
            break
        assert time.monotonic() < deadline, "the writer was never seen while it was writing"
        writer.process.send_signal(signal.SIGCONT)
        time.sleep(0.001)
    writer.process.kill()
    return [int(line) for line in said + writer.finish()]


@pytest.mark.parametrize(("keep", "kills"), [(0, 12), (1, 9), (3, 9)])
def test_writers_that_are_killed(tmp_path: Path, keep: int, kills: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(keep)
    saved, good = set[int](), set[int]()
    for turn in range(kills):
        within = turn % 3 == 0
        with other(WRITER, tmp_path, keep) as writer:
            saved.update(
                kill_within_a_save(writer, tmp_path) if within else kill_after(writer, chance.uniform(0, 0.05))
            )
        there = {step_of(prefix): prefix for prefix in all_checkpoints(tmp_path)}
        good |= {step for step in there.keys() - good if check(there[step]) == step}
        assert len(there) == len(list(tmp_path.glob("model.ckpt-*.npz"))), "one that is not whole has its final name"
        newest = load_newest(tmp_path)
        assert newest is not None
        assert newest.step >= max(saved)
        assert saved <= there.keys() & good if keep == 0 else len(there) <= keep + 2
        hidden = hidden_files(tmp_path)
        assert len(hidden) == 1 if within else len(hidden) <= 1, "the next writer removes what the one before left"
    assert "passed over" not in caplog.text
    with CheckpointStore(tmp_path, keep_max=1) as store:
        store.save(max(saved) + 5, {"w": np.ones(1)})
    assert hidden_files(tmp_path) == []
