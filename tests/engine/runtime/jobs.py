"""Jobs: programs as users write them, each run as a task of a cluster in a process of its own."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.cluster import environment, free_ports

# To start, join and end as other processes share the processors.
PATIENCE = 180.0

JOIN = """
    import lockstep as ls
    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    print("joined", strategy.num_replicas_in_sync, flush=True)
"""


def eventually(condition: Callable[[], object], what: Callable[[], str], patience: float = PATIENCE) -> None:
    """Waits until `condition` holds; fails with `what` if it does not in time."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"not in {patience:g} s: {what()}"
        time.sleep(0.02)


def addresses(count: int) -> list[str]:
    """Returns free addresses of this machine."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def tf_config(workers: Sequence[str], index: int) -> str:
    """Returns TF_CONFIG of one of `workers`."""
    return json.dumps({"cluster": {"worker": list(workers)}, "task": {"type": "worker", "index": index}})


class Task:
    """One process.

    Args:
        program: The file it runs.
        env: Its environment.
        log: Where its output goes, with suffixes `.out` and `.err`; its report of failure, with `.json`.

    Attributes:
        program: The file it runs.
        report: The file for its report of failure.
    """

    def __init__(self, program: Path, env: Mapping[str, str], log: Path) -> None:
        self._out, self._err = log.with_suffix(".out"), log.with_suffix(".err")
        self.program, self.report = program, log.with_suffix(".json")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(program)],
                env={**env, "LOCKSTEP_ERROR_FILE": str(self.report)},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
            )

    @property
    def out(self) -> str:
        """What it has printed."""
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        """What it has printed to standard error."""
        return self._err.read_text(errors="replace")

    def await_line(self, line: str) -> None:
        """Waits until it has printed `line`."""
        eventually(
            lambda: line in self.out.splitlines() or self.process.poll() is not None,
            lambda: f"{line!r} in {self.out!r}, {self.err[-3000:]}",
        )
        assert line in self.out.splitlines(), self.err[-3000:]

    def tell(self, line: str) -> None:
        """Writes a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, patience: float = PATIENCE) -> int:
        """Waits for its end and returns the exit code; fails if that takes longer than `patience` seconds."""
        eventually(lambda: self.process.poll() is not None, lambda: f"end: {self.err[-3000:]}", patience)
        return self.process.returncode

    def kill(self) -> None:
        """Ends it, wherever it is."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if self.process.stdin:
            with contextlib.suppress(BrokenPipeError):  # It had ended before it read what it was sent.
                self.process.stdin.close()


class Job:
    """The processes of one test, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tasks: list[Task] = []

    def start(self, source: str, workers: Sequence[str] = (), index: int = 0, **env: str) -> Task:
        """Starts the program `source` as worker `index` of `workers`; without workers, outside of any cluster."""
        log = self.directory / f"task-{len(self.tasks)}"
        program = log.with_suffix(".py")
        program.write_text("from __future__ import annotations\n" + textwrap.dedent(source))
        config = {"TF_CONFIG": tf_config(workers, index)} if workers else {}
        settings = {name: value for name, value in environment(**config, **env).items() if name != "NPROC"}
        self.tasks.append(Task(program, settings, log))
        return self.tasks[-1]

    def join(self, workers: Sequence[str], index: int, **env: str) -> Task:
        """Starts a worker that joins, and then ends."""
        return self.start(JOIN, workers, index, **env)

    def start_all(self, source: str, count: int, **env: str) -> list[Task]:
        """Starts `source` as every worker of a new cluster."""
        workers = addresses(count)
        return [self.start(source, workers, i, **env) for i in range(count)]

    def close(self) -> None:
        """Ends what a failed test has left."""
        for task in self.tasks:
            task.kill()
