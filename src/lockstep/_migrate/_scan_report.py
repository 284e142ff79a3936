"""Reports of scans: tables for a terminal, plain lines elsewhere, or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from lockstep._migrate._scan import FileScan

_SHOWN_PLACES = 5
_HEADS = {"differs": "There, but it differs", "missing": "Not there"}


def print_report(scans: Sequence[FileScan], is_written: bool) -> None:
    """Prints what was found: per file, in sum, what differs and what is missing, and the change of import lines."""
    console = Console()
    # A table is for eyes: in a pipe its frame and its line breaks would be in the way.
    show = _print_tables if console.is_terminal else _print_lines
    show(console, scans)
    diff = "".join(scan.diff for scan in scans)
    if not diff:
        return
    print()
    print("Import lines, written:" if is_written else "Import lines, as --write changes them:")
    if console.is_terminal:
        console.print(Syntax(diff, "diff", background_color="default"))
    else:
        print(diff, end="")


def report_json(scans: Sequence[FileScan], is_written: bool) -> str:
    """Returns what was found as JSON."""
    files: list[dict[str, Any]] = []
    for scan in scans:
        names = [
            {"name": name, "status": found.status, "advice": found.advice, "places": scan.places[name]}
            for name, found in scan.answers().items()
        ]
        files.append({"path": str(scan.path), "error": scan.error, "names": names, "diff": scan.diff})
    return json.dumps({"files": files, "sum": _sums(scans), "written": is_written}, indent=2)


def _sums(scans: Sequence[FileScan]) -> dict[str, int]:
    """Returns how many different names there are of each status, in all files together."""
    # Once for all files: programs of one project use the same names.
    found = {name: found.status for scan in scans for name, found in scan.answers().items()}
    return {status: sum(one == status for one in found.values()) for status in ("there", "differs", "missing")}


def _print_tables(console: Console, scans: Sequence[FileScan]) -> None:
    table = Table(show_footer=True)
    # Folded, not cut: a path whose end is missing leads nowhere.
    table.add_column("File", overflow="fold")
    sums = _sums(scans)
    for head, status in (("there", "there"), ("differ", "differs"), ("not there", "missing")):
        table.add_column(head, justify="right", footer=str(sums[status]))
    table.columns[0].footer = f"{_count(scans)}, different names"
    for scan in scans:
        counts = [str(len(scan.names(status))) for status in ("there", "differs", "missing")]
        table.add_row(str(scan.path), *counts)
    console.print(table)
    for scan in scans:
        if scan.error:
            console.print(scan.error, style="red", highlight=False)
    for status, head in _HEADS.items():
        rows = _by_name(scans, status)
        if rows:
            table = Table()
            for column in (head, "Where", "What differs" if status == "differs" else "What to use"):
                table.add_column(column, overflow="fold")
            for name, (places, advice) in rows.items():
                table.add_row(name, "\n".join(places), advice)
            console.print(table)


def _print_lines(console: Console, scans: Sequence[FileScan]) -> None:
    for scan in scans:
        counts = {status: len(scan.names(status)) for status in ("there", "differs", "missing")}
        print(f"{scan.path}: {counts['there']} there, {counts['differs']} differ, {counts['missing']} not there")
        if scan.error:
            print(scan.error)
    sums = _sums(scans)
    print(
        f"{_count(scans)}, different names: {sums['there']} there, {sums['differs']} differ, "
        f"{sums['missing']} not there"
    )
    for status, head in _HEADS.items():
        rows = _by_name(scans, status)
        if rows:
            print()
            print(f"{head}:")
        for name, (places, advice) in rows.items():
            print(f"  {name} ({'; '.join(places)}): {advice}")


def _count(scans: Sequence[FileScan]) -> str:
    return "1 file" if len(scans) == 1 else f"{len(scans)} files"


def _by_name(scans: Sequence[FileScan], status: str) -> dict[str, tuple[list[str], str]]:
    """Returns places and advice for all names of a status, sorted."""
    rows: dict[str, tuple[list[str], str]] = {}
    for scan in scans:
        for name in scan.names(status):
            places, _ = rows.setdefault(name, ([], scan.answers()[name].advice))
            places += [f"{scan.path}:{place}" for place in scan.places[name]]
    for places, _ in rows.values():
        if len(places) > _SHOWN_PLACES:
            places[_SHOWN_PLACES:] = [f"and {len(places) - _SHOWN_PLACES} more"]
    return dict(sorted(rows.items()))
