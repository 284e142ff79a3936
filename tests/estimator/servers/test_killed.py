"""Tasks of an Estimator's job are killed: the others go on, and the last checkpoint has the same bits."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lockstep as ls
from tests.engine.runtime.jobs import eventually
from tests.estimator.servers.killed import STEPS
from tests.support.exhaustive import always

pytestmark = pytest.mark.cluster
_SECONDS = 300.0
# In the middle of a share, and of the one that closes a round: the program kills the worker itself.
_BY_ITSELF = {"worker 1, by itself": "dies", "worker 1, in closing": "dies in closing"}


def _start(folder: Path, waits: str, optimizer: str) -> subprocess.Popen[bytes]:
    folder.mkdir()
    command = [sys.executable, "-m", "lockstep._launch", "run", "--workers", "2", "--ps", "2", "--max-restarts", "5"]
    program = ["--restart-delay", "0", "-m", "tests.estimator.servers.killed", str(folder), waits, optimizer]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen([*command, *program], stdout=log, stderr=subprocess.STDOUT)


def _values(job: subprocess.Popen[bytes], folder: Path) -> dict[str, np.ndarray]:
    assert job.wait(_SECONDS) == 0, (folder / "log").read_text()[-4000:]
    reader = ls.checkpoint.load_checkpoint(str(folder / "model"))
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}


def _assert_same_bits(values: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert values.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(values[key], value, err_msg=key)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, np.ndarray]]:
    """Returns the last checkpoint of a job in which nothing happens, by optimizer."""

    @functools.cache
    def values_of(optimizer: str) -> dict[str, np.ndarray]:
        folder = tmp_path_factory.mktemp("undisturbed") / "job"
        return _values(_start(folder, "goes on", optimizer), folder)

    return values_of


@pytest.mark.parametrize(
    ("task", "optimizer"),
    always(
        [
            *(("worker 1", "adam"), ("ps 1", "adam"), ("ps 1", "sgd"), ("worker 0", "adam")),
            *(("worker 1", "replicas"), ("ps 1", "replicas"), ("worker 1", "table"), ("ps 1", "table")),
            *(("worker 0", "table"), ("worker 0", "shares"), ("ps 1", "shares")),
            *((task, "shares") for task in _BY_ITSELF),
        ],
        {
            *(("worker 0", "adam"), ("ps 1", "table")),
            *((task, "shares") for task in _BY_ITSELF),
        }.__contains__,
    ),
)
def test_the_last_checkpoint_has_the_same_bits(
    undisturbed: Callable[[str], dict[str, np.ndarray]], task: str, optimizer: str, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    job = _start(folder, _BY_ITSELF.get(task, "waits"), optimizer)
    log = folder / "log"
    eventually((folder / "held").exists, lambda: f"the chief is held: {log.read_text()[-4000:]}", _SECONDS)
    if task not in _BY_ITSELF:
        os.kill(int((folder / f"{task}.pid").read_text()), signal.SIGKILL)
    again = f"Starting {task.partition(',')[0]} again"
    eventually(lambda: again in log.read_text(), lambda: f"{again}: {log.read_text()[-4000:]}", _SECONDS)
    (folder / "go on").touch()
    values = _values(job, folder)
    # Nobody else has failed because of it.
    assert log.read_text().count("again, by itself") == 1, log.read_text()[-4000:]
    assert values["global_step"] == STEPS
    _assert_same_bits(values, undisturbed(optimizer))


def test_a_worker_that_is_late_pushes_before_the_servers_end(
    undisturbed: Callable[[str], dict[str, np.ndarray]], tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    job = _start(folder, "is late", "adam")
    log = folder / "log"
    eventually((folder / "is late").exists, lambda: f"a worker is late: {log.read_text()[-4000:]}", _SECONDS)
    (folder / "go on").touch()
    values = _values(job, folder)
    assert "again" not in log.read_text(), "nothing was started again"
    _assert_same_bits(values, undisturbed("adam"))
