"""What the user sees: the lines of all tasks, labelled, and the line that worker 0 is still writing."""

from __future__ import annotations

import os
import re
import select
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import accumulate

from lockstep._launch.task import Task

_COLOURS = (36, 32, 35, 34, 96, 92, 95, 94)
_EVALUATOR_COLOUR = 33
_FAILURE_COLOUR = 31


class Console:
    """The launcher's standard output and error. Whole lines only, apart from one live line on a terminal."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._outlets = {"stdout": Outlet(1, environ), "stderr": Outlet(2, environ)}
        self._unfinished: dict[str, str] = {}
        self._live = ""

    @property
    def is_terminal(self) -> bool:
        """Whether standard output is a terminal."""
        return self._outlets["stdout"].is_terminal

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        return self._outlets["stdout"].columns

    @property
    def stalled(self) -> bool:
        """Whether written text waits for a reader; no more should be written until it does not."""
        return any(outlet.stalled for outlet in self._outlets.values())

    def flush(self, timeout: float) -> None:
        """Write what is pending, waiting at most `timeout` seconds for each stalled reader."""
        for outlet in self._outlets.values():
            outlet.flush(timeout)

    def lines(self, task: Task, stream: str, lines: Sequence[str]) -> None:
        """Show complete lines of a task's `stream`, "stdout" or "stderr"."""
        outlet = self._outlets[stream]
        label = _label(task, outlet)
        self._print(outlet, "".join(f"{label} {outlet.render(line)}\n" if line else f"{label}\n" for line in lines))

    def unfinished(self, task: Task, stream: str, text: str) -> None:
        """Show, on a terminal, the line that `stream` of the task has not ended yet; empty for none."""
        if self.is_terminal and self._unfinished.get(stream, "") != text:
            self._unfinished.pop(stream, None)
            self._unfinished.update({stream: text} if text else {})
            self._show_live(task)

    def note(self, text: str) -> None:
        """Show a line of the launcher itself."""
        self._print(self._outlets["stderr"], f"[lockstep] {text}\n")

    def failure(self, title: str, text: str) -> None:
        """Show the closing block of a run that failed, below a title that stands out."""
        outlet = self._outlets["stderr"]
        heading = paint(title, _FAILURE_COLOUR) if outlet.has_colour else title
        lines = (outlet.render(line) for line in text.splitlines())
        self._print(outlet, "\n".join(["", heading, *lines, ""]))

    def _show_live(self, task: Task) -> None:
        outlet = self._outlets["stdout"]
        text = next(reversed(self._unfinished.values()), "")
        live = clip(f"{_label(task, outlet)} {outlet.render(text)}", outlet.columns - 1) if text else ""
        outlet.write(self._erasure() + live)
        self._live = live

    def _print(self, outlet: Outlet, text: str) -> None:
        """Write `text` above the live line."""
        if not (self._live and outlet.is_terminal):
            outlet.write(text)
            return
        terminal = self._outlets["stdout"]
        terminal.write(self._erasure())
        outlet.write(text)
        terminal.write(self._live)

    def _erasure(self) -> str:
        return f"\r{' ' * (self.columns - 1)}\r" if self._live else ""


def _label(task: Task, outlet: Outlet) -> str:
    label = f"[{task}]"
    return paint(label, _colour(task)) if outlet.has_colour else label


def _colour(task: Task) -> int:
    return _EVALUATOR_COLOUR if task.is_evaluator else _COLOURS[task.index % len(_COLOURS)]


# MERGED ansi
# """Colours and other escape sequences in the text of tasks."""


_RESET = "\x1b[0m"
_COLOUR = r"\x1b\[[0-9;:]*m"
_OTHER = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?|[\x00-\x08\x0a-\x1f\x7f-\x9f]"
_CONTROL = re.compile(f"({_COLOUR})|{_OTHER}")
_SPLIT = re.compile(f"({_COLOUR})")


def paint(text: str, colour: int) -> str:
    """Return `text` in the colour of that SGR number."""
    return f"\x1b[{colour}m{text}{_RESET}"


def plain(text: str) -> str:
    """Return `text` without escape sequences and control characters; tabs stay."""
    return _CONTROL.sub("", text)


def coloured(text: str) -> str:
    """Return `text` with its colours, but without sequences that move the cursor or change the terminal."""
    kept = _CONTROL.sub(_colour_of, text)
    return kept + _RESET if "\x1b" in kept else kept


def clip(text: str, width: int) -> str:
    """Return the beginning of `text` that fits in `width` cells of a terminal, with all its colours."""
    shown: list[str] = []
    for piece in _SPLIT.split(text.expandtabs()):
        kept = piece if piece.startswith("\x1b") else _fitting(piece, width)
        width -= 0 if piece.startswith("\x1b") else _cells(kept)
        shown.append(kept)
    return "".join(shown)


def _colour_of(match: re.Match[str]) -> str:
    return match[1] or ""


def _fitting(text: str, width: int) -> str:
    if text.isascii():
        return text[:width]
    ends = accumulate(map(_cell, text))
    return text[: sum(end <= width for end in ends)]


def _cells(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_cell, text))


def _cell(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


# MERGED outlet
# """One of the launcher's own outputs, written without ever blocking on a reader that does not read."""


_DEFAULT_COLUMNS = 80


class Outlet:
    """A file descriptor to write lines to.

    What the reader does not take yet is kept, and `stalled` says so: the caller stops producing until it is taken.
    A reader that is gone is no error, its text is dropped: training does not end because nobody watches it.
    """

    def __init__(self, descriptor: int, environ: Mapping[str, str]) -> None:
        self._descriptor = descriptor
        self._pending = bytearray()
        self._closed = False
        self.is_terminal = os.isatty(descriptor)
        self.has_colour = self.is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

    @property
    def stalled(self) -> bool:
        """Whether text waits for the reader."""
        return bool(self._pending)

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        try:
            return os.get_terminal_size(self._descriptor).columns or _DEFAULT_COLUMNS
        except OSError:
            return _DEFAULT_COLUMNS

    def render(self, text: str) -> str:
        """Return the text of a task as it may be shown here: with its colours or plain."""
        return coloured(text) if self.has_colour else plain(text)

    def write(self, text: str) -> None:
        """Write `text`, or as much of it as the reader takes now."""
        if not self._closed:
            self._pending += text.encode("utf-8", "replace")
            self.flush(0)

    def flush(self, timeout: float) -> None:
        """Write what is pending, waiting at most `timeout` seconds for the reader to take some."""
        try:
            while self._pending and self._is_ready(timeout):
                # A descriptor that is ready takes this much without blocking.
                written = os.write(self._descriptor, self._pending[: select.PIPE_BUF])
                del self._pending[:written]
        except OSError:
            self._closed = True
            self._pending.clear()

    def _is_ready(self, timeout: float) -> bool:
        # Not `select`, which knows no descriptors beyond 1023.
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(timeout * 1000))
