"""Measures how soon a job with parameter servers is itself again: python -m tests.chaos.server_recovery [--rounds 5].

A job of a chief, which only leads, three workers that take 10 ms for a batch, and two servers that write a cut every
50 updates. In each round worker 3 is killed, and some seconds later server 1; the launcher starts both again. Says:

* rate: batches a second of the two other workers in the 2 s from the death of the third on, and in the 2 s after that,
  by those of the 2 s before; and the longest time in which neither began one;
* server: seconds from its death to the first update of the job afterwards.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.cluster import environment

_WINDOW = 2.0
_WAIT_SECONDS = 120.0
_POLL_SECONDS = 0.01
_OTHERS = ("worker-1", "worker-2")


def start(out: Path) -> subprocess.Popen[bytes]:
    """Starts the job."""
    options = {"out": str(out), "mode": "async", "epochs": 1, "batches": 1_000_000, "every": 50, "delay": 0.01}
    options |= {"chief computes": False, "notes": True}
    command = [sys.executable, "-m", "lockstep._launch", "run", "--workers", "4", "--ps", "2", "--max-restarts", "200"]
    command += ["--restart-delay", "0", "-m", "tests.engine.servers.task", json.dumps(options)]
    with (out / "log").open("wb") as log:
        return subprocess.Popen(command, env=environment(), stdout=log, stderr=subprocess.STDOUT)


def instants(path: Path) -> list[float]:
    """Returns the times in a file of numbers and times."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [float(line.split()[1]) for line in lines if len(line.split()) == 2]


def kill(out: Path, task: str) -> float:
    """Kills a task; returns when."""
    pid = out / f"{task}.pid"
    victim = int(pid.read_text())
    pid.unlink()
    os.kill(victim, signal.SIGKILL)
    return time.time()


def wait_for(is_so: Callable[[], bool], job: subprocess.Popen[bytes], what: str) -> None:
    """Waits; raises what the job lacks."""
    end = time.monotonic() + _WAIT_SECONDS
    while not is_so():
        if job.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the job has ended, or after {_WAIT_SECONDS:g} s there is still no {what}")
        time.sleep(_POLL_SECONDS)


def is_steady(out: Path) -> bool:
    """Returns whether all workers have computed for the time that is compared with, and nobody is missing."""
    now = time.time()
    each = [instants(out / f"worker-{i}.batches") for i in (1, 2, 3)]
    at_work = all(times and now - times[-1] < 0.5 and any(t < now - 2 * _WINDOW for t in times) for times in each)
    return at_work and all((out / f"{task}.pid").exists() for task in ("worker-3", "ps-1"))


def worker_killed(out: Path, job: subprocess.Popen[bytes]) -> dict[str, float]:
    """Kills a worker; returns the rates of the others, as parts of that before, and their longest pause in seconds."""
    wait_for(lambda: is_steady(out), job, "steady training")
    at = kill(out, "worker-3")
    wait_for(lambda: time.time() > at + 2 * _WINDOW, job, "time")
    times = sorted(itertools.chain(*(instants(out / f"{task}.batches") for task in _OTHERS)))
    counts = [sum(begin <= t - at < begin + _WINDOW for t in times) for begin in (-_WINDOW, 0.0, _WINDOW)]
    near = [t for t in times if at - 0.5 <= t < at + _WINDOW]
    pause = max(b - a for a, b in itertools.pairwise(near))
    return {"rate in 2 s": counts[1] / counts[0], "rate after 2 s": counts[2] / counts[0], "pause": pause}


def server_killed(out: Path, job: subprocess.Popen[bytes]) -> dict[str, float]:
    """Kills a server; returns the seconds until the job applies updates again."""
    wait_for(lambda: is_steady(out), job, "steady training")
    at = kill(out, "ps-1")
    wait_for(lambda: (out / "ps-1.pid").exists(), job, "server 1")
    back = time.time()
    wait_for(lambda: sum(t > back for t in instants(out / "tickets")) > 100, job, "training")
    times = [at, *(t for t in instants(out / "tickets") if t > at)]
    return {"server": max(itertools.pairwise(times), key=lambda pair: pair[1] - pair[0])[1] - at}


def main() -> int:
    """Returns 0 if the bars are held: the others' rate after 2 s at least 0.9 of before, training again within 10 s."""
    parser = argparse.ArgumentParser(description="Recovery of jobs with parameter servers.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="lockstep-recovery-") as directory:
        out = Path(directory)
        job = start(out)
        try:
            for _ in range(rounds):
                for name, value in {**worker_killed(out, job), **server_killed(out, job)}.items():
                    found.setdefault(name, []).append(value)
        except RuntimeError:
            print((out / "log").read_text()[-4000:])
            raise
        finally:
            job.terminate()
            job.wait()
    for name, values in found.items():
        print(f"{name}: median {statistics.median(values):.2f}, {min(values):.2f} to {max(values):.2f}")
    return int(min(found["rate after 2 s"]) < 0.9 or max(found["server"]) > 10.0)


if __name__ == "__main__":
    sys.exit(main())
