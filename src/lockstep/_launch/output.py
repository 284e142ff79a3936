"""Output multiplexer: carries the output of all tasks to the console and the logs."""

from __future__ import annotations

import codecs
import os
import selectors
from collections import deque
from collections.abc import Collection, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import BinaryIO

from lockstep._launch.console import Console, plain
from lockstep._launch.task import Task
from lockstep.errors import ArgumentError

_CHUNK = 1 << 16
# Of stderr, for the report of a failure: a traceback of Keras has some 20 lines.
_TAIL_LINES = 30
_TAIL_WIDTH = 2000
# Gloo greets on the standard output of every task, past all logging. It stays in the logs.
_CHATTER = "[Gloo] Rank "
# Characters of a line, so that memory stays bounded whatever a task prints.
_MAX_LINE = 1 << 16
_MOVES = "\r\b"


class LineBuffer:
    """Splits bytes into lines as a terminal would show them, and knows the line that is not finished yet.

    A line that is rewritten after a carriage return counts in its last state. Bytes that are not UTF-8 are replaced.
    A line longer than 65,536 characters comes in pieces.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def feed(self, data: bytes) -> list[str]:
        """Takes the next bytes and returns the lines that they complete."""
        return self._split(self._decode(data))

    def close(self) -> list[str]:
        """Returns the line that the stream ended in, if any."""
        lines = self._split(self._decode(b"", True))
        last, self._rest = self.unfinished, ""
        return [*lines, last] if last else lines

    @property
    def unfinished(self) -> str:
        """The last state of the line that no newline has ended yet."""
        return _last_state(self._rest)

    def _split(self, text: str) -> list[str]:
        *lines, rest = (self._rest + text).split("\n")
        self._rest = _drop_overwritten(rest)
        if len(self._rest) > _MAX_LINE:
            lines.append(self._rest)
            self._rest = ""
        return [_last_state(line) for line in lines]


def _drop_overwritten(line: str) -> str:
    # A move of the cursor overwrites nothing until text follows, so one at the end is kept.
    text = line.rstrip(_MOVES)
    move = line[len(text) :]
    return text[text.rfind("\r") + 1 :] + ("\r" if "\r" in move else move)


def _last_state(line: str) -> str:
    text = _drop_overwritten(line).rstrip(_MOVES)
    if "\b" not in text:
        return text
    shown: list[str] = []
    for character in text:
        if character != "\b":
            shown.append(character)
        elif shown:
            shown.pop()
    return "".join(shown)


class LogFiles:
    """Raw output of each task in a file; one that cannot be written any more is given up, once, with a message."""

    def __init__(self, files: dict[Task, BinaryIO]) -> None:
        self._files = files

    def write(self, task: Task, data: bytes) -> str | None:
        """Appends `data` to the log of `task`; returns a message if that log ends here."""
        if task not in self._files:
            return None
        try:
            self._files[task].write(data)
        except OSError as error:
            return f"The log of {task} ends here, {self._files.pop(task).name} cannot be written: {error.strerror}."
        return None


@contextmanager
def open_logs(directory: Path | None, tasks: Sequence[Task]) -> Generator[LogFiles]:
    """Opens a log for each task in `directory`, which is made, or none without one; older logs are kept."""
    with ExitStack() as opened:
        files = {} if directory is None else {task: opened.enter_context(_open(directory, task)) for task in tasks}
        yield LogFiles(files)


def _open(directory: Path, task: Task) -> BinaryIO:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{task.stem}.log"
        if path.exists():
            # The log of an earlier run takes the next free number: the highest is the latest.
            numbered = (path.with_name(f"{path.name}.{number}") for number in count(1))
            path.rename(next(older for older in numbered if not older.exists()))
        return path.open("xb", buffering=0)
    except OSError as error:
        raise ArgumentError(
            f"--log-dir must be a directory that can be written to, received {str(directory)!r}: {error.strerror}. "
            "Give another one."
        ) from error


@dataclass(eq=False)
class _Stream:
    """One output of one task, and its last lines."""

    task: Task
    name: str
    # Of the one task whose unfinished line is shown.
    is_first: bool = False
    buffer: LineBuffer = field(default_factory=LineBuffer)
    tail: deque[str] = field(default_factory=lambda: deque[str](maxlen=_TAIL_LINES))


class OutputMultiplexer:
    """Reads the outputs of tasks as fast as the console takes them, and no faster: nothing piles up in between."""

    def __init__(self, console: Console, logs: LogFiles) -> None:
        self._console = console
        self._logs = logs
        self._selector = selectors.DefaultSelector()
        self._streams: dict[int, _Stream] = {}
        self._errors: dict[Task, _Stream] = {}

    @property
    def is_open(self) -> bool:
        """Returns whether any output has not ended yet."""
        return bool(self._streams)

    def add(self, task: Task, out: int, err: int, *, is_first: bool = False) -> None:
        """Carries the output from the descriptors `out` and `err`, and closes them when they end."""
        self._errors[task] = _Stream(task, "stderr", is_first)
        for descriptor, stream in ((out, _Stream(task, "stdout", is_first)), (err, self._errors[task])):
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ)
            self._streams[descriptor] = stream

    def tail(self, task: Task) -> list[str]:
        """Returns the last lines that `task` wrote to stderr."""
        return list(self._errors[task].tail)

    def step(self, timeout: float, gone: Collection[Task]) -> None:
        """Carries the output that is there, or waits for `timeout` seconds.

        An output of a `gone` task ends when nothing is left in it, even if a process that left the group holds it.
        """
        if self._console.stalled:
            # Its reader is slow: the tasks are not read meanwhile, so that they wait as with a pipe of their own.
            self._console.flush(timeout)
            return
        ready = {key.fd for key, _ in self._selector.select(timeout)}
        for descriptor, stream in list(self._streams.items()):
            if descriptor in ready:
                self._read(descriptor, stream)
            elif stream.task in gone:
                self._finish(descriptor, stream)

    def close(self) -> None:
        """Closes every output that has not ended."""
        for descriptor, stream in list(self._streams.items()):
            self._finish(descriptor, stream)
        self._selector.close()

    def _read(self, descriptor: int, stream: _Stream) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except OSError:  # Linux reports the end of a pseudo-terminal so.
            data = b""
        if not data:
            self._finish(descriptor, stream)
            return
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
        if stream.is_first:
            self._console.unfinished(stream.task, stream.name, stream.buffer.unfinished)
        if lines:
            self._console.lines(stream.task, stream.name, lines)
