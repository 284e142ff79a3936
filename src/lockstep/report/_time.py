"""Where the time of a run went, and which task the others waited for."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockstep.report._files import Record
from lockstep.report._run import Run, Task

# Kinds of time, in the order of the report, and the places of the main thread that each is made of.
KINDS: dict[str, tuple[str, ...]] = {
    "start": ("start",),
    "compile": ("compile",),
    "input": ("a wait for its own input",),
    "step": ("the call of a step, or its compilation", "a wait for steps on the devices"),
    "waiting": ("an agreement with the other tasks", "a wait for the input of the other tasks"),
    "callbacks": ("callbacks or hooks",),
    "checkpoints": ("checkpoints",),
    "evaluation": ("evaluation",),
    "other": ("the program, between steps", "the program, outside of any call"),
}
LABELS = {
    "start": "start, until the first step is called",
    "compile": "compilation of the first step",
    "input": "its own input",
    "step": "steps on the devices",
    "waiting": "agreements with the other tasks",
    "callbacks": "callbacks and hooks",
    "checkpoints": "checkpoints",
    "evaluation": "evaluation",
    "other": "the program, between steps and calls",
}
# Time that a task spends by itself, while the others can only wait.
_OWN = (*KINDS["input"], *KINDS["callbacks"], *KINDS["checkpoints"], "the program, between steps")
# Windows in which tasks are compared: as long as samples are apart in a long run, and never shorter than this.
_WINDOWS = 200
_WINDOW_SECONDS = 2.0
# A shorter lead of one task over another is the noise of scheduling and sampling.
_NOISE_SECONDS = 0.1


def breakdown(task: Task) -> dict[str, float]:
    """Returns the seconds of all sessions of a task, by kind; kinds without any are left out."""
    total: dict[str, float] = dict.fromkeys(KINDS, 0.0)
    for session in task.sessions:
        spent = session.spent
        called, stepped = session.marks.get("called"), session.marks.get("stepped")
        for kind, places in KINDS.items():
            total[kind] += sum(spent.get(place, 0.0) for place in places)
        if called is not None:
            total["start"] += max(0.0, called - session.began)
        if called is not None and stepped is not None:
            # The first call of a step compiles it: that is not a step's time.
            # Capped: the marks are times of a clock, and a part of that span may have been charged elsewhere, such as
            # to an agreement. No kind may fall below zero.
            compile_seconds = min(max(0.0, stepped - called), total["step"])
            total["compile"] += compile_seconds
            total["step"] -= compile_seconds
    return {kind: seconds for kind, seconds in total.items() if seconds >= 0.005}


@dataclass(frozen=True)
class Wait:
    """Seconds that the others waited for `task`, mostly while it was in `place`."""

    task: str
    seconds: float
    place: str


def waits(run: Run) -> list[Wait]:
    """Returns for whom the other tasks waited, the longest first.

    All tasks make the same steps. In a window of time, what one spends by itself (its input, callbacks, checkpoints)
    beyond what the one that spends least of it does, others have waited for.
    """
    # An evaluator makes no step together with the others: nobody waits for it.
    tasks = [task for task in run.tasks.values() if len(task.samples) > 1 and not task.name.startswith("evaluator")]
    if len(tasks) < 2:
        return []
    found: dict[str, dict[str, float]] = {}
    for begin, end in _windows(tasks):
        own = {task.name: _own(task.samples, begin, end) for task in tasks}
        seconds = {name: sum(places.values()) for name, places in own.items()}
        slow = max(seconds, key=lambda name: seconds[name])
        # Beyond the quickest: what all of them spend by themselves at the same time delays nobody.
        lead = seconds[slow] - min(seconds.values())
        if lead > _NOISE_SECONDS:
            place = max(own[slow], key=lambda p: own[slow][p])
            places = found.setdefault(slow, {})
            places[place] = places.get(place, 0.0) + lead
    result = [Wait(name, sum(p.values()), max(p, key=lambda key: p[key])) for name, p in found.items()]
    return sorted(result, key=lambda wait: -wait.seconds)


def _windows(tasks: Sequence[Task]) -> list[tuple[float, float]]:
    """Returns the windows in which all tasks have samples."""
    # A task without samples yet would seem to spend nothing by itself, and every other one to hold it up.
    begin = max(task.samples[0]["at"] for task in tasks)
    end = min(task.samples[-1]["at"] for task in tasks)
    if end - begin < _WINDOW_SECONDS:
        return []
    count = max(1, min(_WINDOWS, int((end - begin) / _WINDOW_SECONDS)))
    width = (end - begin) / count
    return [(begin + i * width, begin + (i + 1) * width) for i in range(count)]


def _own(samples: Sequence[Record], begin: float, end: float) -> dict[str, float]:
    before, after = _spent_at(samples, begin), _spent_at(samples, end)
    # A restart counts from zero again: that window is left out.
    return {place: max(0.0, after.get(place, 0.0) - before.get(place, 0.0)) for place in _OWN}


def _spent_at(samples: Sequence[Record], at: float) -> Mapping[str, float]:
    """Returns the seconds by place at a time, interpolated between samples."""
    right = bisect.bisect_left(samples, at, key=lambda sample: sample["at"])
    if right == 0 or right == len(samples):
        return samples[min(right, len(samples) - 1)]["spent"]
    one, other = samples[right - 1], samples[right]
    share = (at - one["at"]) / ((other["at"] - one["at"]) or 1.0)
    return {
        place: one["spent"].get(place, 0.0) + share * (seconds - one["spent"].get(place, 0.0))
        for place, seconds in other["spent"].items()
    }
