"""The page of a run: one HTML file that needs no network, no fonts and no library."""

from __future__ import annotations

import os
import shlex
import string
import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from lockstep.errors import DataNotFoundError
from lockstep.report._charts import COLOURS, line_chart, number, share_bar
from lockstep.report._files import PAGE, Record, read_all
from lockstep.report._run import Point, Run, duration, runs_of, size
from lockstep.report._time import KINDS, LABELS, breakdown, waits

_TEMPLATE = Path(__file__).with_name("page.html")
# Tasks with a bar of their own: the first ones by role and number, the chief before all. A page of a thousand bars
# would not be read.
_MOST_BARS = 9
_MOST_ROWS = 50
# What one number may be called so that it shares a chart with its validation.
_VALIDATION = "val_"


def write_report(log_dir: str | os.PathLike[str]) -> Path:
    """Writes `report.html` of the newest run that has logged to a directory, and returns its path.

    Args:
        log_dir: The log directory of the run, which holds the records of its tasks in `report/`.

    Raises:
        DataNotFoundError: If no run has left a record there.
    """
    run = newest_run(log_dir)
    path = Path(log_dir) / PAGE
    # Renamed into place: a browser that reloads meanwhile gets the old page or the new one.
    # By process: `lockstep report` may write the page while a run does.
    partial = path.with_name(f".{PAGE}.{os.getpid()}")
    partial.write_text(page(run, os.fspath(log_dir)), encoding="utf-8")
    os.replace(partial, path)
    return path


def newest_run(log_dir: str | os.PathLike[str]) -> Run:
    """Returns the newest run with a record in a log directory.

    Raises:
        DataNotFoundError: If there is none.
    """
    runs = runs_of(read_all(log_dir))
    if not runs:
        raise DataNotFoundError(
            f"A report is made of the records of tasks that have trained. Received: {os.fspath(log_dir)!r}, where the "
            "launcher has left one and no task has. Train with a strategy's model, an Estimator or a Program."
        )
    return runs[-1]


def page(run: Run, name: str) -> str:
    """Returns the page of a run as HTML."""
    title = f"{Path(name).absolute().name}: run of {_clock(run.began)}"
    parts = [*_head(run, name), *_curves(run), *_where_time_went(run), *_memory(run), *_restarts(run), *_notes(run)]
    body = "\n".join([*parts, *_repeat(run), *_environment(run)])
    # Not str.format: the page is full of braces of CSS and JavaScript.
    return string.Template(template()).substitute(title=escape(title), colours=style(), body=body)


def template() -> str:
    """Returns the frame of a page, with places for `title`, `colours` and `body`."""
    return _TEMPLATE.read_text(encoding="utf-8")


def style() -> str:
    """Returns the rules by which lines, bars and keys get their colours."""
    return "\n".join(
        f".c{i} {{ --own: var(--c{i}) }} polyline.c{i} {{ stroke: var(--c{i}) }} "
        f"rect.c{i}, circle.c{i} {{ fill: var(--c{i}) }}"
        for i in range(COLOURS + 1)
    )


def _head(run: Run, name: str) -> Iterable[str]:
    kind, sentence = run.status(time.time())
    yield f"<h1>{escape(name)}</h1>"
    yield f'<p class="status {kind}">{escape(sentence)}</p>'
    more = f"; {run.earlier} earlier runs are in the records" if run.earlier else ""
    yield f'<p class="faint">{_clock(run.began)} to {_clock(run.ended)}{more}</p>'
    speed = run.mean_speed()
    peak = [max(y for _, y in points) for points in run.memory("rss").values()]
    tiles = {
        "duration": duration(run.seconds),
        "steps": "" if run.step is None else f"{run.step:,}",
        "steps a second": "" if speed is None else number(speed),
        "tasks": str(len(run.tasks)),
        "restarts": str(len(run.restarts())),
        "memory of a task, at most": size(max(peak)) if peak else "",
    }
    tiles |= {f"last {name}": number(value) for name, value in list(run.final_values().items())[:4]}
    yield '<div class="tiles">'
    yield "".join(
        f"<div><b>{escape(value)}</b><span>{escape(key)}</span></div>" for key, value in tiles.items() if value
    )
    yield "</div>"


def _curves(run: Run) -> Iterable[str]:
    steps, epochs = run.curves(), run.epoch_curves()
    charts: list[str] = []
    # Of a session's first sample: a restart goes on at its checkpoint, which lies before the step of the failure.
    begins = [
        s.samples[0]["step"] for s in run.chief.sessions[1:] if s.samples and s.samples[0].get("step") is not None
    ]
    for name, curves in _with_validation(epochs).items():
        if max(map(len, curves.values())) > 1:
            charts.append(line_chart(f"{name}, by epoch", curves, "epoch"))
    for name, points in steps.items():
        charts.append(line_chart(name, {name: points}, "step", begins))
    if not any(charts):
        yield "<p>No call that trains has told a value of a step yet.</p>"
        return
    yield '<h2>Loss and metrics</h2><div class="charts">'
    yield "".join(charts)
    yield "</div>"


