"""Reads a source ahead of the step, on a thread, and only hands out batches that every task has.

Each task reads the same global batches and trains its share of them. Before a batch is used, all tasks say how many
they have ready, whether there are more, what they look like, and a checksum of a few rows of each. So the step never
starts on one task alone, or on shares of different batches: when data ends early on one task, cannot be read there, or
differs there, all of them stop at the same batch and know why.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from lockstep._engine.input import samples
from lockstep._engine.input.batch import nbytes, rows_to_add, sample_of, signature, with_counts
from lockstep._engine.input.samples import Sample
from lockstep._engine.runtime import compare, failure, progress
from lockstep._engine.runtime.control import ChannelClosed
from lockstep._engine.runtime.runtime import Agreement, Runtime
from lockstep._engine.step.steps_per_execution import group_batches
from lockstep.errors import InputError, MismatchError

# One agreement covers what was read in this time, up to so many batches (or what the step program takes together) and
# bytes: quick sources agree rarely.
_ROUND_SECONDS = 0.005
_ROUND_BATCHES = 8
_ROUND_BYTES = 64 << 20
# Batches that wait on the devices for the step.
_AHEAD = 2
_CLOSE_SECONDS = 10.0
_HASTY_CLOSE_SECONDS = 0.5
# How often a wait for input looks whether it should go on.
_LOOK_SECONDS = 0.1


class Placer(Protocol):
    """Puts batches on the devices, one by one or several together."""

    def prepare(self, batch: Any) -> Any:
        """Makes of a batch what is to be placed."""
        ...

    def chunk_capacity(self, batch: Any) -> int:
        """Returns how many batches like a prepared one may be placed together; 0 if each goes alone."""
        ...

    def place(self, batches: Sequence[Any]) -> Any:
        """Places prepared batches that go together."""
        ...


class Reader:
    """Iterates over the agreed and placed batches of (part of) one pass, in chunks.

    Args:
        batches: This task's iterator over global batches.
        limit: At most so many, or `None`: until the data ends.
        placer: Puts batches on the devices.
        runtime: Who takes part.
        channel: The agreement for this reader alone.
        first: The number of the first batch, for messages.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        limit: int | None,
        placer: Placer,
        runtime: Runtime,
        channel: Agreement,
        first: int = 0,
    ) -> None:
        self._batches = batches
        self._left = limit
        self._placer = placer
        self._most = _ROUND_BATCHES
        self._runtime = runtime
        self._channel = channel
        self._number = first
        # Read here and not yet handed out, and what follows it: the end, or an error.
        self._held: list[Any] = []
        self._compares = samples.are_compared(runtime)
        self._samples: list[Sample | None] = []
        self._ended = False
        self._error: Exception | None = None
        # Whether it waits for the other tasks, and not for its own data.
        self._is_agreeing = False
        # Words that this task wants all tasks to hear, and those that all have heard.
        self._asked: set[str] = set()
        self.told: set[str] = set()
        self._ready: queue.Queue[tuple[str, Any]] = queue.Queue(_AHEAD)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lockstep-reader", daemon=True)
        self._thread.start()
        # For iterators that a program leaves before their end, and never closes.
        self._finalizer = weakref.finalize(self, _end, self._stop, channel, self._thread)

    def __iter__(self) -> Iterator[Any]:
        while True:
            kind, value = self._next()
            if kind in ("chunk", "end"):  # What all tasks get alike; not an error of this one alone.
                self._runtime.preemption.gate()
            if kind == "chunk":
                yield value
            elif kind == "told":
                self.told.update(value)
            elif kind == "end":
                return
            else:
                raise value

    def _next(self) -> tuple[str, Any]:
        """Waits for what comes next, or for the end that all tasks agree on."""
        preemption = self._runtime.preemption
        with contextlib.suppress(queue.Empty):
            return self._ready.get_nowait()
        before = preemption.progress.at(self._whose_input())
        try:
            while True:
                with contextlib.suppress(queue.Empty):
                    return self._ready.get(timeout=_LOOK_SECONDS)
                preemption.check()
                preemption.progress.still_at(self._whose_input())
        finally:
            preemption.progress.at(before)

    def _whose_input(self) -> str:
        return progress.AWAITING if self._is_agreeing else progress.READING

    def ask(self, word: str) -> None:
        """Has all tasks find `word` in `told`, after the same one of the next batches."""
        self._asked.add(word)

    def close(self) -> None:
        """Stops reading. All tasks close a reader after the same batch, but some may be ahead in reading.

        A source that does not return is left to itself after `_CLOSE_SECONDS`, so that an error can be reported, or
        sooner if this process was asked to end: there may be something to save.
        """
        self._finalizer.detach()
        if not self._thread.is_alive():
            return  # Maybe the interpreter is ending, and what follows has gone.
        self._stop.set()
        self._channel.close()
        is_asked = self._runtime.preemption.is_asked
        deadline = time.monotonic() + (_HASTY_CLOSE_SECONDS if is_asked else _CLOSE_SECONDS)
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
        self._is_agreeing = True
        reports = [_expanded(r) for r in self._channel.agree("the next batch of the data", self._report())]
        self._is_agreeing = False
        common = min(len(r["batches"]) for r in reports)
        self._compare(reports, common)
        batches = [self._prepared(i, reports) for i in range(common)]
        end = next((i for i, batch in enumerate(batches) if batch is None), common)
        self._place(batches[:end], self._words(reports) if common else set())
        if end < common:  # Parts end when no task has any rows left.
            return False
        del self._held[:common], self._samples[:common]
        self._number += common
        self._left = None if self._left is None else self._left - common
        return self._left == 0 or self._all_go_on(reports, common)

    def _prepared(self, number: int, reports: list[dict[str, Any]]) -> Any:
        """Returns a batch ready to be placed; `None` for a part to which no task adds a row."""
        batch, counts = self._held[number], [r["rows"][number] for r in reports]
        if None not in counts:
            if not any(counts):
                return None
            batch = with_counts(batch, counts)
        return self._placer.prepare(batch)

    def _words(self, reports: list[dict[str, Any]]) -> set[str]:
        """What any task asks for; the next batches carry it to all."""
        self._asked.difference_update(reports[self._runtime.process]["asks"])
        return {word for r in reports for word in r["asks"]}

    def _place(self, batches: list[Any], words: set[str]) -> None:
        """Hands out batches, after what is to be told; then the first one alone, so that all act after the same."""
        if words and batches:
            self._put("told", words)
            self._put("chunk", self._placer.place(batches[:1]))
            batches = batches[1:]
        for group in group_batches(batches, self._placer.chunk_capacity):
            self._most = max(self._most, self._placer.chunk_capacity(group[0]))
            self._put("chunk", self._placer.place(group))

    def _read(self) -> None:
        """Reads at least one batch, and more while that takes next to no time."""
        limit = self._most if self._left is None else min(self._most, self._left)
        goes_alone = self._runtime.is_alone and self._most == _ROUND_BATCHES
        deadline = time.monotonic() + (0.0 if goes_alone else _ROUND_SECONDS)
        size = 0
        while len(self._held) < limit and not self._ended and self._error is None:
            self._read_one()
            size += sum(map(nbytes, self._held[-1:]))
            if time.monotonic() >= deadline or size > _ROUND_BYTES:
                return

    def _read_one(self) -> None:
        try:
            batch = next(self._batches)
            self._samples.append(sample_of(batch, self._number + len(self._held)) if self._compares else None)
            self._held.append(batch)
        except StopIteration:
            self._ended = True
        except Exception as error:
            self._error = error

    def _report(self) -> dict[str, Any]:
        describe = (lambda batch: "") if self._runtime.is_alone else signature
        return {
            "batches": _shortened([[describe(b), rows_to_add(b)] for b in self._held]),
            "checksums": [s and s.checksum for s in self._samples] if self._compares else [],
            "asks": sorted(self._asked),
            "ended": self._ended,
            "error": self._error and f"{type(self._error).__name__}: {self._error}",
        }

    def _compare(self, reports: list[dict[str, Any]], common: int) -> None:
        for i in range(common):
            texts = [r["batches"][i] for r in reports]
            if len(set(texts)) > 1 and (found := compare.first_difference(texts, self._runtime.tasks)):
                raise failure.mark_agreed(
                    MismatchError(
                        "Every task must read the same global batches; each then trains its share. Batch "
                        f"{self._number + i}: {found}. {samples.ADVICE}"
                    )
                )
            if samples.differ([r["checksums"][i] if r["checksums"] else None for r in reports]):
                what = f"batch {self._number + i}"
                raise samples.mismatch(what, self._samples[i], self._channel.agree, self._runtime.tasks)

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


def _shortened(values: list[Any]) -> list[Any]:
    """Equal neighbours once, each with their number: most batches look alike."""
    return [[value, len(list(group))] for value, group in itertools.groupby(values)]


def _expanded(report: dict[str, Any]) -> dict[str, Any]:
    """A report with an entry for each batch again."""
    each = [value for value, count in report["batches"] for _ in range(count)]
    return {**report, "batches": [text for text, _ in each], "rows": [rows for _, rows in each]}


def _end(stop: threading.Event, channel: Agreement, thread: threading.Thread) -> None:
    stop.set()
    channel.close()
    thread.join(_CLOSE_SECONDS)
