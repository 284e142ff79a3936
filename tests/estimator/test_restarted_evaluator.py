"""An evaluator that ends in the middle of an export and is started again by the launcher."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lockstep import summary
from tests.support.cluster import environment
from tests.support.exhaustive import always

pytestmark = pytest.mark.cluster

SECONDS = 200.0


def launched(directory: Path, **options: Any) -> tuple[Path, str]:
    """Runs a job whose tasks may be started again; returns its model_dir and what it printed."""
    command = [
        *(sys.executable, "-m", "lockstep._launch", "run", "--workers=1", "--evaluator"),
        *("--max-restarts=1", "--max-preemptions=1"),
        *("-m", "tests.estimator.program", str(directory / "model"), json.dumps(options)),
    ]
    env = environment(LOCKSTEP_PEER_TIMEOUT="60")
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-6000:]
    assert (directory / "model-ended").exists()
    assert "Starting evaluator 0 again" in output
    return directory / "model", output


@pytest.mark.parametrize(
    ("place", "end"),
    always(
        [("final", "error"), ("final", "SIGTERM"), ("final", "SIGKILL"), ("evaluation", "SIGTERM")],
        {("final", "SIGKILL"), ("evaluation", "SIGTERM")}.__contains__,
    ),
)
def test_the_final_export_is_made(tmp_path: Path, place: str, end: str) -> None:
    model_dir, output = launched(tmp_path, max_steps=10, end_in=place, end_by=end)
    found = [line.partition("RESULT ")[2] for line in output.splitlines() if "RESULT " in line]
    assert len(found) == 2 and found[0] == found[1], "worker and evaluator return the same"
    metrics, exports = json.loads(found[0])
    assert metrics["global_step"] == 10
    assert [str(path) for path in (model_dir / "export" / "final").iterdir()] == exports


def test_a_checkpoint_that_was_evaluated_but_not_exported_is_exported_later(tmp_path: Path) -> None:
    model_dir, _ = launched(tmp_path, max_steps=30, slow=0.1, latest=True, end_in="latest", end_by="SIGKILL")
    evaluated = summary.scalars(str(model_dir / "eval"))
    assert 30 in evaluated
    assert len(list((model_dir / "export" / "latest").iterdir())) == len(evaluated)


def test_the_best_model_is_that_of_an_undisturbed_evaluator(tmp_path: Path) -> None:
    """Its checkpoint has gone, when the evaluator is started again."""
    model_dir, _ = launched(tmp_path, max_steps=60, every=1, slow=0.1, best=True, end_in="best", end_by="SIGKILL")
    losses = {step: found["loss"] for step, found in summary.scalars(str(model_dir / "eval")).items()}
    assert len(losses) > 3
    best = model_dir / "export" / "best"
    exports = [path for path in best.iterdir() if path.name.isdigit()]
    record = json.loads((best / "best_eval_result.json").read_text())
    assert record["best"]["global_step"] == min(losses)
    assert len(exports) == 1, "the first evaluation was the best"
    assert not (best / ".exporting").exists()
