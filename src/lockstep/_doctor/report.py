"""Report of a doctor: a table on a terminal, plain lines elsewhere, or JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from lockstep._doctor.finding import Finding, Level

_SIGNS = {Level.OK: "ok", Level.NOTE: "note", Level.WARNING: "warning", Level.ERROR: "ERROR"}
_STYLES = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.ERROR: "bold red"}


def as_json(findings: Sequence[Finding]) -> str:
    """Returns the findings as a JSON object: "healthy", and a list of them."""
    records = [
        {"section": f.section, "level": f.level, "text": f.text, "advice": f.advice, "data": f.data} for f in findings
    ]
    return json.dumps({"healthy": is_healthy(findings), "findings": records}, indent=2, default=str)


def is_healthy(findings: Iterable[Finding]) -> bool:
    """Returns whether none of them is an error."""
    return all(finding.level != Level.ERROR for finding in findings)


def lines(findings: Iterable[Finding]) -> Iterable[str]:
    """Yields a plain line for each finding, and one for its remedy: for logs, pipes and grep."""
    for finding in findings:
        yield f"{_SIGNS[finding.level]:<8}{finding.section}: {finding.text}"
        if finding.advice:
            yield f"{'':<8}-> {finding.advice}"


def summary(findings: Sequence[Finding]) -> str:
    """Returns how many findings of each kind there are."""
    counts = Counter(finding.level for finding in findings)
    parts = [f"{counts[level]} {name}" for level, name in ((Level.ERROR, "errors"), (Level.WARNING, "warnings"))]
    verdict = "Healthy" if is_healthy(findings) else "Not healthy"
    return f"{verdict}: {', '.join(parts)}, {counts[Level.NOTE]} notes, {counts[Level.OK]} in order."


def show(findings: Sequence[Finding], title: str) -> None:
    """Prints the findings: a table by section on a terminal, else lines."""
    from rich.console import Console

    # Knows of terminals, NO_COLOR and widths.
    console = Console()
    if not console.is_terminal:
        for line in lines(findings):
            print(line)
        print(summary(findings))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    section = ""
    for finding in sorted(findings, key=lambda each: _first(findings, each.section)):
        # As text, not as markup: paths and messages may hold brackets.
        said = Text(finding.text)
        if finding.advice:
            said.append(f"\n{finding.advice}", style="italic")
        name = "" if finding.section == section else finding.section
        table.add_row(name, Text(_SIGNS[finding.level], style=_STYLES[finding.level]), said)
        section = finding.section
    console.print(table)
    console.print(summary(findings), style=_STYLES[Level.OK if is_healthy(findings) else Level.ERROR])


def _first(findings: Sequence[Finding], section: str) -> int:
    return next(i for i, finding in enumerate(findings) if finding.section == section)
