"""Jobs of workers and parameter servers on this machine, with the CPU time of each kind of task.

Imports neither lockstep nor a peer: it runs in the environment of each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import Failed, free_ports

_SIDE = str(Path(__file__).resolve().parents[1] / "side.py")
_TICKS = os.sysconf("SC_CLK_TCK")


def cluster_of(chief: bool, workers: int, servers: int) -> dict[str, list[str]]:
    """Returns addresses of loopback for the tasks of a cluster."""
    ports = iter(free_ports(chief + workers + servers))
    jobs = {"chief": int(chief), "worker": workers, "ps": servers}
    return {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items() if count}


@contextmanager
def started(
    cluster: Mapping[str, Sequence[str]], jobs: Sequence[str], module: str, function: str, options: Mapping[str, Any]
) -> Generator[dict[str, subprocess.Popen[bytes]]]:
    """Starts a process for each task of some jobs, which runs `function` of `module`; ends all of them at the end.

    Args:
        cluster: Addresses by job.
        jobs: The jobs whose tasks are started, last the one whose first task `result_of` reads; TF_CONFIG tells each.
        module: The module.
        function: The function, which takes the options.
        options: For each, with "pids", a file of the processes' ids by task, which is there when all are started.
    """
    tasks: dict[str, subprocess.Popen[bytes]] = {}
    with tempfile.TemporaryDirectory() as directory:
        pids = Path(directory) / "pids.json"
        arguments = json.dumps({**options, "pids": str(pids), "directory": directory})
        try:
            for job in jobs:
                for index in range(len(cluster[job])):
                    config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
                    command = [sys.executable, _SIDE, module, function, arguments]
                    is_first = job == jobs[-1] and index == 0
                    # The one whose result is read says what went wrong, too; the others' pipes nobody empties.
                    output = subprocess.PIPE if is_first else subprocess.DEVNULL
                    tasks[f"{job}{index}"] = subprocess.Popen(
                        command, env={**os.environ, "TF_CONFIG": config}, stdout=output, stderr=output
                    )
            written = pids.with_suffix(".new")
            written.write_text(json.dumps({name: task.pid for name, task in tasks.items()}))
            written.rename(pids)
            yield tasks
        finally:
            for task in tasks.values():
                with suppress(ProcessLookupError):
                    task.kill()
                task.wait()


def result_of(tasks: Mapping[str, subprocess.Popen[bytes]], name: str) -> dict[str, float]:
    """Returns what a task measured, once it has ended.

    Raises:
        Failed: If it ends with an error; with the end of what it said.
    """
    output, errors = tasks[name].communicate()
    lines = [line for line in output.decode().splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise Failed(f"{name} ended with {tasks[name].returncode}: {errors.decode(errors='replace')[-2000:]}")
    return json.loads(lines[-1].removeprefix("RESULT "))["measured"]


class Cpu:
    """CPU seconds of processes since it was made: of this one and of others, by their ids."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = {os.getpid(), *pids}
        self._before = self._seconds()

    def milliseconds(self, steps: int) -> float:
        """Returns the milliseconds of all of them for each of so many steps."""
        return (self._seconds() - self._before) / steps * 1e3

    def _seconds(self) -> float:
        # Of /proc/PID/stat the time in user and in kernel mode, fields 14 and 15; the name before may hold spaces.
        stats = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in self._pids]
        return sum(int(stat[11]) + int(stat[12]) for stat in stats) / _TICKS
