"""Slurm: the script is sound, makes each task's TF_CONFIG, and runs under a real Slurm where there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep._templates.job import Job
from lockstep._templates.slurm import RESOLVER_PORT, slurm
from tests.templates.slurm_cluster import SlurmCluster, missing_programs
from tests.templates.support import ALL_JOBS, JOBS

TRAIN = """
import json, os, sys
import lockstep as ls
import keras, numpy as np

strategy = ls.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile("sgd", "mse")
x = np.arange(16.0).reshape(8, 2).astype("float32") / 16
history = model.fit(x, x.sum(1), batch_size=4, epochs=2, verbose=0)
task = os.environ["SLURM_PROCID"]
with open(f"result-{task}.json", "w") as file:
    json.dump({"replicas": strategy.num_replicas_in_sync, "loss": history.history["loss"], "argv": sys.argv[1:]}, file)
"""


@ALL_JOBS
def test_the_script_is_sound(job: Job, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(slurm(job))
    assert subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False).stderr == ""
    options = [line for line in script.read_text().splitlines() if line.startswith("#SBATCH")]
    assert f"#SBATCH --ntasks={sum(job.roles.values())}" in options
    assert (f"#SBATCH --gpus-per-task={job.gpus}" in options) == bool(job.gpus)


@pytest.mark.cluster
def test_each_rank_gets_its_tf_config(tmp_path: Path) -> None:
    """The script itself runs, with an `srun` that starts each rank as Slurm would on two nodes."""
    job = JOBS["all"]
    count = sum(job.roles.values())
    programs = tmp_path / "bin"
    programs.mkdir()
    # The program of the tasks, beside the real interpreter for the line that makes TF_CONFIG.
    written = 'import os, sys; open(f"rank-{os.environ[\'SLURM_PROCID\']}", "w").write(os.environ["TF_CONFIG"])'
    commands = {
        "python": f'[ "$1" = -c ] && exec {sys.executable} "$@"\nexec {sys.executable} -c {shlex_quote(written)}',
        "srun": 'while [[ "$1" == --* ]]; do shift; done\n'
        f'for rank in $(seq 0 {count - 1}); do SLURM_PROCID=$rank "$@" || exit; done',
    }
    for name, text in commands.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    script = tmp_path / "job.sh"
    script.write_text(slurm(job))
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": f"{count - 3},3",
        "SLURM_NTASKS": str(count),
        "SLURM_GPUS_PER_TASK": "2",
    }
    done = subprocess.run(
        ["bash", script], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    ranks = [(role, index) for role, number in sorted(job.roles.items()) for index in range(number)]
    for rank, (role, index) in enumerate(ranks):
        config = json.loads((tmp_path / f"rank-{rank}").read_text())
        assert config["task"] == {"type": role, "index": index}
        assert {name: len(hosts) for name, hosts in config["cluster"].items()} == job.roles
    secret = tmp_path / ".lockstep-secret"
    assert len(secret.read_text()) == 64
    assert secret.stat().st_mode & 0o077 == 0


def shlex_quote(text: str) -> str:
    import shlex

    return shlex.quote(text)


@pytest.mark.timed
@pytest.mark.cluster
@pytest.mark.alone
@pytest.mark.skipif(bool(missing_programs()), reason=f"Slurm is not installed: {', '.join(missing_programs())}")
@pytest.mark.parametrize("port", [RESOLVER_PORT, 7000], ids=["by the resolver", "by TF_CONFIG"])
def test_two_tasks_train_under_slurm(tmp_path: Path, port: int) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    text = slurm(Job(name="two", program=("train.py", "--epochs", "2"), cpus=1, memory=1, grace=5, port=port))
    (tmp_path / "job.sh").write_text(text)
    with SlurmCluster(tmp_path / "slurm") as cluster:
        cluster.test_only(tmp_path / "job.sh")
        state = cluster.run(tmp_path / "job.sh", tmp_path)
        logs = "".join(path.read_text() for path in tmp_path.glob("two-*.log"))
        assert state == "COMPLETED", logs + cluster.logs()
    results = [json.loads((tmp_path / f"result-{rank}.json").read_text()) for rank in range(2)]
    assert results[0] == results[1]
    assert results[0]["replicas"] == 2
    assert results[0]["argv"] == ["--epochs", "2"]
    assert ("SlurmClusterResolver takes the cluster from Slurm" in logs) == (port == RESOLVER_PORT)
