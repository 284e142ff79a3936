"""Control messages between tasks, and all-gathers of objects, over the coordination service's key-value store.

`Channel.all_gather_object` gathers small JSON values: every task contributes one and gets all of them, in process
order. Every decision that all tasks must take alike goes through it. It costs about a millisecond, has a time limit,
names who is missing, and ends at once when another task has failed.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol

from lockstep._engine.runtime.failure import attach_cause, mark_agreed
from lockstep._engine.runtime.preemption import Preemption
from lockstep._engine.runtime.stopping import Stopping
from lockstep.errors import MismatchError, MissingTaskError, PeerError

_PREFIX = "lockstep"
# How long one blocking read lasts before the wait looks whether somebody has failed meanwhile.
_SLICE_SECONDS = 1.0
# In place of the number of runs, of a task that has ended its program because it was asked to.
_PREEMPTED = "preempted"


class Client(Protocol):
    """The part of jax's `DistributedRuntimeClient` that is used."""

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None: ...
    def key_value_try_get(self, key: str) -> str: ...
    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]: ...
    def key_value_delete(self, key: str) -> None: ...
    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str: ...


class ChannelClosed(Exception):  # A way out of a wait, not an error.
    """The channel was closed by another thread while this one waited in `all_gather_object`."""


@dataclass(frozen=True)
class Run:
    """Collective region: a call that all tasks make together, such as a `fit`.

    Attributes:
        number: Counts from 1 on; the same on all tasks.
        doing: The name of the call.
    """

    number: int
    doing: str


class Control:
    """Control messages that one joined task sends to the others and receives from them.

    Attributes:
        process: This process' index.
        tasks: Names, in process order.
        preemption: Ends all tasks after the same step when one is asked to end.
        stopping: Stops training on all tasks after the same step when a callback of one wants to.
        is_over: Set once all tasks have ended their programs.
    """

    def __init__(self, client: Client, process: int, tasks: tuple[str, ...]) -> None:
        self._client = client
        self.process = process
        self.tasks = tasks
        self.is_over = False
        self._runs: list[Run] = []
        # Open runs whose rest needs no other task.
        self._released: set[Run] = set()
        self._runs_begun = 0
        # The last run that returned before its results were ready, and a function that returns whether they are.
        self._started: tuple[Run, Callable[[], bool]] | None = None
        self.preemption = Preemption(self)
        self.stopping = Stopping(self)

    @property
    def run(self) -> Run | None:
        """The innermost collective region in progress, or the last one while its asynchronous results are not ready."""
        needed = next((run for run in reversed(self._runs) if run not in self._released), None)
        if needed is not None:
            return needed
        # A call that has returned may still be running on the devices: to read its results is to wait for the others.
        started = self._started
        return None if started is None or started[1]() else started[0]

    @property
    def runs(self) -> tuple[Run, ...]:
        """The calls that this task's main thread is in, the outermost first."""
        return tuple(self._runs)

    def started(self, is_done: Callable[[], bool]) -> None:
        """Notes that the innermost run returns before its results are ready; `is_done` is called by another thread."""
        self._started = self._runs[-1], is_done

    @contextlib.contextmanager
    def running(self, doing: str) -> Generator[Run]:
        """Opens a run; every task opens the same runs in the same order."""
        self._runs_begun += 1
        run = Run(self._runs_begun, doing)
        self._runs.append(run)
        try:
            yield run
        finally:
            self._runs.remove(run)
            self._released.discard(run)

    def release(self) -> None:
        """Notes that the rest of the innermost run needs no other task: they may have gone on, or ended."""
        self._released.add(self._runs[-1])

    def is_released(self, run: Run) -> bool:
        """Returns whether `release` was called in a run that is open."""
        return run in self._released

    def channel(self, name: str, seconds: float) -> Channel:
        """Opens a channel; every task must open the same ones, and use each from one thread at a time."""
        return Channel(self, name, seconds)

    def set(self, key: str, value: Any, overwrite: bool = False) -> None:
        """Publishes a JSON value under `key`."""
        self._client.key_value_set(f"{_PREFIX}/{key}", json.dumps(value), allow_overwrite=overwrite)

    def get(self, key: str, seconds: float) -> Any:
        """Returns the value of `key`, or raises `TimeoutError` when it does not appear in time."""
        try:
            return json.loads(self._client.blocking_key_value_get(f"{_PREFIX}/{key}", max(1, int(seconds * 1e3))))
        except Exception as error:  # jaxlib raises one class for every status
            if "DEADLINE_EXCEEDED" in str(error) or "timed out" in str(error).lower():
                raise TimeoutError(key) from None
            raise

    def delete(self, key: str) -> None:
        """Removes `key`."""
        self._client.key_value_delete(f"{_PREFIX}/{key}")

    def listing(self, directory: str) -> dict[str, Any]:
        """Returns every value below `directory` by its name."""
        found = self._client.key_value_dir_get(f"{_PREFIX}/{directory}/")
        return {key.rsplit("/", 1)[-1]: json.loads(value) for key, value in found}

    def announce_failure(
        self, kind: str, message: str, run: Run | None = None, cause: dict[str, Any] | None = None
    ) -> None:
        """Broadcasts that this task's program has failed, or only `run`; the first such message is the root cause.

        A run that has ended by an exception concerns the tasks that are in it. The program may handle the exception,
        on all tasks alike, and go on.
        """
        value = {**(cause or self.record(kind, message, self.process)), "by": self.process}
        # No overwriting, so that the first stays. Another task was first, or the service has gone.
        with contextlib.suppress(Exception):
            self.set(f"status/broken-{run.number}" if run else "status/failed", value)

    def record(self, kind: str, message: str, process: int) -> dict[str, Any]:
        """Returns the record of a task's failure; `kind` is empty if its message says all."""
        return {"process": process, "task": self.tasks[process], "type": kind, "message": message[:4000]}

    def announce_leaving(self) -> None:
        """Broadcasts that this task has ended its program, after how many runs, or because it was asked to."""
        how = _PREEMPTED if self.preemption.has_ended else self._runs_begun
        self.set(f"status/left-{self.process}", how, overwrite=True)

    def announce_end(self) -> None:
        """Tells the first task that this one has failed, knows why, and ends."""
        self.set(f"ended/{self.process}", True, overwrite=True)

    def ended(self) -> set[int]:
        """Returns the processes that have called `announce_end`."""
        return {int(name) for name in self.listing("ended")}

    def failure(self) -> dict[str, Any] | None:
        """Returns the record of the first failure of a program, or of a run that this task is in; else `None`."""
        status = self.listing("status")
        broken = (status.get(f"broken-{run.number}") for run in (*self._runs, self.run) if run)
        return status.get("failed") or next(filter(None, broken), None)

    def left(self) -> set[int]:
        """Returns the processes that have ended their programs."""
        return set(self._runs_of_left())

    def _runs_of_left(self) -> dict[int, Any]:
        """Returns, for each process that has ended its program, after how many runs it did."""
        return {int(name[5:]): how for name, how in self.listing("status").items() if name.startswith("left-")}

    def _missing(self) -> list[int]:
        """Returns the processes that have ended their programs, unasked, while this one needs them."""
        others = {i: how for i, how in self._runs_of_left().items() if i != self.process and how != _PREEMPTED}
        run = self.run
        if run is None or run in self._runs:
            return sorted(others)
        # This task is past the run and waits for its results: tasks that ended later have done their part of it.
        return sorted(i for i, runs in others.items() if runs < run.number)

    def check_peers(self) -> None:
        """Raises `PeerError` if another task has failed, or has left although this one still needs it."""
        failure = self.failure()
        if failure and {failure["process"], failure["by"]} != {self.process}:
            raise attach_cause(PeerError(describe_failure(failure)), failure)
        if gone := self._missing():
            names = ", ".join(self.tasks[i] for i in gone)
            message = (
                f"Every task must make the same calls. {names} ended its program while {self.tasks[self.process]} is "
                f"in {self.run.doing if self.run else 'a call'}. Look for a condition in the program that depends on "
                "the task."
            )
            raise attach_cause(PeerError(message), self.record("", message, gone[0]))


