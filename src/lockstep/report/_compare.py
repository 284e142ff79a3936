"""Runs beside each other: what came out, how fast, where the time went, and in which settings they differ."""

from __future__ import annotations

import os
import shlex
import string
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.report._charts import line_chart, number
from lockstep.report._page import newest_run, style, table, template
from lockstep.report._run import Point, Run, duration, size
from lockstep.report._time import KINDS, LABELS, breakdown

if TYPE_CHECKING:
    from rich.console import Console

Row = tuple[str, list[str]]


def compare(
    log_dirs: Sequence[str | os.PathLike[str]], console: Console, output: str | os.PathLike[str] | None = None
) -> None:
    """Shows the newest runs of several log directories beside each other.

    Args:
        log_dirs: Their log directories, at least two.
        console: Where to show the table.
        output: A file for a page with their curves in the same charts, too.

    Raises:
        DataNotFoundError: If no run has left a record in one of them.
    """
    names = [os.fspath(directory) for directory in log_dirs]
    runs = [newest_run(directory) for directory in log_dirs]
    # rich is for terminals: tasks and launchers, which write pages, need not import it.
    from rich.table import Table

    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    shown.add_column("")
    for name in names:
        shown.add_column(name, overflow="fold")
    for name, cells in rows(runs):
        # What differs stands out; of measured figures nearly all do.
        shown.add_row(name, *cells)
    console.print(shown)
    if output is not None:
        Path(output).write_text(page(names, runs), encoding="utf-8")
        console.print(f"Curves: {output}")


def rows(runs: Sequence[Run]) -> list[Row]:
    """Returns the lines of the table: figures of all, and settings that are not the same everywhere."""
    now = time.time()
    found: list[Row] = [
        ("state", [run.status(now)[0] for run in runs]),
        ("duration", [duration(run.seconds) for run in runs]),
        ("steps", ["" if run.step is None else f"{run.step:,}" for run in runs]),
        ("steps a second", [_text(run.mean_speed()) for run in runs]),
        ("tasks", [str(len(run.tasks)) for run in runs]),
        ("restarts", [str(len(run.restarts())) for run in runs]),
        ("memory of a task, at most", [_peak(run) for run in runs]),
    ]
    finals = [run.final_values() for run in runs]
    for name in dict.fromkeys(name for final in finals for name in final):
        found.append((f"last {name}", [_text(final.get(name)) for final in finals]))
    shares = [breakdown(run.chief) for run in runs]
    for kind in KINDS:
        if any(kind in share for share in shares):
            found.append((LABELS[kind], [_share(share, kind) for share in shares]))
    return [*found, *_differences(runs)]


def page(names: Sequence[str], runs: Sequence[Run]) -> str:
    """Returns a page with the curves of all runs in the same charts, as HTML."""
    charts: list[str] = []
    for x_name, each in (("epoch", [run.epoch_curves() for run in runs]), ("step", [run.curves() for run in runs])):
        for metric in dict.fromkeys(name for curves in each for name in curves):
            together: Mapping[str, list[Point]] = {
                name: curves[metric] for name, curves in zip(names, each, strict=True) if metric in curves
            }
            charts.append(line_chart(f"{metric}, by {x_name}", together, x_name))
    cells = [[name, *values] for name, values in rows(runs)]
    body = (
        f"<h1>{escape(' and '.join(names))}</h1><h2>Loss and metrics</h2>"
        f'<div class="charts">{"".join(charts)}</div><h2>Figures</h2>{table(["", *names], cells)}'
    )
    return string.Template(template()).substitute(title=escape(f"{len(runs)} runs"), colours=style(), body=body)


def _differences(runs: Sequence[Run]) -> list[Row]:
    """Returns the settings in which runs differ: commands, versions, environments, arguments of the call."""
    settings = [_settings(run) for run in runs]
    names = dict.fromkeys(name for each in settings for name in each)
    found = [(name, [each.get(name, "") for each in settings]) for name in names]
    # What is the same everywhere explains no difference between the runs.
    return [(name, values) for name, values in found if len(set(values)) > 1]


def _settings(run: Run) -> dict[str, str]:
    start = run.chief.last.start
    trains = run.chief.last.trains
    about = trains[-1]["about"] if trains else {}
    return {
        "command": shlex.join(start.get("command", [])),
        **{key: str(value) for key, value in about.items()},
        **start.get("versions", {}),
        # TF_CONFIG has ports, which `lockstep run` chooses for each start: it would differ between any two runs.
        **{name: value for name, value in start.get("environment", {}).items() if name != "TF_CONFIG"},
        **{key: str(start.get(key, "")) for key in ("devices", "cpus", "host")},
    }


def _share(parts: Mapping[str, float], kind: str) -> str:
    total = sum(parts.values()) or 1.0
    return f"{parts.get(kind, 0.0):.1f} s ({100 * parts.get(kind, 0.0) / total:.0f} %)"


def _text(value: float | None) -> str:
    return "" if value is None else number(value)


def _peak(run: Run) -> str:
    peaks = [max(y for _, y in points) for points in run.memory("rss").values()]
    return size(max(peaks)) if peaks else ""
