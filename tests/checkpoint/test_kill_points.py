"""A writer that is killed at each single step of its work, one after the other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.checkpoint.support import other

pytestmark = pytest.mark.cluster

# Forks a writer for each point; says whether it was killed, and what can be read then and after another save.
PROGRAM = """
import os, sys, zipfile, numpy
from lockstep.checkpoint import CheckpointStore, all_checkpoints, load, load_newest
from tests.support.dying import die_in_os

directory = sys.argv[1]

def save(step):
    with CheckpointStore(directory, keep_max=2) as store:
        store.save(step, {"w": numpy.full(5_000, step)})

def die_at(point):
    dying = die_in_os(point, "replace", "unlink", "fsync", "open", "close", "stat")
    zipfile.ZipFile.close = dying(zipfile.ZipFile.close)
    zipfile._ZipWriteFile.write = dying(zipfile._ZipWriteFile.write)

save(0)
save(1)
step, point = 1, 0
while True:
    point += 1
    child = os.fork()
    if not child:
        die_at(point)
        save(step + 1)
        os._exit(0)
    killed = os.waitpid(child, 0)[1] != 0
    found = load_newest(directory)
    good = all((load(prefix).arrays["w"] == load(prefix).step).all() for prefix in all_checkpoints(directory))
    named = len([name for name in os.listdir(directory) if name.endswith(".npz") and name[0] != "."])
    print(int(killed), found.step - step, int(good and named == len(all_checkpoints(directory))), flush=True)
    save(step + 2)
    print(*sorted(os.listdir(directory)), flush=True)
    step += 2
    if not killed:
        break
"""


def test_every_point(tmp_path: Path) -> None:
    with other(PROGRAM, tmp_path) as program:
        lines = program.finish()
    reports, listings = lines[::2], lines[1::2]
    assert len(reports) > 20
    killed = [report.split()[0] for report in reports]
    assert killed == ["1"] * (len(reports) - 1) + ["0"]
    # The one before, or the new one; first the one, later the other.
    advances = [int(report.split()[1]) for report in reports]
    assert advances == sorted(advances)
    assert set(advances) == {0, 1}
    assert all(report.endswith(" 1") for report in reports), "something half-written was to be seen"
    for number, listing in enumerate(listings):
        step = 1 + 2 * (number + 1)
        before = {f"model.ckpt-{step - 1}.npz", f"model.ckpt-{step - 2}.npz"} & set(listing.split())
        assert len(before) == 1
        assert sorted({*before, "checkpoint", f"model.ckpt-{step}.npz"}) == listing.split()
    assert len(os.listdir(tmp_path)) == 3
