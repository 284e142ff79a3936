"""Reads a source ahead of the step, on a thread, and only hands out batches that every task has.

Each task reads the same global batches and trains its share of them. Before a batch is used, all tasks say how many
they have ready, whether there are more, and what they look like. So the step never starts on one task alone: when data
ends early on one task, or cannot be read there, all of them stop at the same batch and know why.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from lockstep._feed.batch import nbytes, rows_to_add, signature, with_counts
from lockstep._runtime import compare, failure
from lockstep._runtime.control import ChannelClosed
from lockstep._runtime.runtime import Agreement, Runtime
from lockstep.errors import InputError, MismatchError

# One agreement covers what was read in this time, up to so many batches and bytes: quick sources agree rarely.
_ROUND_SECONDS = 0.005
_ROUND_BATCHES = 8
_ROUND_BYTES = 64 << 20
# Batches that wait on the devices for the step.
_AHEAD = 2
_CLOSE_SECONDS = 10.0


class Reader:
    """Iterates over the agreed and placed batches of (part of) one pass.

    Args:
        batches: This task's iterator over global batches.
        limit: At most so many, or `None`: until the data ends.
        place: Puts a batch on the devices.
        runtime: Who takes part.
        channel: The agreement for this reader alone.
        first: The number of the first batch, for messages.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        limit: int | None,
        place: Callable[[Any], Any],
        runtime: Runtime,
        channel: Agreement,
        first: int = 0,
    ) -> None:
        self._batches = batches
        self._left = limit
        self._place = place
        self._runtime = runtime
        self._channel = channel
        self._number = first
        # Read here and not yet handed out, and what follows it: the end, or an error.
        self._held: list[Any] = []
        self._ended = False
        self._error: Exception | None = None
        # Words that this task wants all tasks to hear, and those that all have heard.
        self._asked: set[str] = set()
        self.told: set[str] = set()
        self._ready: queue.Queue[tuple[str, Any]] = queue.Queue(_AHEAD)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lockstep-reader", daemon=True)
        self._thread.start()
        # For iterators that a program leaves before their end, and never closes.
        weakref.finalize(self, _end, self._stop, channel, self._thread)

    def __iter__(self) -> Iterator[Any]:
        while True:
            kind, value = self._ready.get()
            if kind == "batch":
                yield value
            elif kind == "told":
                self.told.update(value)
            elif kind == "end":
                return
            else:
                raise value

    def ask(self, word: str) -> None:
        """Has all tasks find `word` in `told`, after the same one of the next batches."""
        self._asked.add(word)

    def close(self) -> None:
        """Stops reading. All tasks close a reader after the same batch, but some may be ahead in reading.

        A source that does not return is left to itself after `_CLOSE_SECONDS`, so that an error can be reported.
        """
        if not self._thread.is_alive():
            return  # Maybe the interpreter is ending, and what follows has gone.
        self._stop.set()
        self._channel.close()
        deadline = time.monotonic() + _CLOSE_SECONDS
        while self._thread.is_alive() and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                self._ready.get_nowait()
            self._thread.join(0.01)

    def _run(self) -> None:
        try:
            while not self._stop.is_set() and self._left != 0 and self._hand_out():
                pass
            self._put("end", None)
        except ChannelClosed:
            return
        except BaseException as error:  # Raised where the batches are used.
            self._put("error", error)

    def _hand_out(self) -> bool:
        """Hands out the next batches that all tasks have; returns whether there may be more."""
        self._read()
        if self._stop.is_set():
            return False
        reports = self._channel.agree("the next batch of the data", self._report())
        common = min(len(r["batches"]) for r in reports)
        self._compare(reports, common)
        if common:
            self._tell(reports)
        for i, batch in enumerate(self._held[:common]):
            counts = [r["rows"][i] for r in reports]
            if None not in counts:
                if not any(counts):  # Parts end when no task has any rows left.
                    return False
                batch = with_counts(batch, counts)
            self._put("batch", self._place(batch))
        del self._held[:common]
        self._number += common
        self._left = None if self._left is None else self._left - common
        return self._left == 0 or self._all_go_on(reports, common)

    def _tell(self, reports: list[dict[str, Any]]) -> None:
        """Hands out what any task asks for, ahead of the next batch."""
        self._asked.difference_update(reports[self._runtime.process]["asks"])
        if words := {word for r in reports for word in r["asks"]}:
            self._put("told", words)

    def _read(self) -> None:
        """Reads at least one batch, and more while that takes next to no time."""
        limit = min(_ROUND_BATCHES, _ROUND_BATCHES if self._left is None else self._left)
        deadline = time.monotonic() + (0.0 if self._runtime.is_alone else _ROUND_SECONDS)
        size = 0
        while len(self._held) < limit and not self._ended and self._error is None:
            self._read_one()
            size += sum(map(nbytes, self._held[-1:]))
            if time.monotonic() >= deadline or size > _ROUND_BYTES:
                return

    def _read_one(self) -> None:
        try:
            self._held.append(next(self._batches))
        except StopIteration:
            self._ended = True
        except Exception as error:
            self._error = error

    def _report(self) -> dict[str, Any]:
        describe = (lambda batch: "") if self._runtime.is_alone else signature
        return {
            "batches": [describe(b) for b in self._held],
            "rows": [rows_to_add(b) for b in self._held],
            "asks": sorted(self._asked),
            "ended": self._ended,
            "error": self._error and f"{type(self._error).__name__}: {self._error}",
        }

    def _compare(self, reports: list[dict[str, Any]], common: int) -> None:
        for i in range(common):
            if found := compare.first_difference([r["batches"][i] for r in reports], self._runtime.tasks):
                raise failure.mark_agreed(
                    MismatchError(
                        "Every task must read the same global batches; each then trains its share. Batch "
                        f"{self._number + i}: {found}. Do not shard the data or divide the batch size by hand."
                    )
                )

    def _all_go_on(self, reports: list[dict[str, Any]], common: int) -> bool:
        """Whether no task has come to an end, or an error, after the common batches."""
        stopped = [i for i, r in enumerate(reports) if len(r["batches"]) == common and (r["ended"] or r["error"])]
        for i in stopped:
            if message := reports[i]["error"]:
                raise failure.mark_agreed(self._failure_of(i, message))
        at_hand = [i for i, r in enumerate(reports) if len(r["batches"]) > common]
        if len(stopped) + len(at_hand) < len(reports):
            return True  # The others have to look first whether they end here as well.
        if stopped and at_hand:
            self._warn_uneven(stopped)
        return not stopped

    def _failure_of(self, process: int, message: str) -> Exception:
        if process == self._runtime.process and self._error is not None:
            return self._error
        task = self._runtime.tasks[process]
        return InputError(f"All tasks stop at batch {self._number}: it could not be read on {task}: {message}")

    def _warn_uneven(self, stopped: list[int]) -> None:
        if self._runtime.is_chief:
            names = ", ".join(self._runtime.tasks[i] for i in stopped)
            warnings.warn(
                f"Every task should have the same number of batches. The data of {names} ended after {self._number} "
                "batches, so all tasks end there.",
                stacklevel=2,
            )

    def _put(self, kind: str, value: Any) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(queue.Full):
                self._ready.put((kind, value), timeout=0.1)
                return


def _end(stop: threading.Event, channel: Agreement, thread: threading.Thread) -> None:
    stop.set()
    channel.close()
    thread.join(_CLOSE_SECONDS)
