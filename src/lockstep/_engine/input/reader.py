"""Reads a source ahead of the step, on a thread, and only hands out batches that every worker has.

Each worker reads the same global batches and trains its shard of them. Before a batch is used, all workers say how many
they have ready, whether there are more, what they look like, and a checksum of a few rows of each. So the step never
starts on one worker alone, or on shards of different batches: when data ends early on one worker, cannot be read there,
or differs there, all of them stop at the same batch and know why.
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
from lockstep._engine.input.batch import local_row_count, nbytes, sample_of, signature, with_counts
from lockstep._engine.input.samples import Sample
from lockstep._engine.runtime import failure, fingerprint, progress
from lockstep._engine.runtime.control import ChannelClosed
from lockstep._engine.runtime.runtime import ObjectChannel, Runtime
from lockstep._engine.step.batches import group_batches
from lockstep.errors import InputError, MismatchError

# One agreement covers what was read in this time, up to so many batches (or what the step program takes in one
# dispatch) and bytes: quick sources agree rarely.
_ROUND_SECONDS = 0.005
_ROUND_BATCHES = 8
_ROUND_BYTES = 64 << 20
# Chunks that wait on the devices for the step.
_PREFETCH = 2
# For a source that does not return: so long, or if this process was asked to end, when there may be something to save.
_CLOSE_SECONDS = 10.0
_HASTY_CLOSE_SECONDS = 0.5
# How often a wait for input checks whether it should go on.
_POLL_SECONDS = 0.1


class Placer(Protocol):
    """Places batches on the devices, one by one or several in one chunk."""

    def prepare(self, batch: Any) -> Any:
        """Returns a batch ready to be placed."""
        ...

    def chunk_capacity(self, batch: Any) -> int:
        """Returns how many batches like a prepared one fit into one chunk; 0 if each goes alone."""
        ...

    def place(self, batches: Sequence[Any]) -> Any:
        """Places the prepared batches of a chunk."""
        ...


class Reader:
    """Iterates over the agreed and placed batches of (part of) one pass, in chunks.

    Args:
        batches: This worker's iterator over global batches.
        limit: At most so many, or `None`: until the data ends.
        placer: Places batches on the devices.
        channel: The agreement for this reader alone.
        first: The number of the first batch, for messages.

    Attributes:
        received: Control messages that all workers have received.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        limit: int | None,
        placer: Placer,
        runtime: Runtime,
        channel: ObjectChannel,
        first: int = 0,
    ) -> None:
        self._batches = batches
        self._left = limit
        self._placer = placer
        self._round_batches = _ROUND_BATCHES
        self._runtime = runtime
        self._channel = channel
        self._number = first
        # Read here and not yet handed out, and what follows it: the end, or an error.
        self._held: list[Any] = []
        self._compares = samples.are_compared(runtime)
        self._samples: list[Sample | None] = []
        self._ended = False
        self._error: Exception | None = None
        # Whether it waits for the other workers, and not for its own data.
        self._is_agreeing = False
        # Control messages of this worker that not all have received.
        self._outbox: set[str] = set()
        self.received: set[str] = set()
        self._ready: queue.Queue[tuple[str, Any]] = queue.Queue(_PREFETCH)
        runtime.preemption.progress.buffered = self._ready.qsize
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lockstep-reader", daemon=True)
        self._thread.start()
        # For iterators that a program leaves before their end, and never closes.
        self._finalizer = weakref.finalize(self, _end, self._stop, channel, self._thread)

    # ---- On the main thread ----

    def __iter__(self) -> Iterator[Any]:
        while True:
            kind, value = self._next()
            if kind in ("chunk", "end"):  # All workers get these alike; an error may be of this one alone.
                self._runtime.preemption.sync_point()
            if kind == "chunk":
                yield value
            elif kind == "messages":
                self.received.update(value)
            elif kind == "end":
                return
            else:
                raise value

    def _next(self) -> tuple[str, Any]:
        """Waits for what comes next, or for the end that all workers agree on."""
        preemption = self._runtime.preemption
        with contextlib.suppress(queue.Empty):
            return self._ready.get_nowait()

        def waiting_for() -> str:
            return progress.AWAITING if self._is_agreeing else progress.READING

        before = preemption.progress.at(waiting_for())
        try:
            while True:
                with contextlib.suppress(queue.Empty):
                    return self._ready.get(timeout=_POLL_SECONDS)
                preemption.check()
                preemption.progress.still_at(waiting_for())
        finally:
            preemption.progress.at(before)

    def broadcast(self, message: str) -> None:
        """Has all workers find `message` in `received`, after the same one of the next batches."""
        self._outbox.add(message)

    def close(self) -> None:
        """Stops reading. All workers close a reader after the same batch, but some may be ahead in reading."""
        self._finalizer.detach()
        if not self._thread.is_alive():
            return  # Maybe the interpreter is ending, and what follows has gone.
        self._stop.set()
        # Wakes the thread where it waits for other workers, which may have closed theirs already.
        self._channel.close()
        is_asked = self._runtime.preemption.is_asked
        deadline = time.monotonic() + (_HASTY_CLOSE_SECONDS if is_asked else _CLOSE_SECONDS)
        while self._thread.is_alive() and time.monotonic() < deadline:
            # Frees a thread that waits with a full queue.
            with contextlib.suppress(queue.Empty):
                self._ready.get_nowait()
            self._thread.join(0.01)

    # ---- On the reader's thread ----

    def _run(self) -> None:
        try:
            while not self._stop.is_set() and self._left != 0 and self._read_round():
                pass
            self._put("end", None)
        except ChannelClosed:
            return
        except BaseException as error:  # Raised where the batches are used.
            self._put("error", error)

    def _read_round(self) -> bool:
        """Hands out the next batches that all workers have; returns whether there may be more."""
        self._read()
        if self._stop.is_set():
            return False
        self._is_agreeing = True
        reports = [_expand(r) for r in self._channel.all_gather_object("the next batch of the data", self._report())]
        self._is_agreeing = False
        common = min(len(r["batches"]) for r in reports)
        self._compare(reports, common)
        batches = [self._prepare(i, reports) for i in range(common)]
        end = next((i for i, batch in enumerate(batches) if batch is None), common)
        messages: set[str] = set()
        if common:  # The next batches carry messages to all.
            self._outbox.difference_update(reports[self._runtime.process]["asks"])
            messages = {message for r in reports for message in r["asks"]}
        self._place(batches[:end], messages)
        if end < common:  # Ragged shards end when no worker has any rows left.
            return False
        del self._held[:common], self._samples[:common]
        self._number += common
        self._left = None if self._left is None else self._left - common
        return self._left == 0 or self._may_go_on(reports, common)

    def _read(self) -> None:
        """Reads at least one batch, and more while that takes next to no time."""
        limit = self._round_batches if self._left is None else min(self._round_batches, self._left)
        # Nobody to agree with, and each batch is its own dispatch: the step should not wait for a second batch.
        goes_alone = self._runtime.is_alone and self._round_batches == _ROUND_BATCHES
        deadline = time.monotonic() + (0.0 if goes_alone else _ROUND_SECONDS)
        size = 0
        while len(self._held) < limit and not self._ended and self._error is None:
            try:
                batch = next(self._batches)
                self._samples.append(sample_of(batch, self._number + len(self._held)) if self._compares else None)
                self._held.append(batch)
            except StopIteration:
                self._ended = True
            except Exception as error:
                # Reported after the batches before it, so that all workers stop at the same one.
                self._error = error
            size += sum(map(nbytes, self._held[-1:]))
            if time.monotonic() >= deadline or size > _ROUND_BYTES:
                return

    def _report(self) -> dict[str, Any]:
        # A description takes longer than reading a small batch, and one worker has nobody to compare it with.
        describe = (lambda batch: "") if self._runtime.is_alone else signature
        each = [[describe(b), local_row_count(b)] for b in self._held]
        return {
            # Equal neighbours once, each with their number: most batches look alike.
            "batches": [[value, len(list(group))] for value, group in itertools.groupby(each)],
            "checksums": [s and s.checksum for s in self._samples] if self._compares else [],
            "asks": sorted(self._outbox),
            "ended": self._ended,
            "error": self._error and f"{type(self._error).__name__}: {self._error}",
        }

    def _compare(self, reports: list[dict[str, Any]], common: int) -> None:
        if self._runtime.is_alone:
            return
        for i in range(common):
            texts = [r["batches"][i] for r in reports]
            if len(set(texts)) > 1 and (difference := fingerprint.first_difference(texts, self._runtime.tasks)):
                raise failure.mark_agreed(
                    MismatchError(
                        "Every task must read the same global batches; each then trains its share. Batch "
                        f"{self._number + i}: {difference}. {samples.ADVICE}"
                    )
                )
            if samples.differ([r["checksums"][i] if r["checksums"] else None for r in reports]):
                what = f"batch {self._number + i}"
                raise samples.mismatch(what, self._samples[i], self._channel.all_gather_object, self._runtime.tasks)

    def _prepare(self, number: int, reports: list[dict[str, Any]]) -> Any:
        """Returns a batch ready to be placed; `None` for a ragged shard to which no worker adds a row."""
        batch, counts = self._held[number], [r["rows"][number] for r in reports]
        if None not in counts:
            if not any(counts):
                return None
            batch = with_counts(batch, counts)
        return self._placer.prepare(batch)

    def _place(self, batches: list[Any], messages: set[str]) -> None:
        """Hands out batches; after messages the first one alone, so that all workers act after the same step."""
        if messages and batches:
            self._put("messages", messages)
            self._put("chunk", self._placer.place(batches[:1]))
            batches = batches[1:]
        for group in group_batches(batches, self._placer.chunk_capacity):
            self._round_batches = max(self._round_batches, self._placer.chunk_capacity(group[0]))
            self._put("chunk", self._placer.place(group))

    def _may_go_on(self, reports: list[dict[str, Any]], common: int) -> bool:
        """Returns whether no worker has come to an end, or an error, after the common batches."""
        tasks = self._runtime.tasks
        stopped = [i for i, r in enumerate(reports) if len(r["batches"]) == common and (r["ended"] or r["error"])]
        for i in stopped:
            if message := reports[i]["error"]:
                text = f"All tasks stop at batch {self._number}: it could not be read on {tasks[i]}: {message}"
                # Where it was raised, the user's own error says more.
                own = self._error if i == self._runtime.process else None
                raise failure.mark_agreed(InputError(text) if own is None else own)
        ahead = [i for i, r in enumerate(reports) if len(r["batches"]) > common]
        if len(stopped) + len(ahead) < len(reports):
            return True  # The others have to look first whether they end here as well.
        if stopped and ahead and self._runtime.is_chief:
            warnings.warn(
                "Every task should have the same number of batches. The data of "
                f"{', '.join(tasks[i] for i in stopped)} ended after {self._number} batches, so all tasks end there.",
                stacklevel=2,
            )
        return not stopped

    def _put(self, kind: str, value: Any) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(queue.Full):
                self._ready.put((kind, value), timeout=0.1)
                return


def _expand(report: dict[str, Any]) -> dict[str, Any]:
    """Returns a report with an entry for each batch again."""
    each = [value for value, count in report["batches"] for _ in range(count)]
    return {**report, "batches": [text for text, _ in each], "rows": [rows for _, rows in each]}


def _end(stop: threading.Event, channel: ObjectChannel, thread: threading.Thread) -> None:
    stop.set()
    channel.close()
    thread.join(_CLOSE_SECONDS)
