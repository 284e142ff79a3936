"""The measurement of what `lockstep scan` says, on a program of five names, one of which its import line uses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import ROOT, environment

PROGRAM = """
import tensorflow as tf

x = tf.constant([1.0, 2.0])
print(tf.reduce_sum(x))
if len(x) > 2:
    tf.reduce_max(x)
tf.reshape(x, [3])
"""


@pytest.mark.cluster
def test_names_that_ran_and_that_failed_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    command = [sys.executable, "-m", "tests.programs.measure_scan", "--one", str(path)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=240, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["covered"], found["reached"], list(found["failed"])) == (5, 4, ["tf.reshape"])
