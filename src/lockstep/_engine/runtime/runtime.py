"""What a process knows about the others that train with it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Protocol, TypeVar

from lockstep._engine.runtime import (
    compare,
    compile_cache,
    failure,
    limits,
    preemption,
    progress,
    progress_file,
    sigterm,
)
from lockstep._engine.runtime.control import Control
from lockstep._engine.runtime.in_flight import InFlight, is_done
from lockstep._engine.runtime.watchdog import Watchdog
from lockstep.errors import MismatchError, PeerError

Value = TypeVar("Value")
_STATUS = re.compile("(UNKNOWN|INTERNAL|UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED|FAILED_PRECONDITION): ")


class Agreement(Protocol):
    """An all-gather of small JSON values between the tasks."""

    def agree(self, topic: str, value: Any, seconds: float | None = None) -> list[Any]:
        """Contributes `value` and returns everyone's, within `seconds`."""
        ...

    def close(self) -> None:
        """Ends the wait of a thread in `agree`."""
        ...


class _Alone:
    """The agreement of a single process with itself."""

    def agree(self, topic: str, value: Any, seconds: float | None = None) -> list[Any]:
        del topic, seconds
        return [value]

    def close(self) -> None:
        pass


class Runtime:
    """One process of a synchronous job: who it is, and how it agrees with the others.

    Attributes:
        tasks: Names such as "worker 1", the chief first; the position is the process' index.
        process: This process' index.
        preemption: How all tasks end when one is asked to (SIGTERM).
    """

    def __init__(
        self,
        tasks: tuple[str, ...] = ("this process",),
        process: int = 0,
        control: Control | None = None,
        watchdog: Watchdog | None = None,
        waits: limits.Limits | None = None,
    ) -> None:
        compile_cache.enable(process)  # Whoever trains starts here, before anything is compiled.
        failure.report_to_launcher()
        sigterm.prepare()
        self.tasks = tasks
        self.process = process
        self._control = control
        self._watchdog = watchdog
        self._limits = waits or limits.Limits()
        self.preemption = preemption.ALONE if control is None else control.preemption
        self._calls = self.channel("calls")
        self._in_flight = InFlight()
        if control is not None:
            failure.explain_with(self._first_cause)
            sigterm.restore_python_handler()
            progress_file.mark("joined")

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.process == 0

    @property
    def is_alone(self) -> bool:
        """Whether no other process takes part."""
        return len(self.tasks) == 1

    def agree(self, topic: str, value: Any, seconds: float | None = None) -> list[Any]:
        """Exchanges `value` between all tasks' main threads; see `Channel.agree`."""
        with self.preemption.progress.being(progress.AGREEING):
            return self._calls.agree(topic, value, seconds)

    def demand_same(self, topic: str, value: Any, advice: str) -> None:
        """Exchanges `value`, which must be equal on all tasks; see `demand_equal`."""
        self.demand_equal(topic, self.agree(topic, value), advice)

    def demand_equal(self, topic: str, values: list[Any], advice: str) -> None:
        """Raises `MismatchError`, on every task alike, unless what the tasks have contributed is equal."""
        if found := compare.first_difference(values, self.tasks):
            raise failure.mark_agreed(MismatchError(f"All tasks must have the same {topic}. {found}. {advice}"))

    def channel(self, name: str) -> Agreement:
        """Opens a separate sequence of agreements, for another thread."""
        if self._control is None:
            return _Alone()
        return self._control.channel(name, self._limits.peer)

    def stops_here(self, wants: bool) -> bool:
        """Comes to a point at which training may stop, which all tasks pass alike; returns whether all stop there.

        Any task's wish stops all: there, if all want it there, else within about a second, after the same step.

        Args:
            wants: Whether this task wants to stop.
        """
        if self._control is None:
            return wants
        return self._control.stopping.stops_here(self._control.runs[-1], wants, self._limits.peer)

    def demand_current(self) -> None:
        """Comes before anything that lasts is written: raises `PeerError` if the others have given this process up."""
        if self._watchdog is not None:
            self._watchdog.demand_current()

    @contextlib.contextmanager
    def depending_on_others(self, doing: str) -> Generator[None]:
        """Guards a call that every task makes: an exception that ends it here ends it everywhere.

        Raises:
            Preempted: On all tasks at the same step, after any of them was asked to end (SIGTERM).
        """
        if self._control is None or self._watchdog is None:
            with self.preemption.run():
                yield
            return
        with self._control.running(doing) as run:
            try:
                with self.preemption.run():
                    yield
            except BaseException as error:
                if failure.is_agreed(error) or self._control.is_released(run):
                    raise
                cause = self._first_cause(error)
                kind, message = type(cause).__name__, _message(cause, doing)
                self._control.announce_failure(kind, message, run, failure.blame_of(cause))
                if cause is error:
                    raise
                raise cause from error

    def release(self, results: Any = None) -> None:
        """Says that what is left of the innermost call of all tasks is this one's own affair: others may be further.

        What fails from here on fails here; and a task that has ended its program is missed no more.

        Args:
            results: Arrays that steps of all tasks compute, for which this waits.
        """
        if self._control is not None:
            import jax

            jax.block_until_ready(results)
            self._control.release()

    def launch(self, doing: str, call: Callable[[], tuple[Value, Any]]) -> Value:
        """Makes a call that every task makes, and that returns before its results are there.

        Until they are, this task depends on the others, also when it waits for them outside of any call.

        Args:
            doing: Its name.
            call: Returns what this returns, and one of the arrays that it has started to compute, or `None`.
        """
        control, account = self._control, self.preemption.progress
        if control is None:
            with self.preemption.run():
                return call()[0]
        is_outermost = not control.is_running
        with self.depending_on_others(doing):
            with account.being(progress.DEVICES):
                self._in_flight.settle()
            with account.being(progress.STEP):
                value, result = call()
            account.dispatched(1)
            if hasattr(result, "is_ready"):  # Keys of jax.random cannot tell.
                self._in_flight.add(result)
                control.started(partial(is_done, result))
        if is_outermost:
            account.at(progress.DEVICES)  # That is where the program comes to, if it comes to wait.
        return value

    def _first_cause(self, error: BaseException) -> BaseException:
        """A broken collective is the consequence of a peer's end; says whose."""
        if not _is_broken_collective(error):
            return error
        assert self._control is not None and self._watchdog is not None
        try:
            self._control.check_peers()
            gone = self._watchdog.suspects()
            self._control.check_peers()
        except PeerError as peer:
            return peer
        except Exception:  # The service has gone with the first task.
            return PeerError(f"{self.tasks[0]} has gone: its process ended without a word.")
        if gone:
            names = ", ".join(self.tasks[i] for i in gone)
            message = f"{names} has gone: its process ended without a word while the others needed it."
            return failure.blamed(PeerError(message), self._control.record("", message, gone[0]))
        return error


def _message(error: BaseException, doing: str) -> str:
    """Returns the text that is announced to the other tasks for an exception."""
    if isinstance(error, SystemExit):
        return (
            f"{error}: its program ended in {doing}, which all tasks go through together. To end training early, set "
            "model.stop_training."
        )
    return str(error)


def _is_broken_collective(error: BaseException) -> bool:
    """Gloo's errors come as ValueError; the status before the colon is what they have in common with the others."""
    import jax

    return isinstance(error, jax.errors.JaxRuntimeError) or (
        isinstance(error, (ValueError, RuntimeError)) and _STATUS.match(str(error)) is not None
    )
