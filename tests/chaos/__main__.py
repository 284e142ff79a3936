"""Many random schedules, one after the other: python -m tests.chaos [--seeds 50] [--first 0] [--workers 3]."""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from tests.chaos import harness, verdict
from tests.chaos.schedule import schedule


def main() -> int:
    """Runs them; returns how many have failed."""
    given = _arguments()
    base = Path(tempfile.mkdtemp(prefix="lockstep-chaos-"))
    reference = harness.run(base / "undisturbed", [], given.workers, given.evaluator)
    if reference.code != 0:
        print(verdict.history(reference.directory))
        return 1
    print(f"undisturbed: {reference.seconds:.1f} s", flush=True)
    times: list[dict[str, float]] = []
    seeds = range(given.first, given.first + given.seeds)
    failed = [seed for seed in seeds if not _is_good(seed, given, base, times)]
    print(f"{given.seeds - len(failed)} of {given.seeds} equal the undisturbed run")
    _show(times)
    if failed:
        again = "; ".join(f"python -m tests.chaos --first {seed} --seeds 1" for seed in failed)
        print(f"Their files are in {base}. To see them again: {again}")
    else:
        shutil.rmtree(base)
    return len(failed)


def _is_good(seed: int, given: argparse.Namespace, base: Path, times: list[dict[str, float]]) -> bool:
    faults = schedule(seed, given.workers, given.evaluator)
    job = harness.run(base / f"seed-{seed}", faults, given.workers, given.evaluator)
    reference = harness.Job(base / "undisturbed", 0, 0.0, "")
    found = verdict.problems(job, reference, given.workers, given.evaluator)
    done = verdict.happened(job)
    times += harness.recoveries(job.directory)
    shown = ", ".join(f"{fault}{'' if n in done else ' (not reached)'}" for n, fault in enumerate(faults))
    print(f"seed {seed}: {'equal' if not found else '; '.join(found)}, {job.seconds:.1f} s; {shown}", flush=True)
    if not found:
        shutil.rmtree(job.directory)
    return not found


def _show(times: list[dict[str, float]]) -> None:
    """How long the job took to train again."""
    stages = list(dict.fromkeys(stage for one in times for stage in one))
    for stage in stages:
        seconds = sorted(one[stage] for one in times if stage in one)
        name = "failure to the first new step" if stage == "seconds" else f"of it {stage}"
        print(f"{name:30} median {statistics.median(seconds):6.2f} s, most {seconds[-1]:6.2f} s, {len(seconds)} times")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seeds", type=int, default=50, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--evaluator", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
