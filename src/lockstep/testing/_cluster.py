"""Clusters of processes on this machine, for tests."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lockstep.errors import ArgumentError, LockstepError
from lockstep.testing import _values
from lockstep.testing._process import TaskProcess

# The task writes its stack so many seconds before the test gives up.
_STACK_SECONDS = 3.0
# When a task has failed the others are told within seconds; a busy machine takes longer.
_GRACE_SECONDS = 60.0
# Leaving in order is a barrier of all tasks, then the end of the interpreter.
_END_SECONDS = 60.0


class TaskError(LockstepError):
    """A function failed on a task of a `LocalCluster`; the message holds its traceback and its output.

    Attributes:
        errors: The text of each task that failed, by its name; the first one failed first.
        results: What the function returned on the others, by their names.
    """

    def __init__(self, errors: Mapping[str, str], outputs: Mapping[str, str], results: Mapping[str, Any]) -> None:
        self.errors, self.results = dict(errors), dict(results)
        parts = [f"{task} failed.\n{text}\nOutput of {task}:\n{outputs[task]}" for task, text in errors.items()]
        super().__init__("\n".join(parts))


class Run:
    """A function that runs on all tasks of a cluster."""

    def __init__(self, cluster: LocalCluster, deadline: float) -> None:
        self._cluster = cluster
        self._deadline = deadline

    def results(self) -> list[Any]:
        """Waits for all tasks; returns what the function returned on each, in the order of `LocalCluster.tasks`.

        Raises:
            TaskError: If it raised on a task, a task ended, or one did not return in time. The other tasks are awaited
                first, as long as it takes them to learn of it, and their errors are in the message too.
        """
        return self._cluster._results(self, self._deadline)  # pyright: ignore[reportPrivateUsage]


class LocalCluster:
    """A cluster on this machine. Each task is a process that joins through TF_CONFIG, as on a machine of its own.

    Each `run` is a job of its own, with new processes. Use it in a `with` statement, which ends what is left of them.

    Args:
        workers: Number of workers; worker 0 is the chief.
        evaluator: Whether there is an evaluator beside them.
        devices: Virtual CPU devices of each task.
        env: Variables of the tasks' environment, beside those of this process. Tasks run on CPUs unless `JAX_PLATFORMS`
            is here.
        timeout: Seconds that one run may take.
        directory: Where output, arguments and results are kept; by default a temporary one.
        reuse: Whether the processes of a run serve the next one too, unless it failed: starting JAX takes seconds. A
            process joins its cluster once, so functions must then keep their strategy, as `functools.cache` does.

    Attributes:
        tasks: Their names, such as "worker 0"; the evaluator comes last.
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        evaluator: bool = False,
        devices: int = 1,
        env: Mapping[str, str] | None = None,
        timeout: float = 240.0,
        directory: str | os.PathLike[str] | None = None,
        reuse: bool = False,
    ) -> None:
        if workers < 1 or devices < 1 or timeout <= 0:
            raise ArgumentError(
                "A cluster has at least one worker, each at least one device, and a run more than no time. "
                f"Here workers={workers}, devices={devices}, timeout={timeout:g}."
            )
        self.tasks = (*(f"worker {i}" for i in range(workers)), *(["evaluator 0"] if evaluator else []))
        self._workers, self._devices, self._env, self._timeout = workers, devices, dict(env or {}), timeout
        self._reuse = reuse
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix="lockstep-cluster-")
        self._directory = Path(directory or self._temporary.name)  # pyright: ignore[reportOptionalMemberAccess]
        self._directory.mkdir(parents=True, exist_ok=True)
        self._processes: dict[str, TaskProcess] = {}
        self._ports = contextlib.ExitStack()
        self._running: Run | None = None
        self._runs = 0

    def run(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> list[Any]:
        """Runs `function(*args, **kwargs)` on every task; returns what each returned, in the order of `tasks`.

        Args:
            function: Of a module that the tasks can import.
            args: Numbers, text, bytes, paths, arrays, and lists, tuples and dictionaries of them; so are results.
            kwargs: The same, by name.

        Raises:
            TaskError: As `Run.results` does.
            ArgumentError: If the function cannot be imported, or an argument cannot travel.
        """
        return self.start(function, *args, **kwargs).results()

    def start(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> Run:
        """Starts `function(*args, **kwargs)` on every task, and does not wait.

        A run before, whose results were not fetched, ends.

        Raises:
            ArgumentError: If the function cannot be imported, or an argument cannot travel.
        """
        module, name = _importable(function)
        self._runs += 1
        arguments = self._directory / f"{self._runs}-arguments.npz"
        _values.save(arguments, (list(args), kwargs), "the arguments")
        # Processes that still run something, or of which one has gone, cannot serve another run.
        if self._running or not self._processes or not all(p.is_alive for p in self._processes.values()):
            self._end()
            self._start_processes()
        for task, process in self._processes.items():
            process.ask(
                {
                    "module": module,
                    "function": name,
                    "arguments": str(arguments),
                    "result": str(self._result(task)),
                    "seconds": self._timeout,
                }
            )
        self._running = Run(self, time.monotonic() + self._timeout + _STACK_SECONDS)
        return self._running

    def kill(self, task: str) -> None:
        """Kills the process of a task, with SIGKILL, as the end of its machine would.

        Raises:
            ArgumentError: If there is no such task, or nothing has been run.
        """
        self._process(task).kill()

    def output(self, task: str) -> str:
        """Returns the end of what a task has printed in the last run.

        Raises:
            ArgumentError: If there is no such task, or nothing has been run.
        """
        return self._process(task).output()

    def close(self) -> None:
        """Ends the tasks: in order, or at once where results were not fetched.

        Raises:
            TaskError: If the end of one fails, or takes too long.
        """
        try:
            self._raise(self._end_in_order(), {})
        finally:
            self._discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        # The error of the test is the one to report, not that of a task which it has left behind.
        if kind:
            self._discard()
        else:
            self.close()

    def _start_processes(self) -> None:
        cluster = {"worker": [f"127.0.0.1:{port}" for port in hold_ports(self._workers, self._ports)]}
        # On CPUs, also where there are GPUs: several processes cannot share one without a word from the test.
        settings = {"JAX_PLATFORMS": "cpu", "PYTHONUNBUFFERED": "1"}
        if self._devices > 1:
            settings["JAX_NUM_CPU_DEVICES"] = str(self._devices)
        for task in self.tasks:
            kind, index = task.split()
            config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": int(index)}})
            env = {**os.environ, **settings, "TF_CONFIG": config, **self._env}
            log = self._directory / f"{self._runs}-{kind}-{index}.log"
            self._processes[task] = TaskProcess(task, env, log)

    def _results(self, run: Run, deadline: float) -> list[Any]:
        if run is not self._running:
            raise ArgumentError(
                "Results are fetched once, and before the next run starts. Keep what results() returns."
            )
        self._running = None
        errors = self._errors(deadline)
        results = {task: _values.load(self._result(task)) for task in self.tasks if task not in errors}
        self._raise(errors, results)
        if not self._reuse:
            self._raise(self._end_in_order(), results)
        return list(results.values())

    def _raise(self, errors: Mapping[str, str], results: Mapping[str, Any]) -> None:
        if errors:
            self._end()
            raise TaskError(errors, {task: self._processes[task].output() for task in errors}, results)

    def _errors(self, deadline: float) -> dict[str, str]:
        """Waits for the answers of all tasks; returns what failed, the first failure first."""
        errors: dict[str, str] = {}
        with selectors.DefaultSelector() as answers:
            for process in self._processes.values():
                answers.register(process, selectors.EVENT_READ, process)
            while (waiting := answers.get_map()) and (left := deadline - time.monotonic()) > 0:
                for key, _ in answers.select(left):
                    answers.unregister(key.fileobj)
                    if error := key.data.answer().get("error"):
                        errors[key.data.name] = error
                        deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
            why = "after another task had failed" if errors else f"within timeout={self._timeout:g} s"
            for key in waiting.values():
                errors[key.data.name] = f"The function has not returned {why}."
        return errors

    def _end_in_order(self) -> dict[str, str]:
        errors: dict[str, str] = {}
        going = {} if self._running else {t: p for t, p in self._processes.items() if p.is_awaited}
        for process in going.values():
            process.close_requests()
        deadline = time.monotonic() + _END_SECONDS
        for task, process in going.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.process.wait(max(deadline - time.monotonic(), 0))
            if code := process.process.poll():
                errors[task] = f"Its end failed with exit code {code}."
            elif code is None:
                errors[task] = f"It has not ended within {_END_SECONDS:g} s."
        return errors

    def _end(self) -> None:
        # At once: nothing that a task may still do counts any more.
        for process in self._processes.values():
            process.close()
        self._ports.close()
        self._running = None

    def _discard(self) -> None:
        self._end()
        if self._temporary:
            self._temporary.cleanup()

    def _result(self, task: str) -> Path:
        return self._directory / f"{self._runs}-{task.replace(' ', '-')}.npz"

    def _process(self, task: str) -> TaskProcess:
        if task not in self._processes:
            raise ArgumentError(
                f"The tasks that run are {', '.join(self._processes) or 'none: run() and start() start them'}. "
                f"Here the task is {task!r}."
            )
        return self._processes[task]


def hold_ports(count: int, until: contextlib.ExitStack) -> list[int]:
    """Returns free ports of the loopback interface, which nobody else is given until the stack is closed."""
    holders = [until.enter_context(socket.socket()) for _ in range(count)]
    for each in holders:
        # On Linux a task may then listen on a port that is held; elsewhere it may not, and all are let go of at once.
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in holders]
    if sys.platform != "linux":
        until.close()
    return ports


def _importable(function: Any) -> tuple[str, str]:
    """Returns the module and the name by which the tasks import a function."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    attribute = sys.modules.get(module)
    for part in name.split("."):
        attribute = getattr(attribute, part, None)
    # Lambdas and closures are in no module; the program itself would run again where it is imported.
    if module == "__main__" or attribute is not function:
        raise ArgumentError(
            "The tasks import the function by its name: it must be a function of a module, and that module not the "
            f"program itself. Here it is {function!r}. Move it to the top level of a module, such as the test's file, "
            "and pass what it needs as arguments."
        )
    return module, name
