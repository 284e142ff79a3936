"""Agreement between tasks, over the coordination service's key-value store.

`Channel.agree` is an all-gather of small JSON values: everyone contributes one, everyone gets all of them, in process
order. Every decision that all tasks must take alike goes through it. It costs about a millisecond, has a time limit,
names who is missing, and ends at once when another task has failed.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from lockstep._engine.runtime.failure import blamed, mark_agreed
from lockstep._engine.runtime.preemption import Preemption
from lockstep._engine.runtime.stopping import Stopping
from lockstep.errors import MismatchError, MissingTaskError, PeerError

_PREFIX = "lockstep"
# How long one blocking read lasts before the wait looks whether somebody has failed meanwhile.
_SLICE_SECONDS = 1.0
_PREEMPTED = "preempted"


class Client(Protocol):
    """The part of jax's `DistributedRuntimeClient` that is used."""

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None: ...
    def key_value_try_get(self, key: str) -> str: ...
    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]: ...
    def key_value_delete(self, key: str) -> None: ...
    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str: ...


class ChannelClosed(Exception):  # It is a way out of a wait, not an error.
    """The channel was closed by another thread while this one waited in `agree`."""


@dataclass(frozen=True)
class Run:
    """A call that all tasks are in together, such as a `fit`.

    Attributes:
        number: Which one, from 1 on; the same on all tasks.
        doing: Its name.
    """

    number: int
    doing: str


class Control:
    """What one joined task says to the others and hears from them.

    Attributes:
        process: This process' index.
        tasks: Names, in process order.
        preemption: How all end when one is asked to.
        stopping: How all stop training when a callback of one wants to.
        is_over: Whether all tasks have ended their programs.
    """

    def __init__(self, client: Client, process: int, tasks: tuple[str, ...]) -> None:
        self._client = client
        self.process = process
        self.tasks = tasks
        self.is_over = False
        self._runs: list[Run] = []
        # Those of them whose last part needs no other task.
        self._released: set[Run] = set()
        self._runs_begun = 0
        # The last run that has ended before what it had started, and whether that is done.
        self._started: tuple[Run, Callable[[], bool]] | None = None
        self.preemption = Preemption(self)
        self.stopping = Stopping(self)

    @property
    def run(self) -> Run | None:
        """The innermost call that this task's main thread is in and cannot go on with without the others.

        Also one that has returned, as long as what it has started is not done: whoever reads its results waits.
        """
        needed = (run for run in reversed(self._runs) if run not in self._released)
        return next(needed, None) or self._unfinished()

    @property
    def runs(self) -> tuple[Run, ...]:
        """The calls that this task's main thread is in, the outermost first."""
        return tuple(self._runs)

    @property
    def is_running(self) -> bool:
        """Whether this task's main thread is in a run."""
        return bool(self._runs)

    def started(self, is_done: Callable[[], bool]) -> None:
        """Says that the innermost run ends before what it has started; another thread asks whether that is done."""
        self._started = self._runs[-1], is_done

    def _unfinished(self) -> Run | None:
        started = self._started
        if started is None or started[1]():
            return None
        return started[0]

    @contextlib.contextmanager
    def running(self, doing: str) -> Generator[Run]:
        """Opens a run; every task opens the same ones in the same order."""
        self._runs_begun += 1
        run = Run(self._runs_begun, doing)
        self._runs.append(run)
        try:
            yield run
        finally:
            self._runs.remove(run)
            self._released.discard(run)

    def release(self) -> None:
        """Says that what is left of the innermost run needs no other task: they may have gone on, or ended."""
        self._released.add(self._runs[-1])

    def is_released(self, run: Run) -> bool:
        """Returns whether what is left of a run that is open needs no other task."""
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
        """Tells every task that this one's program has failed, or only `run`; the first to say so is the first cause.

        A run that has ended by an exception concerns the tasks that are in it. The program may handle the exception,
        on all tasks alike, and go on.

        Args:
            kind: The type of the exception.
            message: What it says.
            run: What has failed; `None` for the program.
            cause: The record of another task's failure, if this one is its consequence.
        """
        value = {**(cause or self.record(kind, message, self.process)), "by": self.process}
        with contextlib.suppress(Exception):  # Somebody was first, or the service has gone.
            self.set(f"status/broken-{run.number}" if run else "status/failed", value)

    def record(self, kind: str, message: str, process: int) -> dict[str, Any]:
        """Returns the record of a task's failure; `kind` is empty if its message says all."""
        return {"process": process, "task": self.tasks[process], "type": kind, "message": message[:4000]}

    def announce_leaving(self) -> None:
        """Tells every task that this one has ended its program, after how many runs, or because it was asked to."""
        how = _PREEMPTED if self.preemption.has_ended else self._runs_begun
        self.set(f"status/left-{self.process}", how, overwrite=True)

    def announce_end(self) -> None:
        """Tells the first task that this one has failed, knows why, and ends."""
        self.set(f"ended/{self.process}", True, overwrite=True)

    def ended(self) -> set[int]:
        """Returns the processes that have said `announce_end`."""
        return {int(name) for name in self.listing("ended")}

    def failure(self) -> dict[str, Any] | None:
        """Returns what the first task to fail has announced, in its program or in a run that this task is in."""
        status = self.listing("status")
        broken = (status.get(f"broken-{run.number}") for run in (*self._runs, self.run) if run)
        return status.get("failed") or next(filter(None, broken), None)

    def left(self) -> set[int]:
        """Returns the processes that have ended their programs."""
        return set(self._left())

    def _left(self) -> dict[int, Any]:
        return {int(name[5:]): how for name, how in self.listing("status").items() if name.startswith("left-")}

    def _missed(self) -> list[int]:
        """The processes that have ended their programs, without having been asked to, and are still needed."""
        others = {i: how for i, how in self._left().items() if i != self.process and how != _PREEMPTED}
        run = self.run
        if run is None or run in self._runs:
            return sorted(others)
        return sorted(i for i, runs in others.items() if runs < run.number)  # The others have done their part of it.

    def check_peers(self) -> None:
        """Raises `PeerError` if another task has failed, or has left although this one still needs it."""
        failure = self.failure()
        if failure and {failure["process"], failure["by"]} != {self.process}:
            raise blamed(PeerError(describe_failure(failure)), failure)
        if gone := self._missed():
            names = ", ".join(self.tasks[i] for i in gone)
            message = (
                f"Every task must make the same calls. {names} ended its program while {self.tasks[self.process]} is "
                f"in {self.run.doing if self.run else 'a call'}. Look for a condition in the program that depends on "
                "the task."
            )
            raise blamed(PeerError(message), self.record("", message, gone[0]))


