"""Clusters of real processes that tests share.

Starting JAX in a process takes seconds, so the processes of a cluster are started once and asked to run one case after
another. Each runs `member.py`, joined through TF_CONFIG as a user's program would be.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
# A case compiles its programs on every process of the cluster, on as few as two cores.
CASE_SECONDS = 240.0


class CaseFailed(AssertionError):
    """A case raised on a member; the message is its traceback."""


def free_ports(count: int) -> list[int]:
    """Returns free ports of the loopback interface."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def tf_configs(workers: int, **more: Any) -> list[str]:
    """Returns TF_CONFIG for each of `workers` tasks on this machine."""
    cluster = {"worker": [f"127.0.0.1:{p}" for p in free_ports(workers)]}
    return [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}, **more}) for i in range(workers)]


def environment(devices: int = 1, **more: str) -> dict[str, str]:
    """Returns this process' environment, for a task with so many virtual CPU devices."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    own = {"JAX_NUM_CPU_DEVICES": str(devices)} if devices > 1 else {}
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **own, **more}


class Member:
    """One process of a cluster.

    Args:
        arguments: The Python program and its arguments.
        env: Its environment.
        log: Where its standard error goes.
    """

    def __init__(self, arguments: list[str], env: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as stderr:
            # Unbuffered: a line that waits in a buffer of ours is not seen by `select`.
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
            )

    def ask(self, request: Mapping[str, Any]) -> None:
        """Sends a request."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, deadline: float) -> dict[str, Any]:
        """Returns the next line of JSON that the process prints."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if selector.select(deadline - time.monotonic()):
                    line = self.process.stdout.readline()
                    if not line:
                        raise CaseFailed(f"process ended with {self.process.wait()}:\n{self.stderr()}")
                    if line.startswith(b"{"):
                        return json.loads(line)
        raise CaseFailed(f"no answer in time:\n{self.stderr()}")

    def stderr(self) -> str:
        """What the process has written to standard error."""
        return self._log.read_text(errors="replace")[-6000:]

    def kill(self) -> None:
        """Ends the process at once."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


class Cluster:
    """Processes that run cases together.

    Args:
        workers: Number of processes; 0 for one process with plain Keras and no strategy.
        devices: Virtual CPU devices of each.
        directory: For logs and results.
        source: The folder that holds the package `lockstep`.
    """

    def __init__(self, workers: int, devices: int, directory: Path, source: Path = ROOT / "src") -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        configs = tf_configs(workers) if workers > 1 else [""]
        kind = "plain" if workers == 0 else "multi" if workers > 1 else "mirrored"
        path = os.pathsep.join([str(source), str(ROOT)])
        self.members = [
            Member(
                ["-m", "tests.support.member", kind],
                environment(devices, PYTHONPATH=path, **({"TF_CONFIG": c} if c else {})),
                directory / f"{i}.log",
            )
            for i, c in enumerate(configs)
        ]
        self._cases = 0

    def run(self, case: str, /, **arguments: Any) -> list[dict[str, np.ndarray]]:
        """Runs `module:function` with `arguments` on every member; returns each one's arrays.

        Raises:
            CaseFailed: With the traceback of the first member on which the case raises.
        """
        self._cases += 1
        paths = [self._directory / f"{self._cases}-{i}.npz" for i in range(len(self.members))]
        for member, path in zip(self.members, paths, strict=True):
            member.ask({"case": case, "arguments": arguments, "result": str(path)})
        deadline = time.monotonic() + CASE_SECONDS
        answers = [m.answer(deadline) for m in self.members]
        for answer in answers:
            if "error" in answer:
                raise CaseFailed(answer["error"])
        return [dict(np.load(path)) for path in paths]

    def close(self) -> None:
        """Lets the processes end in order, and reports one that does not."""
        for member in self.members:
            if member.process.stdin:
                member.process.stdin.close()
        try:
            for member in self.members:
                member.process.wait(60)
        finally:
            codes = [m.process.poll() for m in self.members]
            for member in self.members:
                member.process.stdin = None
                member.kill()
        assert set(codes) == {0}, [m.stderr() for m in self.members]


def shared(workers: int, devices: int = 1, scope: Literal["module", "package"] = "module") -> Any:
    """Returns a fixture: a cluster that tests share, such as `pair = cluster.shared(2)`."""

    @pytest.fixture(scope=scope)
    def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
        cluster = Cluster(workers, devices, tmp_path_factory.mktemp(f"cluster-{workers}x{devices}"))
        yield cluster
        cluster.close()

    return started
