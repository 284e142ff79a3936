"""A run as its records tell it: sessions of tasks, curves, and how it ended."""

from __future__ import annotations

import bisect
import math
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lockstep.report._files import LAUNCHER, Record

Point: TypeAlias = tuple[float, float]
"""The x and the y of a point of a curve; y may be NaN."""
# A task that has written nothing for so long has ended without a word: samples come at least that often.
_SILENT_SECONDS = 120.0
# Tasks write their first line when training begins, which they do together; their clocks may differ a little.
_APART_SECONDS = 10.0


@dataclass
class Session:
    """One process of a task, from its start to its end.

    Attributes:
        start: Its first line: command, environment, versions.
        samples: Lines that tell, every second or less often, how far it is and where its time went.
        values: Lines with values of steps, those of `samples` among them.
        epochs: Lines with the results of epochs.
        trains: Lines of calls that train.
        ends: Lines of the ends of those calls.
        notes: Lines to show: stragglers, and for whom others wait.
        marks: Times (seconds since the epoch) at which it did something for the first time, such as "stepped".
    """

    start: Record
    samples: list[Record] = field(default_factory=list)
    values: list[Record] = field(default_factory=list)
    epochs: list[Record] = field(default_factory=list)
    trains: list[Record] = field(default_factory=list)
    ends: list[Record] = field(default_factory=list)
    notes: list[Record] = field(default_factory=list)
    marks: dict[str, float] = field(default_factory=dict)
    last_at: float = 0.0

    def add(self, record: Record) -> None:
        """Adds a line."""
        self.last_at = record["at"]
        if record["event"] == "marks":
            self.marks.update(record["marks"])
        elif record["event"] == "restored" and self.trains:
            # A line of its own: what a call was asked for is known, and written, before it has looked for a checkpoint.
            self.trains[-1]["restored"] = True
        elif (lines := self._lists.get(record["event"])) is not None:
            lines.append(record)
        if "value_step" in record:
            self.values.append(record)

    @property
    def _lists(self) -> dict[str, list[Record]]:
        return {
            "sample": self.samples,
            "epoch": self.epochs,
            "train": self.trains,
            "end": self.ends,
            "note": self.notes,
        }

    @property
    def began(self) -> float:
        """The time of the start of the process, or of its first line where that is not known."""
        return self.start.get("launched_at") or self.start["at"]

    @property
    def spent(self) -> dict[str, float]:
        """Seconds of the main thread by place, as of the last line that tells."""
        last = [lines[-1] for lines in (self.samples, self.ends) if lines]
        return dict(max(last, key=lambda line: line["at"]).get("spent", {})) if last else {}

    @property
    def error(self) -> dict[str, str] | None:
        """The type and the message of the error that the last call ended with."""
        return self.ends[-1].get("error") if self.ends else None

    @property
    def is_training(self) -> bool:
        """Returns whether a call that trains has begun and not ended."""
        return len(self.trains) > len(self.ends)


@dataclass
class Task:
    """A task over all attempts of a run."""

    name: str
    sessions: list[Session]

    @property
    def last(self) -> Session:
        """The newest session."""
        return self.sessions[-1]

    @property
    def samples(self) -> list[Record]:
        """Samples of all sessions."""
        return [sample for session in self.sessions for sample in session.samples]


