"""Writers that are killed at any moment: what they said was saved is there, and nothing half-written is ever seen."""

from __future__ import annotations

import os
import random
import subprocess
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


def kill(writer: Other, after: float) -> list[int]:
    """Kills a writer some time after its first words; returns the steps that it said it had saved."""
    said = [writer.hear()]
    try:
        writer.process.wait(after)
    except subprocess.TimeoutExpired:
        writer.process.kill()
    return [int(line) for line in said + writer.finish()]


@pytest.mark.parametrize(("keep", "kills"), [(0, 12), (1, 9), (3, 9)])
def test_writers_that_are_killed(tmp_path: Path, keep: int, kills: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(keep)
    saved, good = set[int](), set[int]()
    seen_half_written = 0
    for _ in range(kills):
        with other(WRITER, tmp_path, keep) as writer:
            saved.update(kill(writer, chance.uniform(0, 0.05)))
        there = {step_of(prefix): prefix for prefix in all_checkpoints(tmp_path)}
        good |= {step for step in there.keys() - good if check(there[step]) == step}
        assert len(there) == len(list(tmp_path.glob("model.ckpt-*.npz"))), "one that is not whole has its final name"
        newest = load_newest(tmp_path)
        assert newest is not None
        assert newest.step >= max(saved)
        assert saved <= there.keys() & good if keep == 0 else len(there) <= keep + 2
        hidden = [name for name in os.listdir(tmp_path) if name.startswith(".")]
        assert len(hidden) <= 1, "the next writer removes what the one before left"
        seen_half_written += len(hidden)
    assert seen_half_written > 0, "none was killed while it was writing"
    assert "passed over" not in caplog.text
    with CheckpointStore(tmp_path, keep_max=1) as store:
        store.save(max(saved) + 5, {"w": np.ones(1)})
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []
