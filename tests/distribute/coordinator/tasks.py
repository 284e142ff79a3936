"""Processes of a cluster with a coordinator, for tests: each can be killed, and started again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.cluster import ROOT, environment
from tests.support.ports import free_ports

SECONDS = 240.0


class Tasks:
    """A chief, workers and servers that run one module.

    Args:
        module: The module; its first argument is the folder of the job.
        workers: Number of workers.
        servers: Number of servers.
        folder: For logs, and what the program writes.
        arguments: More of the module's.
        env: More of the environment.
    """

    def __init__(
        self, module: str, workers: int, servers: int, folder: Path, arguments: Sequence[str] = (), **env: str
    ) -> None:
        ports = iter(free_ports(1 + workers + servers))
        jobs = {"chief": 1, "worker": workers, "ps": servers}
        self.cluster = {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items()}
        self._folder, self._module, self._arguments, self._env = folder, module, arguments, env
        folder.mkdir(parents=True, exist_ok=True)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        for job, count in jobs.items():
            for index in range(count):
                self.start(f"{job} {index}")

    def start(self, name: str) -> None:
        """Starts a task."""
        job, index = name.split()
        config = json.dumps({"cluster": self.cluster, "task": {"type": job, "index": int(index)}})
        command = [sys.executable, "-m", self._module, str(self._folder), *self._arguments]
        with (self._folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, env={**environment(TF_CONFIG=config), **self._env}, cwd=ROOT, stdout=log, stderr=log
            )

    def kill(self, name: str, how: int = signal.SIGKILL) -> None:
        """Kills a task, and waits until it has gone."""
        self.running[name].send_signal(how)
        if how == signal.SIGKILL:
            self.running[name].wait()

    def log(self, name: str) -> str:
        """Returns what a task has printed."""
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def wait(self, names: Sequence[str] = (), seconds: float = SECONDS) -> dict[str, int]:
        """Waits for tasks, by default for all, and returns their exit codes; ends the rest."""
        end, codes = time.monotonic() + seconds, dict[str, int]()
        try:
            for name in names or tuple(self.running):
                codes[name] = self.running[name].wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            logs = "\n".join(f"{name}:\n{self.log(name)[-3000:]}" for name in self.running)
            raise AssertionError(f"{error}\n{logs}") from error
        finally:
            self.close()
        return codes

    def close(self) -> None:
        """Ends what runs still."""
        for task in self.running.values():
            if task.poll() is None:
                task.kill()
                task.wait()
