"""A measurement in a process of its own, and gangs of processes that measure together.

A side's process prints one line, `RESULT` and JSON. What else it prints is for people.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SIDE = str(Path(__file__).resolve().parents[1] / "side.py")
_RESULT, _READY = "RESULT ", "READY"


@dataclass(frozen=True)
class Result:
    """What a process measured.

    Attributes:
        measured: Values by metric.
        others: The part of the machine that other programs had meanwhile.
    """

    measured: Mapping[str, float]
    others: float


class Failed(RuntimeError):
    """A measurement did not come to its end; the message says why."""


def measure(
    prefix: Sequence[str],
    python: str,
    module: str,
    function: str,
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    limit: float,
) -> Result:
    """Runs `function` of `module` in a process of its own and returns what it measured.

    Raises:
        Failed: With the end of what the process said.
    """
    command = [*prefix, *side_command(python, module, function, options)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, env=dict(environment), stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"took longer than {limit:.0f} s") from None
        finally:
            end_group(process)
            assert process.stdout is not None
            process.stdout.close()
        if process.returncode:
            errors.seek(0)
            raise Failed(f"ended with {process.returncode}: {_last_words(errors.read())}")
    return _result(output)


def side_command(python: str, module: str, function: str, options: Mapping[str, Any]) -> list[str]:
    """Returns the command line that runs `function` of `module` with these options."""
    return [python, _SIDE, module, function, json.dumps(dict(options))]


def end_group(process: subprocess.Popen[Any]) -> None:
    """Ends a process that leads a session of its own, and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tell(measured: Mapping[str, float], others: float) -> None:
    """Prints what a side measured, for `measure`, and the part of the machine that others had."""
    print(_RESULT + json.dumps({"measured": dict(measured), "others": others}), flush=True)


def wait_for_all() -> None:
    """In a worker of a gang: returns when all of its workers have come here."""
    print(_READY, flush=True)
    if not sys.stdin.readline():
        raise Failed("the other workers have ended")


def end_with_children() -> None:
    """Makes a request to end raise, so that what is under way is ended too."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


class Worker:
    """A side's process that waits for the word to go on; a thread reads what it prints.

    Attributes:
        ready: Set when it has come to `wait_for_all`.
        settled: Set then, or when it has ended.
    """

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.ready, self.settled = threading.Event(), threading.Event()
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if line.strip() == _READY:
                self.ready.set()
                self.settled.set()
        self.settled.set()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def result(self) -> Mapping[str, float]:
        self._reader.join(10)
        return _result("".join(self.lines)).measured

    def words(self) -> str:
        self.errors.seek(0)
        return _last_words(self.errors.read())


def gang(
    module: str, function: str, options: Mapping[str, Any], environments: Sequence[Mapping[str, str]], limit: float
) -> list[Mapping[str, float]]:
    """Runs a worker per environment, each told its number as the option `worker`; returns what each measured.

    Workers that call `wait_for_all` go on together.

    Raises:
        Failed: If one ends with an error; the others are ended then.
    """
    workers = [
        Worker(side_command(sys.executable, module, function, {**options, "worker": i}), environment)
        for i, environment in enumerate(environments)
    ]
    try:
        _watch(workers, time.monotonic() + limit)
        return [worker.result() for worker in workers]
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()


def _watch(workers: list[Worker], deadline: float) -> None:
    gone = False
    while any(worker.process.poll() is None for worker in workers):
        _check(workers)
        if not gone and all(worker.ready.is_set() for worker in workers):
            gone = True
            for worker in workers:
                worker.go()
        if time.monotonic() > deadline:
            raise Failed("the workers took too long: " + " / ".join(worker.words() for worker in workers))
        time.sleep(0.02)
    _check(workers)


def _check(workers: list[Worker]) -> None:
    for i, worker in enumerate(workers):
        if worker.process.poll():
            raise Failed(f"worker {i} ended with {worker.process.returncode}: {worker.words()}")


def tf_configs(workers: int) -> list[dict[str, str]]:
    """Returns variables that make tasks of one cluster on this machine."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(workers)]}
    tasks = [{"cluster": cluster, "task": {"type": "worker", "index": i}} for i in range(workers)]
    return [{"TF_CONFIG": json.dumps(task)} for task in tasks]


def free_ports(count: int) -> list[int]:
    """Returns free ports of the loopback interface."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def _result(output: str) -> Result:
    lines = [line for line in output.splitlines() if line.startswith(_RESULT)]
    if not lines:
        raise Failed("printed no result")
    return Result(**json.loads(lines[-1].removeprefix(_RESULT)))


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-600:] or "it said nothing"
