"""`lockstep doctor --cluster`: all tasks of a cluster test it together."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.ports import free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.timed]
SECONDS = 400.0


def launch(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lockstep", "run", "--workers", "2", *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def test_a_healthy_cluster(tmp_path: Path) -> None:
    began = time.monotonic()
    done = launch("--evaluator", "-m", "lockstep", "doctor", "--cluster", "--json", "--shared", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    # It waits for nobody, and for none of the limits: the shortest is 300 s.
    assert time.monotonic() - began < 240
    text = "\n".join(line.removeprefix("[worker 0] ") for line in done.stdout.splitlines() if "[worker 0]" in line)
    findings = json.loads(text)["findings"]
    assert {each["section"] for each in findings} == {"arrival", "messages", "clocks", "sums", "checkpoint"}
    sums = {each["data"]["bytes"]: each["data"] for each in findings if each["section"] == "sums"}
    assert list(sums) == [4, 1 << 20, 1 << 26]
    assert sums[1 << 26]["bus_bytes_per_second"] == pytest.approx((1 << 26) / sums[1 << 26]["seconds"])
    assert not [line for line in done.stdout.splitlines() if line.startswith("[worker 1]") and "[Gloo]" not in line]
    assert "evaluator 0 takes no part in the sums" in done.stdout
    # The checkpoint of the test is gone.
    assert list(tmp_path.iterdir()) == []


def test_directories_that_are_not_shared(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json, os, sys\n"
        "from lockstep._launch.cli import main\n"
        "index = json.loads(os.environ['TF_CONFIG'])['task']['index']\n"
        "os.makedirs(f'{sys.argv[1]}/{index}')\n"
        "main(['doctor', '--cluster', '--shared', f'{sys.argv[1]}/{index}'])\n"
    )
    done = launch(str(program), str(tmp_path))
    assert done.returncode == 1
    assert re.search(r"ERROR +checkpoint: Not all tasks read what worker 0 has written", done.stdout), done.stdout
    assert "worker 1: it is not there" in done.stdout
    assert "Mount the same file system there on all machines." in done.stdout


def test_a_task_that_is_missing_is_named() -> None:
    hosts = [f"localhost:{port}" for port in free_ports(2)]
    config = json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": 0}})
    done = subprocess.run(
        [sys.executable, "-m", "lockstep", "doctor", "--cluster"],
        env={**os.environ, "TF_CONFIG": config, "LOCKSTEP_JOIN_TIMEOUT": "3"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert f"Missing: worker 1 ({hosts[1]})" in done.stdout


def test_a_process_alone_is_told_how() -> None:
    environment = {name: text for name, text in os.environ.items() if name != "TF_CONFIG"}
    done = subprocess.run(
        [sys.executable, "-m", "lockstep", "doctor", "--cluster"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "lockstep run --workers 2 -m lockstep doctor --cluster" in done.stdout