@dataclass
class Run:
    """A run: a program that was started once, with all restarts.

    Attributes:
        tasks: By name, the chief first.
        launcher: Lines of `lockstep run`: failures, returns to training, the end.
        earlier: How many runs the directory has records of that came before this one.
    """

    tasks: dict[str, Task]
    launcher: list[Record]
    earlier: int = 0

    @property
    def chief(self) -> Task:
        """The task whose curves count."""
        return next(iter(self.tasks.values()))

    @property
    def began(self) -> float:
        """The time of the first start."""
        return min(task.sessions[0].began for task in self.tasks.values())

    @property
    def ended(self) -> float:
        """The time of the last line of a task that trains, or of the launcher."""
        return max([*(s.last_at for t in self.tasks.values() for s in t.sessions), *(r["at"] for r in self.launcher)])

    @property
    def seconds(self) -> float:
        """Seconds from the first start to the last line."""
        return max(0.0, self.ended - self.began)

    @property
    def step(self) -> int | None:
        """The number of the last step that is known."""
        steps = [s["step"] for s in [*self.chief.samples, *self.chief.last.ends] if s.get("step") is not None]
        return int(steps[-1]) if steps else None

    def status(self, now: float) -> tuple[str, str]:
        """Returns "finished", "failed", "preempted", "running" or "silent", and a sentence."""
        # The launcher's word counts first: a task that was killed has left none.
        end = next((r for r in reversed(self.launcher) if r["event"] == "end"), None)
        if end is not None:
            if end["code"] == 0:
                return "finished", "Finished"
            failed = [f"{r['task']}: {r['cause']}" for r in self.launcher if r["event"] == "failure"]
            # 128 + SIGTERM: the exit code of `lockstep.errors.Preempted`.
            kind = "preempted" if end["code"] == 143 else "failed"
            return kind, f"Ended with exit code {end['code']}" + (f". {failed[-1]}" if failed else "")
        session = self.chief.last
        if session.error is not None:
            name = session.error["type"]
            sentence = f"{self.chief.name}: {name}: {session.error['message'].partition(chr(10))[0]}"
            return ("preempted" if name == "Preempted" else "failed"), sentence
        if not session.is_training and session.ends:
            return "finished", "Finished"
        silent = now - self.ended
        if silent > _SILENT_SECONDS:
            return "silent", f"Has written nothing for {duration(silent)}: it was killed, or its machine is gone"
        return "running", "Running"

    def curves(self) -> dict[str, list[Point]]:
        """Returns the values of steps, by name: (step, value); a step that was repeated after a restart counts once."""
        return _curves((line["value_step"], line["values"]) for s in self.chief.sessions for line in s.values)

    def epoch_curves(self) -> dict[str, list[Point]]:
        """Returns the values of epochs, by name: (epoch from 1, value)."""
        return _curves((line["epoch"] + 1, line["values"]) for s in self.chief.sessions for line in s.epochs)

    def final_values(self) -> dict[str, float]:
        """Returns the last value of each name, of epochs where there are some."""
        found = {name: points[-1][1] for name, points in self.curves().items()}
        return found | {name: points[-1][1] for name, points in self.epoch_curves().items()}

    def speed(self) -> list[Point]:
        """Returns steps a second of the chief: (seconds since the begin, steps a second)."""
        points: list[Point] = []
        for session in self.chief.sessions:
            for before, after in zip(session.samples, session.samples[1:], strict=False):
                seconds, steps = after["at"] - before["at"], after["steps"] - before["steps"]
                # Between two calls, and while an evaluation runs, nothing is trained on.
                if seconds > 0 and steps > 0:
                    points.append((after["at"] - self.began, steps / seconds))
        return points

    def mean_speed(self) -> float | None:
        """Returns the mean of steps a second, from the first step on; `None` before there are some."""
        # By session: the time between two of them is a restart's, and no step was made in it.
        steps = seconds = 0.0
        for session in self.chief.sessions:
            lines = [*session.samples, *(end for end in session.ends if "steps" in end)]
            lines = sorted((line for line in lines if line["steps"]), key=lambda line: line["at"])
            if len(lines) > 1:
                steps += lines[-1]["steps"] - lines[0]["steps"]
                seconds += lines[-1]["at"] - lines[0]["at"]
        return steps / seconds if seconds and steps else None

    def memory(self, key: str) -> dict[str, list[Point]]:
        """Returns bytes by task: (seconds since the begin, bytes); `key` is "rss" or "device"."""
        found: dict[str, list[Point]] = {}
        for task in self.tasks.values():
            points = [(s["at"] - self.began, float(s[key])) for s in task.samples if s.get(key)]
            if points:
                found[task.name] = points
        return found

    def restarts(self) -> list[Record]:
        """Returns a line for each restart: "at", "cause", "task", and, where it is known, "step" and "seconds"."""
        failures = [line for line in self.launcher if line["event"] == "failure"]
        recoveries = {line.get("generation"): line for line in self.launcher if line["event"] == "recovery"}
        if failures:
            return [
                {**line, **_recovery(recoveries.get(line.get("generation"))), "cause": _in_words(line["cause"])}
                for line in failures
            ]
        # Without `lockstep run` a task's own last words are all there is.
        found: list[Record] = []
        for before in self.chief.sessions[:-1]:
            error = before.error
            cause = f"{error['type']}: {error['message']}" if error else "its process ended without a word"
            found.append({"at": before.last_at, "task": self.chief.name, "cause": cause})
        return found

    def notes(self) -> list[Record]:
        """Returns what tasks have noted, such as stragglers, in the order of time."""
        return sorted(
            (note for task in self.tasks.values() for session in task.sessions for note in session.notes),
            key=lambda note: note["at"],
        )


