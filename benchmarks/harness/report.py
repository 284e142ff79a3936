"""What a run leaves: JSON with every round, and tables made of it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness.rounds import TOLERATED, Outcome
from benchmarks.harness.statistics import Verdict

Json = dict[str, Any]
_KINDS = {
    "full": "",
    "quick": " (quick)",
    "gpu": " on a GPU",
    "workers": " on several workers of one machine",
    "smoke": " (tiny sizes, to try the path: these figures mean nothing)",
}
START, END = "<!-- results -->", "<!-- end of results -->"


def as_json(outcome: Outcome) -> Json:
    """Returns a case that has been measured."""
    case = outcome.case
    return {
        "row": case.row,
        "name": case.name,
        "title": case.title,
        "metrics": dict(case.metrics),
        "notes": case.notes,
        "batch": case.batch,
        "sides": [
            {
                "name": m.side.name,
                "role": m.side.role,
                "rounds": m.rounds,
                "others": [round(part, 4) for part in m.others],
                "failure": m.failure,
            }
            for m in outcome.sides
        ],
        "bars": [_verdict(v) for v in outcome.verdicts()],
    }


def _verdict(verdict: Verdict) -> Json:
    found = {"value": verdict.value, "low": verdict.low, "high": verdict.high}
    return {**asdict(verdict.bar), **found, "reached": verdict.reached, "aim_reached": verdict.aim_reached}


def markdown(result: Mapping[str, Any]) -> str:
    """Returns the tables of a run: what was reached, what was not, and each case."""
    parts = [
        f"# lockstep beside its peers{_KINDS[result['kind']]}",
        *heading(result),
        summary(result),
        *(_case(case) for case in result["cases"]),
    ]
    return "\n\n".join(parts) + "\n"


def heading(result: Mapping[str, Any]) -> list[str]:
    """Returns when, where, with what, and how."""
    machine = result["machine"]
    where = f"{machine['cores']} cores of {machine['processor']}, {machine.get('memory', '?')}, {machine['system']}"
    where = f"{machine['device']}; {where}" if "device" in machine else where
    versions = "; ".join(
        f"{name}: " + ", ".join(f"{package} {version}" for package, version in found.items())
        for name, found in result["versions"].items()
    )
    revision = f"; lockstep at {machine['revision']}" if machine.get("revision") else ""
    about = f"{result['date']}; {where}; {result['rounds']} rounds, medians{revision}."
    data = f"Data: {'; '.join(result['data'].values())}." if result.get("data") else ""
    how = f"`{result['command']}`. {data} {_disturbance(result)}".strip()
    return [about, f"Environments. {versions}.", *_kept(result), how]


def _kept(result: Mapping[str, Any]) -> list[str]:
    """Says which rows were measured before this run, and only stand beside it."""
    rows = {case["row"] for case in result["cases"] if case.get("date", result["date"]) < result["date"]}
    return [f"Measured earlier, as the tables of these rows say: {', '.join(map(str, sorted(rows)))}."] if rows else []


def _disturbance(result: Mapping[str, Any]) -> str:
    parts = [part for case in result["cases"] for side in case["sides"] for part in side["others"]]
    disturbed = sum(part > TOLERATED for part in parts)
    if not disturbed:
        return f"Other programs had less than {TOLERATED:.0%} of the machine during each of {len(parts)} measurements."
    most = f"more than {TOLERATED:.0%} of the machine, and up to {max(parts):.0%}"
    return f"Other programs had {most}, during {disturbed} of {len(parts)} measurements, which are worth less."


def summary(result: Mapping[str, Any]) -> str:
    """Returns a table of all bars, and a list of those that were not reached."""
    lines = ["| row | work | | measured | bar | aim | reached |", "|---|---|---|---|---|---|---|"]
    missed: list[str] = []
    for case in result["cases"]:
        for bar in case["bars"]:
            lines.append(f"| {case['row']} | {case['name']} | {bar['what']} | {_measured(bar)} | {_limits(bar)} |")
            if _falls_short(bar):
                missed.append(_missed(case, bar))
        missed += [f"* Row {case['row']}, {case['name']}: {_failed(s)}" for s in case["sides"] if s["failure"]]
    return "\n".join(
        [*lines, "", "What was not reached:", "", *(missed or ["* Nothing: every bar and every aim was."])]
    )


def _measured(bar: Json) -> str:
    if bar["value"] is None:
        return "not measured"
    return f"**{_number(bar['value'])}** ({_number(bar['low'])} to {_number(bar['high'])})"


def _limits(bar: Json) -> str:
    sign = "≤ " if bar["at_most"] else "≥ "
    must, aim = ("" if bar[name] is None else f"{sign}{_number(bar[name])}" for name in ("must", "aim"))
    return f"{must} | {aim} | {_reached(bar)}"


def _falls_short(bar: Json) -> bool:
    limited = bar["must"] is not None or bar["aim"] is not None
    return limited and (bar["reached"] is False or not bar["aim_reached"])


def _reached(bar: Json) -> str:
    if bar["value"] is None:
        return "?"
    if bar["reached"] is False:
        return "no"
    if bar["aim_reached"] is None:
        return ""
    return "yes" if bar["aim_reached"] else "aim not" if bar["reached"] is None else "yes, aim not"


def _missed(case: Json, bar: Json) -> str:
    wanted, limit = ("the bar", bar["must"]) if bar["reached"] is False else ("the aim", bar["aim"])
    found = "not measured" if bar["value"] is None else f"{_number(bar['value'])}, {wanted} is {_number(limit)}"
    return f"* Row {case['row']}, {case['name']}, {bar['what']}: {found}"


def _failed(side: Json) -> str:
    return f"{side['name']} was not measured in every round: {side['failure']}"


def _case(case: Json) -> str:
    metrics = list(case["metrics"])
    lines = [f"## Row {case['row']}: {case['title']}", ""] if case["row"] < 8 else [f"## {case['title']}", ""]
    lines += [f"| | {' | '.join(metrics)} |", "|---|" + "---|" * len(metrics)]
    for side in case["sides"]:
        cells = [_cell(side["rounds"], metric) for metric in metrics]
        name = f"**{side['name']}**" if side["role"] == "ours" else side["name"]
        lines.append(f"| {name}{' (ceiling)' if side['role'] == 'ceiling' else ''} | {' | '.join(cells)} |")
    lines += ["", *(f"* {name}: {meaning}" for name, meaning in case["metrics"].items())]
    when = f"* Measured {case['date']}, {case['rounds']} rounds." if "date" in case else ""
    return "\n".join([*lines, *(f"* {text}" for text in [case["notes"]] if text), *([when] if when else [])])


def _cell(rounds: Iterable[Mapping[str, float]], metric: str) -> str:
    values = [r[metric] for r in rounds if metric in r]
    if not values:
        return "–"
    low, high = _number(min(values)), _number(max(values))
    median = _number(statistics.median(values))
    return median if len(values) == 1 else f"{median} ({low} to {high})"


def _number(value: float) -> str:
    """Three digits that count."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.3g}" if size else "0"


def write(result: Json, directory: Path, name: str) -> None:
    """Writes `name.json` and `name.md`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (directory / f"{name}.md").write_text(markdown(result))


def publish(result: Mapping[str, Any], readme: Path) -> None:
    """Puts heading and summary between the marks of a README."""
    before, _, rest = readme.read_text().partition(START)
    _, _, after = rest.partition(END)
    shown = "\n\n".join([*heading(result), summary(result)])
    readme.write_text(f"{before}{START}\n\n{shown}\n\n{END}{after}")
