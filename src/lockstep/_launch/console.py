"""What the user sees: the lines of all tasks, labelled, and the line that worker 0 is still writing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lockstep._launch.ansi import clip, paint
from lockstep._launch.outlet import Outlet
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
