"""Runtime of one process of a synchronous job: its place, and what it does together with the others."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Protocol, TypeVar

from lockstep._engine.runtime import compile_cache, failure, fingerprint, limits, preemption, progress, sigterm
from lockstep._engine.runtime.control import Control
from lockstep._engine.runtime.heartbeat import HeartbeatMonitor
from lockstep._engine.runtime.progress import InFlight, is_done
from lockstep.errors import MismatchError, PeerError

Value = TypeVar("Value")
_STATUS = re.compile("(UNKNOWN|INTERNAL|UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED|FAILED_PRECONDITION): ")


class ObjectChannel(Protocol):
    """All-gathers of small JSON values between the tasks."""

    def all_gather_object(self, topic: str, value: Any, seconds: float | None = None) -> list[Any]:
        """Contributes `value` and returns everyone's, within `seconds`."""
        ...

    def close(self) -> None:
        """Ends the wait of a thread in `all_gather_object`."""
        ...


class _LocalChannel:
    """Channel of a process that trains alone."""

    def all_gather_object(self, topic: str, value: Any, seconds: float | None = None) -> list[Any]:
        del topic, seconds
        return [value]

    def close(self) -> None:
        pass


class Runtime:
    """One process of a synchronous job.

    Attributes:
        tasks: Names such as "worker 1", the chief first; the position is the process' index.
        process: This process' index.
        preemption: Ends all tasks after the same step when one is asked to end (SIGTERM).
    """

    def __init__(
        self,
        tasks: tuple[str, ...] = ("this process",),
        process: int = 0,
        control: Control | None = None,
        watchdog: HeartbeatMonitor | None = None,
        waits: limits.Limits | None = None,
    ) -> None:
        compile_cache.enable(process)  # Here, because every training makes a Runtime before it compiles anything.
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
            failure.explain_with(self._root_cause)
            sigterm.restore_python_handler()
            progress.mark("joined")

    @property
    def is_chief(self) -> bool:
        """Returns whether this process is the one that writes and prints."""
        return self.process == 0

    @property
    def is_alone(self) -> bool:
        """Returns whether no other process takes part."""
        return len(self.tasks) == 1

    def all_gather_object(self, topic: str, value: Any, seconds: float | None = None) -> list[Any]:
        """Gathers `value` of all tasks' main threads; see `Channel.all_gather_object`."""
        with self.preemption.progress.being(progress.AGREEING):
            return self._calls.all_gather_object(topic, value, seconds)

    def check_same(self, topic: str, value: Any, advice: str) -> None:
        """Exchanges `value`, which must be equal on all tasks; see `check_equal`."""
        self.check_equal(topic, self.all_gather_object(topic, value), advice)

    def check_equal(self, topic: str, values: list[Any], advice: str) -> None:
        """Raises `MismatchError`, on every task alike, unless what the tasks have contributed is equal."""
        if found := fingerprint.first_difference(values, self.tasks):
            raise failure.mark_agreed(MismatchError(f"All tasks must have the same {topic}. {found}. {advice}"))

    def channel(self, name: str) -> ObjectChannel:
        """Opens a separate sequence of all-gathers, for another thread."""
        if self._control is None:
            return _LocalChannel()
        return self._control.channel(name, self._limits.peer)

    def stops_here(self, wants: bool) -> bool:
        """Passes a point at which training may stop; returns whether all tasks stop there.

        All pass the same points. If any task `wants` to stop, all do: there, if all want it there, else within about a
        second, after the same step.
        """
        if self._control is None:
            return wants
        return self._control.stopping.stops_here(self._control.runs[-1], wants, self._limits.peer)

    def heartbeat_ages(self) -> dict[str, float]:
        """Returns the seconds since this task has seen a new heartbeat of each task; none of a process alone."""
        return {} if self._watchdog is None else self._watchdog.ages()

    def check_current(self) -> None:
        """Raises `PeerError` if the others have given this process up; called before anything that lasts is written."""
        if self._watchdog is not None:
            self._watchdog.check_current()

    @contextlib.contextmanager
    def collective_region(self, doing: str) -> Generator[None]:
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
                cause = self._root_cause(error)
                kind, message = type(cause).__name__, _message(cause, doing)
                self._control.announce_failure(kind, message, run, failure.attached_cause(cause))
                if cause is error:
                    raise
                raise cause from error

    def release(self, results: Any = None) -> None:
        """Notes that the rest of the innermost collective region needs no other task, once `results` are computed.

        An error from here on is this task's own; and a task that has ended its program is not missed any more.
        """
        if self._control is not None:
            import jax

            jax.block_until_ready(results)
            self._control.release()

    def launch(self, doing: str, call: Callable[[], tuple[Value, Any]]) -> Value:
        """Dispatches an asynchronous computation that every task dispatches.

        Until its results are ready, this task depends on the others, also when it waits for them outside of any call.

        Args:
            doing: The name of the call.
            call: Returns a pair: the value of this method, and one of the arrays that it computes, or `None`.
        """
        control, account = self._control, self.preemption.progress
        if control is None:
            with self.preemption.run():
                return call()[0]
        # Inside another call that one says where the main thread is.
        is_outermost = not control.runs
        with self.collective_region(doing):
            with account.being(progress.DEVICES):
                self._in_flight.settle()
            with account.being(progress.STEP):
                value, result = call()
            account.dispatched(1)
            if hasattr(result, "is_ready"):  # Keys of jax.random cannot tell.
                self._in_flight.add(result)
                control.started(partial(is_done, result))
        if is_outermost:
            account.at(progress.DEVICES)  # Where the main thread will be if the program reads a result.
        return value

    def _root_cause(self, error: BaseException) -> BaseException:
        """Returns the error of the peer whose end has broken a collective, or `error` itself."""
        if not _is_broken_collective(error):
            return error
        assert self._control is not None and self._watchdog is not None
        try:
            # Before, because most tasks that end say so; after, because one may have while it was waited for.
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
            return failure.attach_cause(PeerError(message), self._control.record("", message, gone[0]))
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
    import jax

    # Gloo's errors come as ValueError; the status before the colon is what they have in common with the others.

    return isinstance(error, jax.errors.JaxRuntimeError) or (
        isinstance(error, (ValueError, RuntimeError)) and _STATUS.match(str(error)) is not None
    )