class Channel:
    """A sequence of agreements; the n-th `agree` of each task belong together."""

    def __init__(self, control: Control, name: str, seconds: float) -> None:
        self._control = control
        self._name = name
        self._seconds = seconds
        self._turn = 0
        self._closed = False

    def close(self) -> None:
        """Ends the wait of a thread in `agree`, within a second."""
        self._closed = True

    def agree(self, topic: str, value: Any, seconds: float | None = None) -> list[Any]:
        """Contributes `value` (JSON) and returns every task's, in process order.

        Args:
            topic: What it is about.
            value: JSON.
            seconds: How long to wait for the others, instead of the channel's limit.

        Raises:
            MissingTaskError: If a task that is alive does not get here within the limit.
            MismatchError: If another task is at a different topic: the programs have diverged.
            PeerError: If another task has failed or left.
        """
        control = self._control
        self._turn += 1
        control.set(f"{self._name}/{self._turn}/{control.process}", {"topic": topic, "value": value})
        answers = list(self._wait_for_all(topic, seconds or self._seconds))
        self._compare_topics([a["topic"] for a in answers])
        # All have answered this turn, so all have read the last one.
        if self._turn > 1:
            control.delete(f"{self._name}/{self._turn - 1}/{control.process}")
        return [a["value"] for a in answers]

    def _wait_for_all(self, topic: str, seconds: float) -> Iterator[dict[str, Any]]:
        deadline = time.monotonic() + seconds
        for process in range(len(self._control.tasks)):
            yield self._wait_for(process, topic, seconds, deadline)

    def _wait_for(self, process: int, topic: str, seconds: float, deadline: float) -> dict[str, Any]:
        control = self._control
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
        return (
            f"Every task must reach {topic} within {seconds:g} s of the first{self._setting(seconds)}. "
            f"Here: {', '.join(names[i] for i in sorted(here))}. Missing: {missing}. If they only need longer, raise "
            "the limit; otherwise look at what they are doing."
        )

    def _setting(self, seconds: float) -> str:
        return " (LOCKSTEP_PEER_TIMEOUT)" if seconds == self._seconds else ""

    def _compare_topics(self, topics: list[str]) -> None:
        if len(set(topics)) > 1:
            where = "; ".join(f"{name} is in {t}" for name, t in zip(self._control.tasks, topics, strict=True))
            error = MismatchError(
                f"Every task must make the same calls in the same order. Here {where}. Look for a condition in the "
                "program that depends on the task, such as `if is_chief: model.evaluate(...)`."
            )
            raise mark_agreed(error)


def describe_failure(failure: dict[str, Any]) -> str:
    """One line for what a failed task announced."""
    told = failure["message"]
    return f"{failure['task']} failed first: {failure['type']}: {told}" if failure["type"] else told
