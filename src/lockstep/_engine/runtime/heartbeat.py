"""Heartbeats: every task sends one a second, and notices when those of another task stay away.

A task that waits for the others inside a collective operation cannot be woken from Python. When another task has
failed, left, or sent no heartbeat for too long, a thread gives the main thread a moment to fail by itself, and then
ends the process with the reason. A stopped process (SIGSTOP, a hung machine) sends no heartbeats, as a dead one; a
heartbeat of the transport would not tell. A process that runs on while its main thread does not finds that out by
itself, with the place where it is stuck.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Set
from dataclasses import replace
from typing import Any

from lockstep._engine.runtime.control import Control, Run
from lockstep._engine.runtime.failure import attach_cause, attached_cause
from lockstep._engine.runtime.launcher_files import write_error_file
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.progress import OUTSIDE
from lockstep._engine.runtime.stragglers import Stragglers, behind, stall
from lockstep._engine.runtime.tunnel import Outage
from lockstep._engine.runtime.waiting import Waits
from lockstep.errors import PeerError

_HEARTBEAT_SECONDS = 1.0
# The main thread's own exception (a closed connection, an all-gather that fails) is the better report.
_GRACE_SECONDS = 4.0
# A process that has died sends nothing at once; two heartbeats that stay away make it a suspect.
_SUSPECT_SECONDS = 2.5
# The coordination service is gone when this many heartbeats in a row could not be delivered.
_MAX_LOST = 5
# Enough for the others to notice, and to give their main threads the moment of grace.
_SHUTDOWN_SECONDS = 6.0
_POLL_SECONDS = 0.05
_ACCOUNTS = "accounts"


class HeartbeatMonitor:
    """Sends a heartbeat once a second, and watches those of the others while this task depends on them.

    Args:
        control: The messages between the tasks.
        limits: The time limits of the waits.
        outage: Returns what is known of a cut of the network between this task and the first.
        connected_processes: Returns the other processes that have a connection with this one, and so have not ended.
    """

    def __init__(
        self,
        control: Control,
        limits: Limits,
        outage: Callable[[], Outage | None] | None = None,
        connected_processes: Callable[[], Set[int]] = frozenset,
    ) -> None:
        self._control = control
        self._limits = limits
        self._outage = outage
        self._connected_processes = connected_processes
        # Set when the program has ended, and the others are waited for.
        self._leaving: Run | None = None
        self._seen: dict[int, tuple[int | None, float]] = {}
        self._lost = 0
        self._unanswered = 0
        self._alive_at = time.monotonic()
        note = control.preemption.progress.note
        self._stragglers = Stragglers(control.tasks, note=note)
        self._waits = Waits(control.tasks, note)
        # The run that cannot go on, and since when; and the record of the failure that caused it.
        self._doomed: tuple[Run, float] | None = None
        self._cause: dict[str, Any] | None = None
        self._stop = threading.Event()
        # Set when there is a message to send before the next heartbeat.
        self._wake = threading.Event()
        control.preemption.grace = limits.grace
        control.preemption.wake = self._wake.set
        control.preemption.shut_down = self._shut_down_preempted
        self._thread = threading.Thread(target=self._run, name="lockstep-heartbeat", daemon=True)
        self._guard = threading.Thread(target=self._guard_service, name="lockstep-guard", daemon=True)

    def start(self) -> None:
        """Starts sending heartbeats."""
        self._thread.start()
        self._guard.start()

    def stop(self) -> None:
        """Stops sending heartbeats; returns when the last one is out."""
        self._stop.set()
        self._wake.set()
        self._thread.join(_GRACE_SECONDS)

    def suspects(self) -> list[int]:
        """Returns the processes without a heartbeat for `_SUSPECT_SECONDS`; takes that long to find out."""
        before = self._control.listing("heartbeats")
        time.sleep(_SUSPECT_SECONDS)
        after = self._control.listing("heartbeats")
        others = (i for i in range(len(self._control.tasks)) if i != self._control.process)
        return [i for i in others if before.get(str(i)) == after.get(str(i))]

    def leave(self) -> None:
        """Notes that the program has ended: from now on this task waits for the others to end theirs."""
        self._leaving = Run(0, "the end of its program")

    def silence(self, processes: Collection[int]) -> dict[str, Any] | None:
        """Returns a record of those of the processes without a heartbeat for longer than the limit; `None` for none."""
        now, heartbeats = time.monotonic(), self._control.listing("heartbeats")
        for i in processes:  # Also one that was stopped before its first heartbeat.
            if i not in self._seen or self._seen[i][0] != heartbeats.get(str(i)):
                self._seen[i] = (heartbeats.get(str(i)), now)
        late = {i: now - self._seen[i][1] for i in processes if now - self._seen[i][1] > self._limits.silence}
        if not late:
            return None
        return self._control.record("", self._silence_of(sorted(late), max(late.values())), min(late))

    def ages(self) -> dict[str, float]:
        """Returns the seconds since the last new heartbeat of each task that this one has watched; for any thread."""
        now = time.monotonic()
        return {self._control.tasks[i]: now - seen for i, (_, seen) in dict(self._seen).items()}

    def check_current(self) -> None:
        """Raises `PeerError` if the others have given this process up, because it was stopped for so long.

        Called before anything that lasts is written: others may have started again, and write there too.
        """
        silent = time.monotonic() - self._alive_at
        if silent > self._limits.silence:
            raise PeerError(self._given_up(silent))

    def shut_down(self) -> None:
        """Announces the end of a failed task; the first one waits for the others to end."""
        with contextlib.suppress(Exception):  # The service has gone.
            self._control.announce_end()
            # The first task hosts the service that the others learn the root cause from, and without which jax aborts
            # their processes: it stays until those that are alive have ended, but no longer than the limit.
            if self._control.process == 0:
                self._wait_for_others()

    def _shut_down_preempted(self) -> None:
        # Preempted, and its grace is over: the others count it as left, not as failed.
        with contextlib.suppress(Exception):  # The service has gone.
            self._control.announce_leaving()
        self.shut_down()

    def _wait_for_others(self) -> None:
        others = set(range(1, len(self._control.tasks)))
        start = changed = time.monotonic()
        before: dict[int, Any] = {}
        # One that has announced its end may still write its output, and jax would abort it there.
        while waiting := others - (self._control.ended() - self._connected_processes()):
            listing = {int(name): value for name, value in self._control.listing("heartbeats").items()}
            heartbeats = {i: value for i, value in listing.items() if i in waiting}
            now = time.monotonic()
            if heartbeats != before:
                before, changed = heartbeats, now
            if now - changed > _SUSPECT_SECONDS or now - start > _SHUTDOWN_SECONDS:
                return
            time.sleep(_POLL_SECONDS)

    def _guard_service(self) -> None:
        """Ends the process if the first task does not answer: the heartbeat's own thread is stuck in its call then."""
        looked = time.monotonic()
        while not self._stop.wait(_HEARTBEAT_SECONDS):
            # Counted, not timed: if this process is stopped for long, that is no silence of another task.
            self._unanswered += 1
            run = self._control.run or self._leaving
            asleep, looked = time.monotonic() - looked, time.monotonic()
            if run and asleep > self._limits.silence:
                self._end(self._given_up(asleep), run, is_reachable=False)
            patience, unanswered = self._limits.silence + _GRACE_SECONDS, self._unanswered * _HEARTBEAT_SECONDS
            # A process that was stopped itself has had no time to connect again.
            outage = self._outage() if self._outage and asleep < _SUSPECT_SECONDS else None
            if outage and (outage.final or max(outage.seconds, unanswered if run else 0.0) > patience):
                outage = replace(outage, seconds=max(outage.seconds, unanswered))
                self._end(self._out_of_reach(outage), run or Run(0, OUTSIDE), is_reachable=False)
            if run and unanswered > patience:
                self._end(self._silence_of([0], unanswered), run, is_reachable=False)

    def _run(self) -> None:
        number = 0
        while True:
            # The next heartbeat is due soon while the tasks agree where to end.
            self._wake.wait(_POLL_SECONDS if self._control.preemption.is_pending else _HEARTBEAT_SECONDS)
            if self._stop.is_set():
                return
            self._wake.clear()
            number += 1
            run = self._control.run
            reason = self._beat(number, run)
            if not reason or not run:
                self._doomed = None
            else:
                now = time.monotonic()
                if self._doomed is None or self._doomed[0] != run:
                    self._doomed = run, now
                if now - self._doomed[1] >= _GRACE_SECONDS:
                    self._end(reason, run)
            if run:
                self._check_main_thread(run)

    def _check_main_thread(self, run: Run) -> None:
        """Ends this process if its main thread is stuck: no other task can tell where."""
        control, accounts = self._control, dict[int, Any]()
        found = stall(control.tasks[control.process], control.preemption.progress, self._limits)
        if found is None:
            return
        with contextlib.suppress(Exception):  # The service has gone.
            accounts = {int(name): account for name, account in control.listing(_ACCOUNTS).items()}
        self._end(found[0], run, stuck=f"{found[0]}\n{found[1]}All tasks: {behind(accounts, control.tasks)}.")

    def _beat(self, number: int, run: Run | None) -> str | None:
        """Sends a heartbeat and looks at the others; returns why this task cannot go on, or `None`."""
        try:
            self._control.set(f"heartbeats/{self._control.process}", number, overwrite=True)
            self._unanswered = 0
            self._alive_at = time.monotonic()
            self._control.preemption.poll()
            self._control.stopping.poll()
            self._send_account(run)
            self._lost = 0
            if run:
                self._control.check_peers()
                if silent := self.silence(range(len(self._control.tasks))):
                    raise attach_cause(PeerError(silent["message"]), silent)
            return None
        except PeerError as error:
            self._cause = attached_cause(error)
            return str(error)
        except Exception as error:  # jaxlib raises one class for every status
            self._lost += 1
            self._cause = None
            if self._lost < _MAX_LOST:
                return None
            return f"{self._control.tasks[0]}, which all others report to, cannot be reached: {error}"

    def _send_account(self, run: Run | None) -> None:
        """Sends the main thread's progress to the others; the first task looks for stragglers."""
        control = self._control
        account = control.preemption.progress.account()
        if run is None:
            self._stragglers.reset()
            self._waits.reset()
            if not account["dispatches"]:
                return
            account["where"] = OUTSIDE
        control.set(f"{_ACCOUNTS}/{control.process}", account, overwrite=True)
        if run is not None and control.process == 0:
            accounts: dict[int, Any] = {int(name): account for name, account in control.listing(_ACCOUNTS).items()}
            self._stragglers.update(accounts)
            self._waits.update(accounts)

    def _given_up(self, seconds: float) -> str:
        return (
            f"{self._control.tasks[self._control.process]} has sent no heartbeat for {seconds:.0f} s, because its "
            f"process was stopped or had no connection. After {self._limits.silence:g} s (LOCKSTEP_SILENCE_TIMEOUT) "
            "the others end, and may start again without it: it must not write anything any more."
        )

    def _silence_of(self, late: list[int], seconds: float) -> str:
        names = ", ".join(self._control.tasks[i] for i in late)
        return (
            f"Every task must send a heartbeat at least every {self._limits.silence:g} s "
            f"(LOCKSTEP_SILENCE_TIMEOUT). {names} does not: its process is stopped, or its machine is unreachable. The "
            f"last one came {seconds:.0f} s ago."
        )

    def _out_of_reach(self, outage: Outage) -> str:
        first = (
            f"{self._control.tasks[0]}, which all others report to, has been out of reach for {outage.seconds:.0f} s"
        )
        if outage.final:
            return f"{first}. {outage.final}"
        return (
            f"The tasks must reach each other again within {self._limits.silence:g} s (LOCKSTEP_SILENCE_TIMEOUT) when "
            f"the network is cut. {first}. Look at the network between the machines, and whether that machine runs."
        )

    def _end(self, reason: str, run: Run, is_reachable: bool = True, stuck: str = "") -> None:
        """Ends the process for a reason; `stuck` says where, if it is this task whose main thread does not go on."""
        if self._stop.is_set():
            return
        me, kind = self._control.tasks[self._control.process], "TimeoutError" if stuck else "PeerError"
        if is_reachable:
            self._control.announce_failure(kind, stuck or reason, cause=None if stuck else self._cause)
        write_error_file(me, kind, reason, stuck or f"lockstep.errors.PeerError: {reason}\n", secondary=not stuck)
        print(f"lockstep: {me} ends, because it cannot go on in {run.doing}: {stuck or reason}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        if is_reachable:
            self.shut_down()
        os._exit(1)
