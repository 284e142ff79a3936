"""What killed writers leave is removed; what somebody is writing is not."""

from __future__ import annotations

import os
import time
from pathlib import Path

from lockstep.checkpoint import CheckpointStore
from lockstep.checkpoint._owners import tag_name
from tests.checkpoint.support import other

WRITER = """
import sys
from lockstep.checkpoint import _atomic
with _atomic.replacing(sys.argv[1] + "/model.ckpt-1.npz") as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.readline()
"""


def hidden(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.name.startswith("."))


def save(directory: Path, step: int) -> None:
    with CheckpointStore(directory, basename="other") as store:
        store.save(step, {})


def test_of_a_process_that_runs_and_of_one_that_was_killed(tmp_path: Path) -> None:
    with other(WRITER, tmp_path) as alive, other(WRITER, tmp_path) as dead:
        assert alive.hear() == dead.hear() == "writing"
        assert len(hidden(tmp_path)) == 2
        save(tmp_path, 1)
        assert len(hidden(tmp_path)) == 2
        dead.process.kill()
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        for path in hidden(tmp_path):
            # However long a process that runs may take.
            os.utime(path, (0, 0))
        save(tmp_path, 2)
        assert len(hidden(tmp_path)) == 1
        alive.tell()
        alive.finish()
    assert hidden(tmp_path) == []
    assert (tmp_path / "model.ckpt-1.npz").read_bytes() == b"half"


def test_of_another_machine(tmp_path: Path) -> None:
    mine = tag_name(".model.ckpt-1.npz")
    stem, _, *rest = mine.rsplit(".", 4)
    fresh, old = (tmp_path / f"{stem}.{number * 12}.{'.'.join(rest)}.tmp" for number in "01")
    for path in (fresh, old):
        path.touch()
    os.utime(old, (0, time.time() - 3700))
    save(tmp_path, 1)
    assert hidden(tmp_path) == [fresh]


def test_what_is_called_otherwise_stays(tmp_path: Path) -> None:
    names = [".hidden", ".x.tmp", ".vimrc.swp", ".model.ckpt-1.npz.0.0.0.0.tmp", tag_name("visible") + ".tmp"]
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    save(tmp_path, 1)
    assert set(names) < set(os.listdir(tmp_path))
