"""Console: the labelled lines of all tasks, and on a terminal the line that the first of them is still writing.

Colours and widths are `rich`'s. Its own live display is not used: it writes to a blocking stream and redraws from a
thread, and the launcher must never wait for a reader that does not read.
"""

from __future__ import annotations

import functools
import io
import os
import re
import select
from collections.abc import Mapping, Sequence

from lockstep._launch.task import Task

_COLOURS = ("cyan", "green", "magenta", "blue", "bright_cyan", "bright_green", "bright_magenta", "bright_blue")
_EVALUATOR_COLOUR = "yellow"
_FAILURE_COLOUR = "red"
_RESET = "\x1b[0m"
_COLOUR = r"\x1b\[[0-9;:]*m"
# Titles, links, moves of the cursor, modes of the terminal, and control characters but the tab. rich leaves some of
# them in the text, such as a title that ends with BEL.
_OTHER = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?|[\x00-\x08\x0a-\x1f\x7f-\x9f]"
_CONTROL = re.compile(f"({_COLOUR})|{_OTHER}")
_DEFAULT_COLUMNS = 80


@functools.cache
def paint(text: str, colour: str) -> str:
    """Returns `text` in a colour."""
    # Imported here, as below: it takes a tenth of a second, and only terminals have colours.
    from rich.style import Style

    return Style(color=colour).render(text)


def plain(text: str) -> str:
    """Returns `text` without escape sequences and control characters; tabs stay."""
    return _CONTROL.sub("", text)


def keep_colours(text: str) -> str:
    """Returns `text` with its colours, but without sequences that move the cursor or change the terminal."""
    kept = _CONTROL.sub(lambda match: match[1] or "", text)
    return kept + _RESET if "\x1b" in kept else kept


def clip(text: str, width: int) -> str:
    """Returns the beginning of `text` that fits in `width` cells of a terminal, with its colours."""
    from rich.cells import chop_cells
    from rich.console import Console as RichConsole
    from rich.text import Text

    whole = Text.from_ansi(text.expandtabs())
    fitting = chop_cells(whole.plain, width)[0] if width > 0 and whole.plain else ""
    rich = RichConsole(file=io.StringIO(), force_terminal=True, color_system="truecolor", no_color=False)
    with rich.capture() as capture:
        rich.print(whole[: len(fitting)], end="", soft_wrap=True, highlight=False)
    return capture.get()


class Outlet:
    """A file descriptor to write lines to, without ever blocking on a reader that does not read.

    Text that the reader does not take yet is kept, and `stalled` says so: the caller stops producing until it is taken.
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
        """Returns whether text waits for the reader."""
        return bool(self._pending)

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        try:
            return os.get_terminal_size(self._descriptor).columns or _DEFAULT_COLUMNS
        except OSError:
            return _DEFAULT_COLUMNS

    def render(self, text: str) -> str:
        """Returns the text of a task as it may be shown here: with its colours or plain."""
        return keep_colours(text) if self.has_colour else plain(text)

    def write(self, text: str) -> None:
        """Writes `text`, or as much of it as the reader takes now."""
        if not self._closed:
            self._pending += text.encode("utf-8", "replace")
            self.flush(0)

    def flush(self, timeout: float) -> None:
        """Writes pending text, waiting at most `timeout` seconds for the reader to take some."""
        # Not `select`, which knows no descriptors beyond 1023.
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        try:
            while self._pending and poll.poll(timeout * 1000):
                # A descriptor that is ready takes this much without blocking.
                written = os.write(self._descriptor, self._pending[: select.PIPE_BUF])
                del self._pending[:written]
        except OSError:
            self._closed = True
            self._pending.clear()


class Console:
    """The launcher's standard output and error. Whole lines only, apart from one live line on a terminal."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._outlets = {"stdout": Outlet(1, environ), "stderr": Outlet(2, environ)}
        self._unfinished: dict[str, str] = {}
        self._live = ""

    @property
    def is_terminal(self) -> bool:
        """Returns whether standard output is a terminal."""
        return self._outlets["stdout"].is_terminal

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        return self._outlets["stdout"].columns

    @property
    def stalled(self) -> bool:
        """Returns whether written text waits for a reader; no more should be written until it does not."""
        return any(outlet.stalled for outlet in self._outlets.values())

    def flush(self, timeout: float) -> None:
        """Writes pending text, waiting at most `timeout` seconds for each stalled reader."""
        for outlet in self._outlets.values():
            outlet.flush(timeout)

    def lines(self, task: Task, stream: str, lines: Sequence[str]) -> None:
        """Shows complete lines of a task's `stream`, "stdout" or "stderr"."""
        outlet = self._outlets[stream]
        label = _label(task, outlet)
        self._print(outlet, "".join(f"{label} {outlet.render(line)}\n" if line else f"{label}\n" for line in lines))

    def unfinished(self, task: Task, stream: str, text: str) -> None:
        """Shows, on a terminal, the line that `stream` of the task has not ended yet; empty for none."""
        if not self.is_terminal or self._unfinished.get(stream, "") == text:
            return
        # Removed first, so that the stream that was written to last comes last.
        self._unfinished.pop(stream, None)
        self._unfinished.update({stream: text} if text else {})
        outlet = self._outlets["stdout"]
        last = next(reversed(self._unfinished.values()), "")
        live = clip(f"{_label(task, outlet)} {outlet.render(last)}", outlet.columns - 1) if last else ""
        outlet.write(self._erasure() + live)
        self._live = live

    def note(self, text: str) -> None:
        """Shows a line of the launcher itself."""
        self._print(self._outlets["stderr"], f"[lockstep] {text}\n")

    def failure(self, title: str, text: str) -> None:
        """Shows the closing block of a run that failed, below a title that stands out."""
        outlet = self._outlets["stderr"]
        heading = paint(title, _FAILURE_COLOUR) if outlet.has_colour else title
        lines = (outlet.render(line) for line in text.splitlines())
        self._print(outlet, "\n".join(["", heading, *lines, ""]))

    def _print(self, outlet: Outlet, text: str) -> None:
        """Writes `text` above the live line."""
        if not (self._live and outlet.is_terminal):
            outlet.write(text)
            return
        terminal = self._outlets["stdout"]
        terminal.write(self._erasure())
        outlet.write(text)
        terminal.write(self._live)

    def _erasure(self) -> str:
        # Spaces, not an escape sequence: a dumb terminal may have none.
        return f"\r{' ' * (self.columns - 1)}\r" if self._live else ""


def _label(task: Task, outlet: Outlet) -> str:
    colour = _EVALUATOR_COLOUR if task.is_evaluator else _COLOURS[task.index % len(_COLOURS)]
    return paint(f"[{task}]", colour) if outlet.has_colour else f"[{task}]"
