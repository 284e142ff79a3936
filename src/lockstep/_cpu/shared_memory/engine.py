"""Brings together what the replicas of all processes add up.

One thread does it, a sum at a time. XLA's threads only leave their calls here, so none of them is held while others
are waited for, and the program goes on meanwhile with whatever does not need the sum.

The processes may reach independent sums in different orders. The first process takes its sums as they come, and the
others follow it: who has guessed otherwise begins again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from lockstep._cpu.shared_memory.arrivals import Arrivals
from lockstep._cpu.shared_memory.calls import Call
from lockstep._cpu.shared_memory.completion import Completion
from lockstep._cpu.shared_memory.exchange import LEADER, Exchange
from lockstep._cpu.shared_memory.links import Links
from lockstep._cpu.shared_memory.memory import Arena
from lockstep.errors import LockstepError

_CLOSE_SECONDS = 5.0


class Engine:
    """Carries out sums.

    Args:
        links: To the other processes.
        arenas: What each process writes, in their order.
        capacity: Bytes of a round.
        replicas: Numbers of this process' replicas.
        is_one_each: Whether each process has one replica; see `Exchange`.
    """

    def __init__(
        self, links: Links, arenas: Sequence[Arena], capacity: int, replicas: Sequence[int], is_one_each: bool
    ) -> None:
        self._links = links
        self._exchange = Exchange(links, arenas, capacity, is_one_each)
        self._arrivals = Arrivals(replicas)
        self._completion = Completion()
        self._current: list[Call] = []
        self._thread = threading.Thread(target=self._serve, name="lockstep-sums", daemon=True)
        self._thread.start()

    @property
    def bytes_written(self) -> int:
        """How many bytes this process has written so far for the others to read."""
        return self._exchange.bytes_written

    def submit(self, call: Call) -> None:
        """Takes a call of one replica; it ends later."""
        self._arrivals.put(call)

    def close(self) -> None:
        """Ends the thread, and the connections to the others."""
        self._arrivals.close()
        self._links.close()
        self._thread.join(_CLOSE_SECONDS)
        self._completion.close()

    def _serve(self) -> None:
        while calls := self._arrivals.first():
            self._current = calls
            try:
                self._carry_out()
            except BaseException as error:
                # The programs that wait must hear of it, whatever it is; no later sum can be right either.
                return self._refuse(error)
            for call in self._current:
                self._completion.run(call.succeed)

    def _refuse(self, error: BaseException) -> None:
        if not isinstance(error, LockstepError):
            error = LockstepError(f"{self._links.names[self._links.process]} failed while it added up: {error!r}.")
        self._links.give_up(str(error))  # So that the others do not wait for this process' part.
        text = f"{type(error).__name__}: {error}"
        for call in (*self._current, *self._arrivals.here()):
            self._completion.run(partial(call.fail, text))
        while call := self._arrivals.one():
            self._completion.run(partial(call.fail, text))

    def _carry_out(self) -> None:
        """Adds up what `_current` wants, or what the first process wants instead."""
        self._exchange.begin(self._current)
        if self._links.process != LEADER:
            self._follow(self._exchange.led())
        self._exchange.finish(self._current)

    def _follow(self, site: int) -> None:
        if site == self._current[0].site:
            return
        self._arrivals.put_back(self._current)
        self._current = []
        calls = self._arrivals.of(site, self._links.seconds)
        if calls is None:
            raise self._links.late([LEADER], self._links.process)
        self._current = calls
        self._exchange.begin(calls)
