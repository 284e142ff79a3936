"""Whether a disturbed job ended where the undisturbed one did."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from lockstep import checkpoint
from tests.chaos.harness import Job, orphans

# What a job may leave in its directory.
_EXPECTED = re.compile(
    r"model\.ckpt-\d+\.npz|checkpoint|events\.out\.tfevents\..*|eval|eval/events\.out\.tfevents\..*|"
    r"\.pins|\.lockstep|\.lockstep/(trainer|evaluator)\.json"
)
_RESULT = re.compile(r"Saving dict for global step (\d+): (.*)")


def problems(job: Job, reference: Job, workers: int, has_evaluator: bool) -> list[str]:
    """Returns what is wrong with a job; nothing if it is as good as the reference."""
    if job.code != 0:
        return [f"the supervisor ended with {job.code} after {job.seconds:.0f} s"]
    found = [*_differences(job, reference), *_leftovers(job)]
    for worker in range(workers):
        found += _unseen(job, reference, worker)
    if has_evaluator and _evaluated(job) != _evaluated(reference):
        found.append(f"evaluated: {_evaluated(job)} instead of {_evaluated(reference)}")
    return found


def _differences(job: Job, reference: Job) -> list[str]:
    mine, theirs = _last(job), _last(reference)
    if mine.keys() != theirs.keys():
        return [f"other variables: {sorted(mine.keys() ^ theirs.keys())}"]
    return [f"{name} differs" for name in mine if not np.array_equal(mine[name], theirs[name])]


def _last(job: Job) -> dict[str, np.ndarray]:
    newest = checkpoint.latest_checkpoint(job.directory / "model")
    assert newest is not None
    return checkpoint.load(newest).arrays


def _unseen(job: Job, reference: Job, worker: int) -> list[str]:
    """What a worker has trained on, where that differs.

    A worker that is killed between a step and its note has made the step, and the chief may have saved it: so one step
    may be missing for each start after the first.
    """
    mine, theirs = _seen(job, worker), _seen(reference, worker)
    found = [f"worker {worker} has seen other examples in step {s}" for s in mine if mine[s] != theirs.get(s)]
    starts = len((job.directory / f"pids worker {worker}").read_text().split())
    missing = sorted(theirs.keys() - mine.keys())
    if len(missing) >= starts:
        found.append(f"worker {worker} has not made the steps {missing}")
    return found[:2]


def _seen(job: Job, worker: int) -> dict[int, str]:
    """What a worker has trained on in each step, the last time that it made it."""
    lines = (job.directory / f"seen worker {worker}").read_text().splitlines()
    return {int(line.split()[0]): line for line in lines}


def _evaluated(job: Job) -> str | None:
    """The results of the last checkpoint."""
    results: dict[int, str] = {}
    for log in (job.directory / "logs").glob("evaluator-0.log*"):
        results.update((int(step), text) for step, text in _RESULT.findall(log.read_text(errors="replace")))
    return results.get(max(results, default=-1))


def _leftovers(job: Job) -> list[str]:
    model = job.directory / "model"
    names = [path.relative_to(model).as_posix() for path in model.rglob("*")]
    found = [f"left over: {name}" for name in names if not _EXPECTED.fullmatch(name)]
    found += [f"left over: tmp/{path.name}" for path in (job.directory / "tmp").iterdir()]
    return [*found, *(f"orphan: process {pid}" for pid in orphans(job.directory))]


def happened(job: Job) -> list[int]:
    """Returns the numbers of the faults that came to pass: some are due only after the end."""
    planned = json.loads((job.directory / "plan.json").read_text())
    return [number for number in range(len(planned)) if (job.directory / f"done {number}").exists()]


def history(directory: Path) -> str:
    """What to look at when a job went wrong."""
    return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-3000:]}" for path in [directory / "output"])
