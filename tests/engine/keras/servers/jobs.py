"""Jobs of real processes with parameter servers, for tests."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.support.cluster import ROOT, environment
from tests.support.ports import free_ports

JOB_SECONDS = 560.0


class ServerJob:
    """Processes of workers and servers that run one module.

    Args:
        module: The module.
        workers: Number of workers; worker 0 is the chief.
        servers: Number of servers.
        directory: For logs, and a folder of each task.
        arguments: The module's, after the folder of the task.
        env: More of the environment.
    """

    def __init__(
        self,
        module: str,
        workers: int,
        servers: int,
        directory: Path,
        arguments: Sequence[str] = (),
        **env: str,
    ) -> None:
        ports = iter(free_ports(workers + servers))
        jobs = {"worker": workers, "ps": servers}
        cluster = {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items()}
        self.folders: dict[str, Path] = {}
        self.tasks: dict[str, subprocess.Popen[bytes]] = {}
        for job, count in jobs.items():
            for index in range(count):
                name = f"{job}-{index}"
                self.folders[name] = directory / name
                self.folders[name].mkdir(parents=True)
                config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
                command = [sys.executable, "-m", module, str(self.folders[name]), *arguments]
                with (directory / f"{name}.log").open("wb") as log:
                    self.tasks[name] = subprocess.Popen(
                        command, env=environment(TF_CONFIG=config, **env), cwd=ROOT, stdout=log, stderr=log
                    )
        self._directory = directory

    def wait(self, seconds: float = JOB_SECONDS) -> None:
        """Waits until all tasks have ended well.

        Raises:
            AssertionError: If one has not; with its log.
        """
        end = time.monotonic() + seconds
        try:
            for name, task in self.tasks.items():
                code = task.wait(max(0.1, end - time.monotonic()))
                assert code == 0, f"{name} has ended with {code}:\n{self.log(name)}"
        except subprocess.TimeoutExpired as error:
            logs = "\n".join(f"{name}:\n{self.log(name)[-3000:]}" for name in self.tasks)
            raise AssertionError(f"{error}\n{logs}") from error
        finally:
            self.kill()

    def log(self, name: str) -> str:
        """Returns what a task has printed."""
        return (self._directory / f"{name}.log").read_text(errors="replace")

    def kill(self) -> None:
        """Ends all tasks that run still."""
        for task in self.tasks.values():
            if task.poll() is None:
                task.kill()
                task.wait()

    def results(self, name: str, case: str) -> dict[str, np.ndarray]:
        """Returns what a task has come to in a case."""
        with np.load(self.folders[name] / f"{case}.npz") as found:
            return {key.replace("|", "/"): found[key] for key in found.files}