class Channel:
    """Sequence of all-gathers; the n-th `all_gather_object` of each task belong together."""

    def __init__(self, control: Control, name: str, seconds: float) -> None:
        self._control = control
        self._name = name
        self._seconds = seconds
        self._turn = 0
        self._closed = False

    def close(self) -> None:
        """Ends the wait of a thread in `all_gather_object`, within a second."""
        self._closed = True

    def all_gather_object(self, topic: str, value: Any, seconds: float | None = None) -> list[Any]:
        """Contributes `value` (JSON) and returns every task's, in process order.

        Raises:
            MissingTaskError: If a task that is alive does not get here within the limit.
            MismatchError: If another task is at a different topic: the programs have diverged.
            PeerError: If another task has failed or left.
        """
        control = self._control
        self._turn += 1
        control.set(f"{self._name}/{self._turn}/{control.process}", {"topic": topic, "value": value})
        limit = seconds or self._seconds
        deadline = time.monotonic() + limit
        answers = [self._wait_for(process, topic, limit, deadline) for process in range(len(control.tasks))]
        if len({a["topic"] for a in answers}) > 1:
            where = "; ".join(f"{name} is in {a['topic']}" for name, a in zip(control.tasks, answers, strict=True))
            error = MismatchError(
                f"Every task must make the same calls in the same order. Here {where}. Look for a condition in the "
                "program that depends on the task, such as `if is_chief: model.evaluate(...)`."
            )
            raise mark_agreed(error)
        # All have answered this turn, so all have read the last one.
        if self._turn > 1:
            control.delete(f"{self._name}/{self._turn - 1}/{control.process}")
        return [a["value"] for a in answers]

    def _wait_for(self, process: int, topic: str, seconds: float, deadline: float) -> dict[str, Any]:
        control = self._control
        # In slices: a blocking read of the store cannot be interrupted when another task fails.
        while True:
            try:
                return control.get(f"{self._name}/{self._turn}/{process}", _SLICE_SECONDS)
            except TimeoutError:
                if self._closed:
                    raise ChannelClosed from None
                control.check_peers()
                if time.monotonic() > deadline:
                    raise MissingTaskError(self._late(topic, seconds)) from None

    def _late(self, topic: str, seconds: float) -> str:
        here = {int(name) for name in self._control.listing(f"{self._name}/{self._turn}")}
        names = self._control.tasks
        missing = ", ".join(name for i, name in enumerate(names) if i not in here)
        setting = " (LOCKSTEP_PEER_TIMEOUT)" if seconds == self._seconds else ""
        return (
            f"Every task must reach {topic} within {seconds:g} s of the first{setting}. "
            f"Here: {', '.join(names[i] for i in sorted(here))}. Missing: {missing}. If they only need longer, raise "
            "the limit; otherwise look at what they are doing."
        )


def describe_failure(failure: dict[str, Any]) -> str:
    """Returns one line for the record of a failure."""
    text = failure["message"]
    return f"{failure['task']} failed first: {failure['type']}: {text}" if failure["type"] else text
