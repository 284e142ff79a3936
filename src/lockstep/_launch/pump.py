"""Carries the output of all tasks to the console and the logs."""

from __future__ import annotations

import os
import selectors
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from lockstep._launch.ansi import plain
from lockstep._launch.console import Console
from lockstep._launch.lines import LineBuffer
from lockstep._launch.log_files import LogFiles
from lockstep._launch.task import Task

_CHUNK = 1 << 16
_TAIL_LINES = 30
_TAIL_WIDTH = 2000
# Gloo greets on the standard output of every task, past all logging. It stays in the logs.
_CHATTER = "[Gloo] Rank "


@dataclass(eq=False)
class _Stream:
    """One output of one task, and its last lines."""

    task: Task
    name: str
    buffer: LineBuffer = field(default_factory=LineBuffer)
    tail: deque[str] = field(default_factory=lambda: deque[str](maxlen=_TAIL_LINES))


class Pump:
    """Reads outputs of tasks as fast as the console takes them, and no faster: nothing piles up in between."""

    def __init__(self, console: Console, logs: LogFiles) -> None:
        self._console = console
        self._logs = logs
        self._selector = selectors.DefaultSelector()
        self._streams: dict[int, _Stream] = {}
        self._errors: dict[Task, _Stream] = {}

    @property
    def is_open(self) -> bool:
        """Whether any output has not ended yet."""
        return bool(self._streams)

    def add(self, task: Task, out: int, err: int) -> None:
        """Carry what comes from the descriptors `out` and `err`, and close them when they end."""
        self._errors[task] = _Stream(task, "stderr")
        self._register(out, _Stream(task, "stdout"))
        self._register(err, self._errors[task])

    def tail(self, task: Task) -> list[str]:
        """Return the last lines that `task` wrote to stderr."""
        return list(self._errors[task].tail)

    def step(self, timeout: float, gone: Collection[Task]) -> None:
        """Carry what is there, or wait for `timeout` seconds.

        An output of a `gone` task ends when nothing is left in it, even if a process that left the group holds it.
        """
        if self._console.stalled:
            self._console.flush(timeout)
            return
        ready = {key.fd for key, _ in self._selector.select(timeout)}
        for descriptor, stream in list(self._streams.items()):
            if descriptor in ready:
                self._read(descriptor, stream)
            elif stream.task in gone:
                self._finish(descriptor, stream)

    def close(self) -> None:
        """Close every output that has not ended."""
        for descriptor, stream in list(self._streams.items()):
            self._finish(descriptor, stream)
        self._selector.close()

    def _register(self, descriptor: int, stream: _Stream) -> None:
        os.set_blocking(descriptor, False)
        self._selector.register(descriptor, selectors.EVENT_READ)
        self._streams[descriptor] = stream

    def _read(self, descriptor: int, stream: _Stream) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except OSError:  # how Linux reports the end of a pseudo-terminal
            data = b""
        if data:
            self._carry(stream, data)
        else:
            self._finish(descriptor, stream)

    def _carry(self, stream: _Stream, data: bytes) -> None:
        problem = self._logs.write(stream.task, data)
        self._show(stream, stream.buffer.feed(data))
        if problem:
            self._console.note(problem)

    def _finish(self, descriptor: int, stream: _Stream) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)
        del self._streams[descriptor]
        self._show(stream, stream.buffer.close())

    def _show(self, stream: _Stream, lines: list[str]) -> None:
        lines = [line for line in lines if not line.startswith(_CHATTER)]
        if stream.name == "stderr":
            stream.tail.extend(plain(line)[:_TAIL_WIDTH] for line in lines[-_TAIL_LINES:])
        if stream.task == Task("worker", 0):
            self._console.unfinished(stream.task, stream.name, stream.buffer.unfinished)
        if lines:
            self._console.lines(stream.task, stream.name, lines)
