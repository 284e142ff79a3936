"""Ray: the driver is a program whose names exist, and that describes the job."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep._templates.job import Job
from lockstep._templates.ray import ray
from tests.templates.support import ALL_JOBS


@ALL_JOBS
def test_it_is_a_program_that_describes_the_job(job: Job) -> None:
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(ray(job)).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert values["PROGRAM"] == list(job.program)
    assert values["ROLES"] == job.roles
    assert values["GPUS"] == {role: job.gpus_of(role) for role in job.roles}
    assert values["SHARED"] == job.shared


def test_it_passes_the_linter(tmp_path: Path) -> None:
    program = tmp_path / "driver.py"
    program.write_text(ray(Job()))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=E,F,B", "--line-length=120", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.cluster
def test_it_runs_on_a_ray_of_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    (tmp_path / "program.py").write_text(
        "import json, os, pathlib, sys\n"
        "task = json.loads(os.environ['TF_CONFIG'])['task']\n"
        "pathlib.Path(os.environ['SHARED'], f\"{task['type']}-{task['index']}\").write_text(os.environ['TF_CONFIG'])\n"
        "sys.exit(3 if os.environ['LOCKSTEP_GENERATION'] == '0' and task['index'] == 1 else 0)\n"
    )
    job = Job(program=(str(tmp_path / "program.py"),), shared=str(tmp_path), cpus=1, memory=1, max_restarts=1)
    driver = tmp_path / "driver.py"
    driver.write_text(ray(job).replace("ray.init(", "ray.init(num_cpus=2, include_dashboard=False, "))
    done = subprocess.run([sys.executable, driver], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert "Starting all tasks again: exit code 3, 1 of 1 restarts used." in done.stdout
    configs = [json.loads((tmp_path / f"worker-{index}").read_text()) for index in range(2)]
    assert configs[0]["cluster"] == configs[1]["cluster"]
