"""A loop of a user's own on two workers of two devices each: asked to end, killed, and as if nothing had happened."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lockstep as ls
from tests.support.cluster import environment
from tests.training import programs
from tests.training.restarted import EPOCHS

pytestmark = pytest.mark.cluster

TOLERANCE = 3e-5


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lockstep._launch", "run", "--workers=2", "--devices-per-worker=2"]
    command += ["--max-restarts=1", "--max-preemptions=1", "--restart-delay=0", "-m", "tests.training.restarted"]
    done = subprocess.run([*command, str(tmp_path)], env=environment(), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    # Asked to end after step 5, and so after one of the next; killed after step 10, perhaps while step 9 was written.
    for words in (r"\(SIGTERM\)", "generation 2, step [5-8]", "killed by signal 9", "generation 3, step [6-9]"):
        assert re.search(words, done.stdout + done.stderr), done.stdout + done.stderr
    found = dict(np.load(tmp_path / "found.npz"))
    strategy = ls.distribute.OneDeviceStrategy("/cpu:0")
    expected = programs.fitted(strategy, epochs=EPOCHS)
    expected.update({f"loop {k}": v for k, v in programs.looped(strategy).items()})
    del expected["seen"], found["seen"]
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=TOLERANCE, err_msg=name)
