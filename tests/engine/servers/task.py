"""A task of a job with parameter servers, as `lockstep run --ps` starts it: trains the small model of `programs`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from lockstep._engine.servers.job import Job
from lockstep._engine.servers.tickets import Lease
from lockstep.cluster_resolver import TFConfigClusterResolver
from tests.engine.servers import programs


def main() -> None:
    """Takes part in one training, as options, a JSON object on the command line, say."""
    options = json.loads(sys.argv[1])
    out = Path(options["out"])
    resolver = TFConfigClusterResolver()
    task = resolver.task
    assert task is not None
    job = Job.connect(resolver.cluster_spec(), task)
    delay = float(options.get("delay", 0.0))
    (out / f"{task.type}-{task.index}.pid").write_text(str(os.getpid()))

    def pause(lease: Lease) -> None:
        if options.get("notes"):
            with (out / f"{task.type}-{task.index}.batches").open("a") as file:
                file.write(f"{lease.ticket} {time.time():.3f}\n")
        time.sleep(delay)

    if job.is_server:
        job.begin("fit", {"rows": programs.ROWS}).result()
        return
    if not job.is_chief:
        programs.work(job, pause)
        return
    directory = str(out / "cuts") if options.get("cuts", True) else ""
    result = programs.chief(
        job,
        epochs=options.get("epochs", 2),
        batches=options.get("batches", programs.BATCHES),
        mode=options.get("mode", "async"),
        replicas=options.get("replicas", 1),
        directory=directory,
        every=options.get("every", 10),
        on_ticket=lambda ticket: _note(out, ticket, options.get("holds", [])),
        is_computing=options.get("chief computes", True),
        delay=delay,
    )
    np.savez(out / "values.npz", **{n.replace("/", "|"): v for n, v in result["values"].items()})
    (out / "losses.json").write_text(json.dumps(result["losses"]))


def _note(out: Path, ticket: int, holds: list[int]) -> None:
    """Notes a batch; where the test kills a task after so many, it goes on once that has been done."""
    with (out / "tickets").open("a") as file:
        file.write(f"{ticket} {time.time():.3f}\n")
    count = len((out / "tickets").read_text().splitlines())
    while any(count >= hold and not (out / f"go-on-{hold}").exists() for hold in holds):
        time.sleep(0.005)


if __name__ == "__main__":
    main()
