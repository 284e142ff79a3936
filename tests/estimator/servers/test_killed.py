"""Tasks of an Estimator's job are killed: the others go on, and the last checkpoint has the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lockstep as ls
from tests.engine.runtime.jobs import eventually
from tests.estimator.servers.killed import STEPS

pytestmark = pytest.mark.cluster
_SECONDS = 300.0


def _start(folder: Path, waits: str) -> subprocess.Popen[bytes]:
    folder.mkdir()
    command = [sys.executable, "-m", "lockstep._launch", "run", "--workers", "2", "--ps", "2", "--max-restarts", "5"]
    program = ["--restart-delay", "0", "-m", "tests.estimator.servers.killed", str(folder), waits]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen([*command, *program], stdout=log, stderr=subprocess.STDOUT)


def _values(job: subprocess.Popen[bytes], folder: Path) -> dict[str, np.ndarray]:
    assert job.wait(_SECONDS) == 0, (folder / "log").read_text()[-4000:]
    reader = ls.checkpoint.load_checkpoint(str(folder / "model"))
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    folder = tmp_path_factory.mktemp("undisturbed") / "job"
    return _values(_start(folder, "goes on"), folder)


@pytest.mark.parametrize("task", ["worker 1", "ps 1", "worker 0"])
def test_the_last_checkpoint_has_the_same_bits(undisturbed: dict[str, np.ndarray], task: str, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    job = _start(folder, "waits")
    log = folder / "log"
    eventually((folder / "held").exists, lambda: f"the chief is held: {log.read_text()[-4000:]}", _SECONDS)
    os.kill(int((folder / f"{task}.pid").read_text()), signal.SIGKILL)
    again = f"Starting {task} again"
    eventually(lambda: again in log.read_text(), lambda: f"{again}: {log.read_text()[-4000:]}", _SECONDS)
    (folder / "go on").touch()
    values = _values(job, folder)
    assert values["global_step"] == STEPS
    for key, value in undisturbed.items():
        np.testing.assert_array_equal(values[key], value, err_msg=key)
