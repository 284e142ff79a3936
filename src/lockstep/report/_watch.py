"""A run while it goes on, in a terminal: all its tasks, for whom they wait, and the latest values."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.report._charts import number, thin
from lockstep.report._files import Record, RecordReader, read_all, record_paths
from lockstep.report._run import Point, Run, Task, duration, runs_of, size
from lockstep.report._time import waits

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_BLOCKS = "▁▂▃▄▅▆▇█"
_COLUMNS = 40
_NOTES = 6
# Without a terminal a line now and then is enough.
_PLAIN_SECONDS = 10.0
_COLOURS = {"running": "green", "finished": "green", "failed": "red", "silent": "red", "preempted": "yellow"}
# Places of the main thread in which it waits for other tasks.
_WAITS = frozenset({"an agreement with the other tasks", "a wait for the input of the other tasks"})
# Places in which only the task itself can go on.
_BY_ITSELF = frozenset({"a wait for its own input", "callbacks or hooks", "checkpoints", "the program, between steps"})
# A shorter stay in a place is not worth a word.
_STAY_SECONDS = 2.0


def watch(log_dir: str | os.PathLike[str], console: Console, once: bool = False, interval: float = 1.0) -> None:
    """Shows the newest run of a log directory until it has ended.

    Args:
        log_dir: The log directory of the run.
        console: Where to show it: live on a terminal, elsewhere as a line every ten seconds.
        once: Whether to show it as it is now, and return.
        interval: Seconds between two looks.

    Raises:
        DataNotFoundError: If no run has left a record there.
    """
    read_all(log_dir)  # Raises where there is nothing.
    follower = Follower(Path(log_dir))
    run = follower.run()
    if once or not console.is_terminal:
        _watch_plainly(follower, console, once)
        return
    from rich.live import Live

    # Not on the terminal's other screen: what was shown last stays above the prompt when the run has ended.
    with Live(view(run, console.width), console=console, refresh_per_second=4, screen=False) as live:
        while run.status(time.time())[0] == "running":
            time.sleep(interval)
            run = follower.run()
            live.update(view(run, console.width))


def _watch_plainly(follower: Follower, console: Console, once: bool) -> None:
    run = follower.run()
    if once:
        console.print(view(run, console.width))
        return
    while True:
        console.print(line(run), soft_wrap=True)
        if run.status(time.time())[0] != "running":
            return
        time.sleep(_PLAIN_SECONDS)
        run = follower.run()


class Follower:
    """Reads what is new in the records of a directory."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._readers: dict[str, RecordReader] = {}
        self._lines: dict[str, list[Record]] = {}

    def run(self) -> Run:
        """Returns the newest run, with all lines up to now."""
        # Looked up each time: a task that joins later, such as an evaluator, brings a file of its own.
        for path in record_paths(self._log_dir):
            name = path.stem.replace("-", " ")
            if name not in self._readers:
                self._readers[name], self._lines[name] = RecordReader(path), []
            self._lines[name] += self._readers[name].read()
        runs = runs_of(self._lines)
        return runs[-1] if runs else Run({"worker 0": _nobody()}, [])


def _nobody() -> Task:
    from lockstep.report._run import Session

    return Task("worker 0", [Session({"event": "start", "at": time.time()}, last_at=time.time())])


def view(run: Run, width: int) -> RenderableType:
    """Returns what a terminal shows: the state, a table of tasks, curves as small as a line, and the last notes."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    kind, sentence = run.status(time.time())
    head = Text.assemble((sentence, f"bold {_COLOURS[kind]}"), f"   {duration(run.seconds)}")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("task", "step", "steps/s", "memory", "it is in", "last word"):
        table.add_column(name, justify="right" if name in ("step", "steps/s", "memory") else "left", no_wrap=True)
    for task in run.tasks.values():
        table.add_row(*_row(task, run))
    parts: list[RenderableType] = [head, Text(), table]
    curves = _curves(run)
    if curves:
        small = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for name, points in curves.items():
            small.add_row(name, spark([y for _, y in points], min(_COLUMNS, max(8, width - 40))), number(points[-1][1]))
        parts += [Text(), small]
    parts += [Text(text, style="yellow") for text in _notes(run)]
    return Group(*parts)


def line(run: Run) -> str:
    """Returns the state of a run as one line."""
    values = ", ".join(f"{name} {number(value)}" for name, value in list(run.final_values().items())[:4])
    waiting = f"; waits for {', '.join(waited_for(run))}" if waited_for(run) else ""
    step = "before the first step" if run.step is None else f"step {run.step:,}"
    return f"{duration(run.seconds)}: {run.status(time.time())[1]}; {step}; {values}{waiting}"


def waited_for(run: Run) -> list[str]:
    """Returns the tasks that are at something of their own while others wait for them."""
    last = {task.name: task.last.samples[-1] for task in run.tasks.values() if task.last.samples}
    if not any(sample["where"] in _WAITS and sample["seconds"] >= _STAY_SECONDS for sample in last.values()):
        return []
    return [n for n, s in last.items() if s["where"] in _BY_ITSELF and s["seconds"] >= _STAY_SECONDS]


def spark(values: Sequence[float], columns: int) -> str:
    """Returns a curve as text: one block for each of at most so many columns."""
    shown = [y for _, y in thin([(float(i), y) for i, y in enumerate(values)]) if y - y == 0]
    if not shown:
        return ""
    picked = [shown[i * len(shown) // columns] for i in range(columns)] if len(shown) > columns else shown
    low, high = min(picked), max(picked)
    scale = (len(_BLOCKS) - 1) / ((high - low) or 1.0)
    return "".join(_BLOCKS[round((y - low) * scale)] for y in picked)


def _row(task: Task, run: Run) -> list[str]:
    samples = task.last.samples
    if not samples:
        return [task.name, "", "", "", "start", _ago(task.last.last_at)]
    last = samples[-1]
    if not task.last.is_training:
        where = "end: " + (task.last.error["type"] if task.last.error else "finished")
    else:
        where = last["where"]
        if last["seconds"] >= _STAY_SECONDS:
            where += f" for {duration(last['seconds'])}"
        if task.name in waited_for(run):
            where += ": the others wait for it"
    speed = ""
    if len(samples) > 1 and (seconds := last["at"] - samples[-2]["at"]) > 0:
        speed = number((last["steps"] - samples[-2]["steps"]) / seconds)
    memory = size(last["rss"]) if last.get("rss") else ""
    return [task.name, f"{last['step']:,}", speed, memory, where, _ago(task.last.last_at)]


def _curves(run: Run) -> Mapping[str, Sequence[Point]]:
    epochs = {f"{name} by epoch": points for name, points in run.epoch_curves().items()}
    return dict(list({**run.curves(), **epochs}.items())[:8])


def _notes(run: Run) -> list[str]:
    restarts: list[dict[str, Any]] = run.restarts()
    told = [f"{time.strftime('%H:%M:%S', time.localtime(r['at']))} {r['task']}: {r['cause']}" for r in restarts]
    told += [f"{time.strftime('%H:%M:%S', time.localtime(n['at']))} {n['text']}" for n in run.notes()]
    total = [f"The others waited {duration(w.seconds)} for {w.task}, mostly in {w.place}" for w in waits(run)[:3]]
    return [*told[-_NOTES:], *total]


def _ago(at: float) -> str:
    seconds = max(0.0, time.time() - at)
    return "now" if seconds < _STAY_SECONDS else f"{duration(seconds)} ago"