def _with_validation(curves: Mapping[str, list[Point]]) -> dict[str, dict[str, list[Point]]]:
    """Returns curves by chart: a metric beside its validation."""
    charts: dict[str, dict[str, list[Point]]] = {}
    for name, points in curves.items():
        charts.setdefault(name.removeprefix(_VALIDATION), {})[name] = points
    return charts


def _where_time_went(run: Run) -> Iterable[str]:
    yield "<h2>Speed, and where the time went</h2>"
    speed = run.speed()
    marks = [session.began - run.began for session in run.chief.sessions[1:]]
    if len(speed) > 1:
        chart = line_chart("Steps a second", {run.chief.name: speed}, "seconds", marks)
        yield f'<div class="charts">{chart}</div><p></p>'
    shares = {name: breakdown(task) for name, task in run.tasks.items()}
    for name in list(shares)[:_MOST_BARS]:
        if shares[name]:
            yield share_bar(name, shares[name], LABELS, list(KINDS))
    if len(shares) > _MOST_BARS:
        yield f"<p class='faint'>The first {_MOST_BARS} of {len(shares)} tasks.</p>"
    found = waits(run)
    if len(run.tasks) > 1:
        yield "<h3>Waiting, and for whom</h3>"
    if found:
        rows = [[w.task, f"{w.seconds:.1f} s", f"{100 * w.seconds / (run.seconds or 1):.1f} %", w.place] for w in found]
        yield table(["the others waited for", "in all", "of the run", "while it was mostly in"], rows[:_MOST_ROWS])
    elif len(run.tasks) > 1:
        yield "<p>No task held the others up by more than a tenth of a second at a time.</p>"


def _memory(run: Run) -> Iterable[str]:
    charts = [
        line_chart(
            title, {name: [(x, y / 1e9) for x, y in points] for name, points in found.items()}, "seconds", (), "GB"
        )
        for key, title in (("rss", "Memory of the processes"), ("device", "Memory of the first device"))
        if (found := dict(list(run.memory(key).items())[:COLOURS]))
    ]
    if any(charts):
        yield f'<h2>Memory</h2><div class="charts">{"".join(charts)}</div>'


def _restarts(run: Run) -> Iterable[str]:
    yield "<h2>Restarts</h2>"
    restarts = run.restarts()
    if not restarts:
        yield "<p>None.</p>"
        return
    rows = [
        [
            _clock(line["at"]) if "failed_at" not in line else _clock(line["failed_at"]),
            line["task"],
            line["cause"],
            str(line.get("last_step", "")),
            duration(line["seconds"]) if "seconds" in line else "",
        ]
        for line in restarts
    ]
    yield table(["when", "first to fail", "cause", "at step", "until it trained again"], rows[-_MOST_ROWS:])


def _notes(run: Run) -> Iterable[str]:
    notes = run.notes()
    if notes:
        yield "<h2>Stragglers and waits, as they were noticed</h2>"
        yield table(["when", ""], [[_clock(note["at"]), note["text"]] for note in notes[-_MOST_ROWS:]])


def _repeat(run: Run) -> Iterable[str]:
    yield "<h2>To repeat it</h2>"
    yield f"<pre>{escape(command(run))}</pre>"


def command(run: Run) -> str:
    """Returns the lines for a shell that start the run again: the directory, the settings, the command."""
    start = run.chief.sessions[0].start
    launch = next((line for line in run.launcher if line["event"] == "launch"), None)
    # The launcher's command, if there was one: that of a task would start one worker, which waits for the others.
    source = launch or start
    settings: Mapping[str, str] = source.get("environment", {})
    words = [*(f"{name}={shlex.quote(value)}" for name, value in settings.items()), shlex.join(source["command"])]
    return f"cd {shlex.quote(source['cwd'])}\n{' '.join(words)}"


def _environment(run: Run) -> Iterable[str]:
    start: Record = run.chief.last.start
    yield "<h2>Environment</h2>"
    rows: list[list[str]] = [["program", shlex.join(start["command"])]]
    trains = [train for session in run.chief.sessions for train in session.trains]
    if trains:
        about: dict[str, Any] = {"call": trains[-1]["call"], **trains[-1]["about"]}
        rows += [[key, str(value)] for key, value in about.items()]
    rows += [[name, version] for name, version in start.get("versions", {}).items()]
    rows += [[key, str(start[key])] for key in ("platform", "devices", "cpus") if key in start]
    if "memory" in start:
        rows.append(["memory", size(start["memory"])])
    yield table(["", run.chief.name], rows)
    yield "<h3>Tasks</h3>"
    tasks = [
        [t.name, str(t.last.start.get("host", "")), str(t.last.start.get("pid", "")), str(len(t.sessions))]
        for t in run.tasks.values()
    ]
    yield table(["", "host", "process", "starts"], tasks[:_MOST_ROWS])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table as HTML; cells are text."""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table></div>'


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