def _recovery(line: Record | None) -> dict[str, Any]:
    keys = ("step", "seconds", "detect", "wait", "restart", "build", "restore", "compile")
    return {} if line is None else {key: line[key] for key in keys if key in line}


def _in_words(cause: str) -> str:
    """Returns a cause with the name of its signal: "exit -9" is "killed by SIGKILL"."""
    kind, _, code = cause.partition(" -")
    if kind != "exit" or not code.isdecimal():
        return cause
    try:
        return f"killed by {signal.Signals(int(code)).name}"
    except ValueError:
        return f"killed by signal {code}"


def runs_of(records: Mapping[str, Sequence[Record]]) -> list[Run]:
    """Returns the runs that a directory has records of, oldest first.

    A start belongs to the run before it if `lockstep run` gave both one id, or if it went on with a checkpoint.
    """
    launchers = sorted(name for name in records if name.partition(" ")[0] == LAUNCHER)
    sessions = {name: _sessions(lines) for name, lines in records.items() if name not in launchers}
    # Node 0's decides about the job; a machine that shares no directory with it has its own alone.
    of_launcher = records[launchers[0]] if launchers else []
    names = sorted((name for name in sessions if sessions[name]), key=_rank)
    if not names:
        return []
    # By the chief's sessions alone: only its lines tell runs apart, and the tasks of a run begin together.
    firsts = [group[0].start["at"] - _APART_SECONDS for group in _runs_of_task(sessions[names[0]])]
    runs: list[Run] = []
    for number, first in enumerate(firsts):
        until = firsts[number + 1] if number + 1 < len(firsts) else math.inf
        tasks: dict[str, Task] = {}
        for name in names:
            own = [s for s in sessions[name] if first <= s.start["at"] < until]
            if own:
                tasks[name] = Task(name, own)
        launcher = [r for r in of_launcher if _is_of(r, first, until, tasks)]
        runs.append(Run(tasks, launcher, number))
    return runs


def _is_of(record: Record, first: float, until: float, tasks: Mapping[str, Task]) -> bool:
    ids = {s.start.get("run_id") for task in tasks.values() for s in task.sessions}
    # By the id, where there is one: times of two machines may be apart by more than a restart takes.
    if record.get("run_id"):
        return record["run_id"] in ids
    return first <= record["at"] < until


def _sessions(lines: Iterable[Record]) -> list[Session]:
    found: list[Session] = []
    for line in lines:
        if line["event"] == "start":
            found.append(Session(line, last_at=line["at"]))
        elif found:
            found[-1].add(line)
    return found


def _runs_of_task(sessions: Sequence[Session]) -> list[list[Session]]:
    runs: list[list[Session]] = []
    for session in sessions:
        goes_on = bool(runs) and (
            (session.start.get("run_id") and session.start.get("run_id") == runs[-1][-1].start.get("run_id"))
            or any(train.get("restored") for train in session.trains[:1])
        )
        if goes_on:
            runs[-1].append(session)
        else:
            runs.append([session])
    return runs


def _rank(name: str) -> tuple[int, str, int]:
    """Returns the order of tasks: those of "chief", then "worker" by number, then others."""
    kind, _, index = name.partition(" ")
    # "this process" is the name of a task that has no cluster.
    order = {"chief": 0, "this": 0, "worker": 1, "ps": 2, "evaluator": 3}
    return order.get(kind, 4), kind, int(index) if index.isdecimal() else 0


def _curves(lines: Iterable[tuple[float, Mapping[str, Any]]]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for x, values in lines:
        for name, value in values.items():
            points = found.setdefault(name, [])
            # A restart goes back to its checkpoint: what was drawn beyond it is drawn again.
            if points and points[-1][0] >= x:
                del points[bisect.bisect_left(points, x, key=lambda p: p[0]) :]
            points.append((float(x), float(value)))
    return found


def duration(seconds: float) -> str:
    """Returns seconds in words of clocks: "4.2 s", "3 min 20 s", "5 h 7 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def size(count: float) -> str:
    """Returns bytes with a unit, such as "1.5 GB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
