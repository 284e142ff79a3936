"""Signs of life: every task shows that it is alive, and notices when another one is not.

A task that waits for the others inside a collective operation cannot be woken from Python. When another task has
failed, left, or shown no sign of life, this thread gives the main thread a moment to fail by itself, and then ends
the process with the reason. A stopped process (SIGSTOP, a hung machine) stops showing signs of life as a dead one
does; a heartbeat of the transport would not tell. A process that runs on while its main thread does not is found out
by itself, with the place where it is stuck.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from lockstep._engine.runtime.control import Control, Run
from lockstep._engine.runtime.failure import blame_of, blamed, write_error_file
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.progress import OUTSIDE
from lockstep._engine.runtime.stalls import behind, stall
from lockstep._engine.runtime.stragglers import Stragglers
from lockstep._engine.runtime.tunnel import Outage
from lockstep.errors import PeerError

_BEAT_SECONDS = 1.0
# The main thread's own exception (a closed connection, an agreement that fails) is the better report.
_GRACE_SECONDS = 4.0
# A peer whose process has died stops beating at once; this long without a beat makes it a suspect.
_SUSPECT_SECONDS = 2.5
# The coordination service is gone when this many beats in a row could not be delivered.
_LOST_BEATS = 5
# Enough for the others to look, and to give their main threads the moment of grace.
_HEARING_SECONDS = 6.0
_POLL_SECONDS = 0.05
_ACCOUNTS = "accounts"


class Watchdog:
    """Beats once a second, and watches the others while this task depends on them.

    Args:
        control: Of this task.
        limits: Of its waits.
        outage: Returns what is known of a lost connection to the first task, where there is one that may be lost.
    """

    def __init__(self, control: Control, limits: Limits, outage: Callable[[], Outage | None] | None = None) -> None:
        self._control = control
        self._limits = limits
        self._outage = outage
        # Set when the program has ended, and the others are waited for.
        self._leaving: Run | None = None
        self._seen: dict[int, tuple[int | None, float]] = {}
        self._lost = 0
        self._unanswered = 0
        self._alive_at = time.monotonic()
        self._stragglers = Stragglers(control.tasks)
        # The run that cannot go on, and since when; and the record of the failure that it is the consequence of.
        self._doomed: tuple[Run, float] | None = None
        self._blame: dict[str, Any] | None = None
        self._stop = threading.Event()
        # Set when there is something to say before the next beat.
        self._wake = threading.Event()
        control.preemption.grace = limits.grace
        control.preemption.wake = self._wake.set
        control.preemption.part = self._part_in_order
        self._thread = threading.Thread(target=self._run, name="lockstep-watchdog", daemon=True)
        self._guard = threading.Thread(target=self._watch_beats, name="lockstep-guard", daemon=True)

    def start(self) -> None:
        """Starts beating."""
        self._thread.start()
        self._guard.start()

    def stop(self) -> None:
        """Stops beating; returns when the last beat is out."""
        self._stop.set()
        self._wake.set()
        self._thread.join(_GRACE_SECONDS)

    def suspects(self) -> list[int]:
        """Returns the processes without a beat for `_SUSPECT_SECONDS`; takes that long to find out."""
        before = self._control.listing("beats")
        time.sleep(_SUSPECT_SECONDS)
        after = self._control.listing("beats")
        others = (i for i in range(len(self._control.tasks)) if i != self._control.process)
        return [i for i in others if before.get(str(i)) == after.get(str(i))]

    def leave(self) -> None:
        """Notes that the program has ended: from now on this task waits for the others to end theirs."""
        self._leaving = Run(0, "the end of its program")

    def silence(self, processes: Collection[int]) -> dict[str, Any] | None:
        """Returns a record of those of the processes without a heartbeat for longer than the limit; `None` for none."""
        now, beats = time.monotonic(), self._control.listing("beats")
        for i in processes:  # Also one that was stopped before its first beat.
            if i not in self._seen or self._seen[i][0] != beats.get(str(i)):
                self._seen[i] = (beats.get(str(i)), now)
        late = {i: now - self._seen[i][1] for i in processes if now - self._seen[i][1] > self._limits.silence}
        if not late:
            return None
        return self._control.record("", self._silence_of(sorted(late), max(late.values())), min(late))

    def demand_current(self) -> None:
        """Raises `PeerError` if the others have given this process up, because it was stopped for so long.

        It comes before anything that lasts is written: others may have started again, and write there too.
        """
        silent = time.monotonic() - self._alive_at
        if silent > self._limits.silence:
            raise PeerError(self._given_up(silent))

    def part(self) -> None:
        """Comes before the end of a failed task.

        The first one hosts the service that the others learn the first cause from, and without which jax ends their
        processes: it stays until those that are alive have learned it, but no longer than `_HEARING_SECONDS`.
        """
        with contextlib.suppress(Exception):  # The service has gone.
            self._control.announce_end()
            if self._control.process == 0:
                self._wait_for_others()

    def _part_in_order(self) -> None:
        """Comes before the end of a task that was asked to end, and whose time is over; the others need not mind."""
        with contextlib.suppress(Exception):  # The service has gone.
            self._control.announce_leaving()
        self.part()

    def _wait_for_others(self) -> None:
        others = set(range(1, len(self._control.tasks)))
        start = changed = time.monotonic()
        before: dict[int, Any] = {}
        while waiting := others - self._control.ended():
            beats = {i: b for i, b in self._beats().items() if i in waiting}
            now = time.monotonic()
            if beats != before:
                before, changed = beats, now
            if now - changed > _SUSPECT_SECONDS or now - start > _HEARING_SECONDS:
                return
            time.sleep(_POLL_SECONDS)

    def _beats(self) -> dict[int, Any]:
        return {int(name): beat for name, beat in self._control.listing("beats").items()}

    def _watch_beats(self) -> None:
        """The first task may be stopped itself: then it answers nothing, and the other thread waits for it."""
        looked = time.monotonic()
        while not self._stop.wait(_BEAT_SECONDS):
            self._unanswered += 1  # Not the time: if this process is stopped for long, it is nobody's silence.
            run = self._control.run or self._leaving
            asleep, looked = time.monotonic() - looked, time.monotonic()
            if run and asleep > self._limits.silence:
                self._end(self._given_up(asleep), run, heard=False)
            patience, unanswered = self._limits.silence + _GRACE_SECONDS, self._unanswered * _BEAT_SECONDS
            # A process that was stopped itself has had no time to connect again.
            outage = self._outage() if self._outage and asleep < _SUSPECT_SECONDS else None
            if outage and (outage.final or max(outage.seconds, unanswered if run else 0.0) > patience):
                outage = replace(outage, seconds=max(outage.seconds, unanswered))
                self._end(self._out_of_reach(outage), run or Run(0, OUTSIDE), heard=False)
            if run and unanswered > patience:
                self._end(self._silence_of([0], unanswered), run, heard=False)

    def _run(self) -> None:
        beat = 0
        while self._next_beat():
            beat += 1
            run = self._control.run
            reason = self._beat_and_look(beat, run)
            if not reason or not run:
                self._doomed = None
            elif self._has_had_grace(run):
                self._end(reason, run)
            if run:
                self._look_at_myself(run)

    def _look_at_myself(self, run: Run) -> None:
        """Ends this process if its main thread is stuck: nobody else can tell where."""
        control, accounts = self._control, dict[int, Any]()
        found = stall(control.tasks[control.process], control.preemption.progress, self._limits)
        if found is None:
            return
        with contextlib.suppress(Exception):  # The service has gone.
            accounts = {int(name): account for name, account in control.listing(_ACCOUNTS).items()}
        told = f"{found[0]}\n{found[1]}All tasks: {behind(accounts, control.tasks)}."
        self._end(found[0], run, stuck=told)

    def _next_beat(self) -> bool:
        """Waits until the next beat is due, which is soon while the tasks agree where to end; `False` at the end."""
        self._wake.wait(_POLL_SECONDS if self._control.preemption.is_pending else _BEAT_SECONDS)
        if self._stop.is_set():
            return False
        self._wake.clear()
        return True

    def _has_had_grace(self, run: Run) -> bool:
        now = time.monotonic()
        if self._doomed is None or self._doomed[0] != run:
            self._doomed = run, now
        return now - self._doomed[1] >= _GRACE_SECONDS

    def _beat_and_look(self, beat: int, run: Run | None) -> str | None:
        try:
            self._control.set(f"beats/{self._control.process}", beat, overwrite=True)
            self._unanswered = 0
            self._alive_at = time.monotonic()
            self._control.preemption.look()
            self._control.stopping.look()
            self._account(run)
            self._lost = 0
            if run:
                self._look()
            return None
        except PeerError as error:
            self._blame = blame_of(error)
            return str(error)
        except Exception as error:  # jaxlib raises one class for every status
            self._lost += 1
            self._blame = None
            if self._lost < _LOST_BEATS:
                return None
            return f"{self._control.tasks[0]}, which all others report to, cannot be reached: {error}"

    def _account(self, run: Run | None) -> None:
        """Tells where the main thread is; the first task looks who holds the others up."""
        control = self._control
        account = control.preemption.progress.account()
        if run is None:
            self._stragglers.forget()
            if not account["dispatches"]:
                return
            account["where"] = OUTSIDE
        control.set(f"{_ACCOUNTS}/{control.process}", account, overwrite=True)
        if run is not None and control.process == 0:
            self._stragglers.look({int(name): account for name, account in control.listing(_ACCOUNTS).items()})

    def _given_up(self, seconds: float) -> str:
        return (
            f"{self._control.tasks[self._control.process]} has shown no sign of life for {seconds:.0f} s, because its "
            f"process was stopped or had no connection. After {self._limits.silence:g} s (LOCKSTEP_SILENCE_TIMEOUT) "
            "the others end, and may start again without it: it must not write anything any more."
        )

    def _look(self) -> None:
        self._control.check_peers()
        if silent := self.silence(range(len(self._control.tasks))):
            raise blamed(PeerError(silent["message"]), silent)

    def _silence_of(self, late: list[int], seconds: float) -> str:
        names = ", ".join(self._control.tasks[i] for i in late)
        return (
            f"Every task must show a sign of life at least every {self._limits.silence:g} s "
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

    def _end(self, reason: str, run: Run, heard: bool = True, stuck: str = "") -> None:
        """Ends the process.

        Args:
            reason: Why.
            run: What it is in.
            heard: Whether the others can be told.
            stuck: Where, if it is this task that does not go on.
        """
        if self._stop.is_set():
            return
        me, kind = self._control.tasks[self._control.process], "TimeoutError" if stuck else "PeerError"
        if heard:
            self._control.announce_failure(kind, stuck or reason, cause=None if stuck else self._blame)
        write_error_file(me, kind, reason, stuck or f"lockstep.errors.PeerError: {reason}\n", secondary=not stuck)
        print(f"lockstep: {me} ends, because it cannot go on in {run.doing}: {stuck or reason}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        if heard:
            self.part()
        os._exit(1)
