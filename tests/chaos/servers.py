"""Kills tasks of jobs with parameter servers: python -m tests.chaos.servers [--mode sync] [--seeds 50] [--kills 4].

Each seed is a schedule: which task is killed after how many updates. A job with servers trains through it. In async
mode its counter must say the number of updates: python -m tests.chaos.servers --mode async --seeds 1 --updates 1000
--kills 20. In sync mode all values must have the bits of the job that nobody has disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support.cluster import environment

JOB_SECONDS = 900.0
_POLL_SECONDS = 0.005
# A kill comes so long after its update at most: anywhere in the next steps.
_LONGEST = 0.05
_SERVERS, _WORKERS = 2, 2


@dataclass(frozen=True)
class Kill:
    """A task that is killed.

    Attributes:
        task: Its name, such as "ps-1".
        at: After how many updates that the chief has seen.
        after: Seconds after that.
    """

    task: str
    at: int
    after: float


def schedule(seed: int, kills: int, updates: int) -> list[Kill]:
    """Returns the kills of a seed, in order: every kind of task, at random instants, once all are at work."""
    chance = random.Random(seed)
    tasks = [f"worker-{i}" for i in range(_WORKERS)] + [f"ps-{i}" for i in range(_SERVERS)]
    instants = sorted(chance.sample(range(updates // 10, updates), kills))
    return [Kill(chance.choice(tasks), at, chance.uniform(0, _LONGEST)) for at in instants]


def run(out: Path, mode: str, updates: int, kills: Sequence[Kill]) -> tuple[dict[str, np.ndarray] | None, int]:
    """Runs a job in a new folder; returns the values that it ends with, or `None`, and how many tasks were killed."""
    out.mkdir(parents=True)
    options = {"out": str(out), "mode": mode, "replicas": 3 if mode == "sync" else 1, "batches": updates // 2}
    options |= {"every": 20, "delay": 0.01}
    command = [sys.executable, "-m", "lockstep._launch", "run", "--workers", str(_WORKERS), "--ps", str(_SERVERS)]
    command += ["--max-restarts", "200", "--restart-delay", "0", "-m", "tests.engine.servers.task", json.dumps(options)]
    with (out / "log").open("wb") as log:
        job = subprocess.Popen(command, env=environment(), stdout=log, stderr=subprocess.STDOUT)
    end, done = time.monotonic() + JOB_SECONDS, 0
    try:
        for kill in kills:
            if not _strike(out, job, kill, end):
                break
            done += 1
        code = job.wait(max(1.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        code = -1
    finally:
        job.kill()
        job.wait()
    if code != 0:
        return None, done
    with np.load(out / "values.npz") as values:
        return dict(values), done


def _strike(out: Path, job: subprocess.Popen[bytes], kill: Kill, end: float) -> bool:
    """Kills a task when its time has come; returns whether it did, and `False` where the job was over before."""
    tickets, pid = out / "tickets", out / f"{kill.task}.pid"
    while not (pid.exists() and tickets.exists() and len(tickets.read_text().splitlines()) >= kill.at):
        if job.poll() is not None or time.monotonic() > end:
            return False
        time.sleep(_POLL_SECONDS)
    time.sleep(kill.after)
    victim = int(pid.read_text())
    pid.unlink()
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def problems(values: dict[str, np.ndarray] | None, expected: dict[str, np.ndarray], mode: str, updates: int) -> str:
    """Returns in which way a job's values are not as they should be; "" if they are."""
    if values is None:
        return "it has failed"
    count = round(float(values["counter"]))
    if count != updates:
        return f"the counter says {count}"
    if mode == "async":
        return ""
    return ", ".join(name for name, value in expected.items() if value.tobytes() != values[name].tobytes())


def main() -> int:
    """Returns how many schedules have ended with other values."""
    parser = argparse.ArgumentParser(description="SIGKILL of tasks of jobs with parameter servers.")
    parser.add_argument("--mode", choices=("sync", "async"), default="sync")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--updates", type=int, default=200)
    given = parser.parse_args()
    base, failed = Path(tempfile.mkdtemp(prefix="lockstep-chaos-servers-")), 0
    expected: dict[str, np.ndarray] = {}
    if given.mode == "sync":
        undisturbed, _ = run(base / "undisturbed", given.mode, given.updates, [])
        assert undisturbed is not None, (base / "undisturbed" / "log").read_text()[-4000:]
        expected = undisturbed
    for seed in range(given.first, given.first + given.seeds):
        kills, began = schedule(seed, given.kills, given.updates), time.monotonic()
        values, done = run(base / f"seed-{seed}", given.mode, given.updates, kills)
        wrong = problems(values, expected, given.mode, given.updates)
        failed += bool(wrong)
        shown = ", ".join(f"{k.task} at {k.at}" for k in kills)
        seconds = time.monotonic() - began
        print(f"seed {seed}: {wrong or 'equal'}, {done} of {len(kills)} killed, {seconds:.0f} s; {shown}", flush=True)
        if not wrong:
            shutil.rmtree(base / f"seed-{seed}")
    print(f"{given.seeds - failed} of {given.seeds} are as they should be{f'; see {base}' if failed else ''}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
