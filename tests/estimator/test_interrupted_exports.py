"""A BestExporter whose process is killed at each single step of its work, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoint.support import other

# Exports the checkpoints 10, 20 and 30, of which 10 and then 20 are the best. A fork is killed while it exports 20, at
# one point after the other. Prints whether it was killed, and which checkpoints are exported at the end.
PROGRAM = """
import os, shutil, sys
from pathlib import Path
from lockstep.checkpoint._names import file_of
from lockstep.estimator._export.exporters import BestExporter
from lockstep.saved_model import _directories
from tests.support.dying import die_in_os

base, keeps = Path(sys.argv[1]), sys.argv[2] == "kept"
LOSSES = {10: 0.5, 20: 0.2, 30: 0.3}

class Model:
    def __init__(self, model_dir):
        self.model_dir = str(model_dir)

    def export_saved_model(self, export_dir_base, function, assets_extra, as_text, checkpoint_path):
        content = Path(file_of(checkpoint_path)).read_text()
        return _directories.create_version(export_dir_base, lambda made: (made / "f").write_text(content))

def evaluate(model_dir, step, exporter):
    prefix = model_dir / f"model.ckpt-{step}"
    result = {"loss": LOSSES[step], "global_step": step}
    return exporter.export(Model(model_dir), str(model_dir / "best"), str(prefix), result, False)

def new():
    return BestExporter("best", lambda: None, event_file_pattern=None)

point = 0
while True:
    point += 1
    model_dir = base / str(point)
    model_dir.mkdir()
    for step in LOSSES:
        (model_dir / f"model.ckpt-{step}.npz").write_text(str(step))
    exporter = new()
    evaluate(model_dir, 10, exporter)
    child = os.fork()
    if not child:
        die_in_os(point, "replace", "rename", "unlink", "fsync", "open", "close", "stat", "link", "mkdir", "rmdir")
        evaluate(model_dir, 20, exporter)
        os._exit(0)
    killed = os.waitpid(child, 0)[1] != 0
    exporter = new()
    if keeps:
        evaluate(model_dir, 20, exporter)
    else:
        (model_dir / "model.ckpt-20.npz").unlink()
    evaluate(model_dir, 30, exporter)
    versions = _directories.versions(model_dir / "best")
    left = sorted(p.name for p in (model_dir / "best").iterdir() if p not in versions)
    print(int(killed), *[(path / "f").read_text() for path in versions], *left, flush=True)
    if not killed:
        break
"""
RECORD = "best_eval_result.json"


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", ["kept", "removed"])
def test_every_point(tmp_path: Path, checkpoint: str) -> None:
    with other(PROGRAM, tmp_path, checkpoint) as program:
        reports = [line.split() for line in program.finish()]
    assert len(reports) > 15
    assert [report[0] for report in reports] == ["1"] * (len(reports) - 1) + ["0"]
    undisturbed = ["10", "20", RECORD]
    assert reports[-1][1:] == undisturbed
    # As long as nothing is written down of an evaluation whose checkpoint has gone, it has not happened.
    results = [report[1:] for report in reports if report[1:] != undisturbed]
    assert all(result == ["10", "30", RECORD] for result in results)
    assert bool(results) == (checkpoint == "removed")
    first = next(i for i, report in enumerate(reports) if report[1:] == undisturbed)
    assert all(report[1:] == undisturbed for report in reports[first:])
