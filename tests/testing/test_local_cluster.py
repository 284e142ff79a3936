"""A user's cluster of processes for tests: `lockstep.testing`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.errors import ArgumentError
from lockstep.testing import LocalCluster, TaskError, local_cluster
from tests.support.cluster import ROOT, environment
from tests.testing import programs

__all__ = ["local_cluster"]

pytestmark = pytest.mark.cluster


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_each_task_has_its_tf_config_and_the_arguments(tmp_path: Path) -> None:
    with LocalCluster(2, evaluator=True) as cluster:
        found = cluster.run(programs.task, 1, where=tmp_path)
        assert cluster.tasks == ("worker 0", "worker 1", "evaluator 0")
        assert "printed by {'type': 'worker', 'index': 1} which reads ''" in cluster.output("worker 1")
    tasks = [f"{each['config']['task']['type']} {each['config']['task']['index']}" for each in found]
    assert tuple(tasks) == cluster.tasks
    assert len(found[0]["config"]["cluster"]["worker"]) == 2
    assert all((each["args"], each["kwargs"]) == ((1,), {"where": tmp_path}) for each in found)
    assert all(_is_gone(each["pid"]) for each in found)


def test_each_run_has_new_processes_unless_they_are_reused(local_cluster: Callable[..., LocalCluster]) -> None:
    for reuse in (False, True):
        cluster = local_cluster(workers=1, reuse=reuse)
        first, second = (cluster.run(programs.task)[0]["pid"] for _ in range(2))
        assert (first == second) is reuse
        assert local_cluster(workers=1, reuse=reuse) is cluster


def test_tasks_have_virtual_devices_and_an_environment() -> None:
    with LocalCluster(1, devices=3, env={"JAX_ENABLE_COMPILATION_CACHE": "0"}) as cluster:
        assert cluster.run(programs.devices) == [(3, "cpu")]


def test_an_error_tells_the_task_its_traceback_and_its_output() -> None:
    with LocalCluster(2) as cluster:
        with pytest.raises(TaskError) as caught:
            cluster.run(programs.raises_on, 1)
        text = str(caught.value)
        assert list(caught.value.errors) == ["worker 1"]
        assert text.startswith("worker 1 failed.\nTraceback (most recent call last):\n") and "programs.py" in text
        assert text.count("OSError: a disk has gone") == 1 and "_task.py" not in text
        assert "Output of worker 1:\nbefore the error\n" in text
        assert caught.value.results == {"worker 0": "done"}
        assert cluster.run(programs.raises_on, 5) == ["done", "done"], "the next run has new processes"


def test_a_killed_task_is_named(tmp_path: Path) -> None:
    with LocalCluster(2, timeout=60) as cluster:
        running = cluster.start(programs.waits_for_ever, tmp_path)
        deadline = time.monotonic() + 60
        while len(pids := [int(path.name) for path in tmp_path.iterdir()]) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for task in cluster.tasks:
            cluster.kill(task)
        with pytest.raises(TaskError, match=r"worker \d failed\.\nThe process has ended: killed by SIGKILL") as caught:
            running.results()
        assert set(caught.value.errors) == set(cluster.tasks)
    assert all(map(_is_gone, pids))


def test_a_function_that_does_not_return_is_ended_and_its_stack_told(tmp_path: Path) -> None:
    with LocalCluster(1, timeout=1) as cluster, pytest.raises(TaskError, match="within timeout=1 s") as caught:
        cluster.run(programs.waits_for_ever, tmp_path)
    assert "in waits_for_ever" in str(caught.value)


def test_tasks_end_with_the_test_that_waits_for_them(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, lockstep as ls; from tests.testing import programs\n"
        "ls.testing.LocalCluster(1).start(programs.waits_for_ever, pathlib.Path(sys.argv[1]))\n"
        "sys.stdin.read()"
    )
    test = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], env=environment(), stdin=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (pids := list(tmp_path.iterdir())):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    test.kill()
    test.communicate()
    while not _is_gone(int(pids[0].name)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_a_task_cannot_return_is_said_there() -> None:
    with LocalCluster(1) as cluster, pytest.raises(TaskError, match=r"the result\['model'\]\[0\] is object"):
        cluster.run(programs.returns_an_object)


def test_the_example_of_the_documents(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "testing.md").read_text()
    example = re.findall(r"```python\n(# test_training\.py\n.*?)```", text, flags=re.S)
    (tmp_path / "test_training.py").write_text(example[0])
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


def test_the_kit_needs_no_pytest_until_the_fixture_is_asked_for() -> None:
    program = (
        "import sys, lockstep.testing as t; assert 'pytest' not in sys.modules; t.local_cluster; sys.modules['pytest']"
    )
    subprocess.run([sys.executable, "-c", program], env=environment(), check=True, timeout=60)


def test_what_cannot_be_run_is_refused(tmp_path: Path) -> None:
    with LocalCluster(1, directory=tmp_path) as cluster:
        for function in (lambda: None, Path("x").exists, len.__call__):
            with pytest.raises(ArgumentError, match="The tasks import the function by its name"):
                cluster.run(function)
        with pytest.raises(ArgumentError, match=r"the arguments\[0\]\[1\] is object"):
            cluster.run(programs.task, 1, object())
        with pytest.raises(ArgumentError, match=r"The tasks that run are none.* Here the task is 'worker 0'"):
            cluster.kill("worker 0")
    with pytest.raises(ArgumentError, match=r"at least one worker.* Here workers=0"):
        LocalCluster(0)
