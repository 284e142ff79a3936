"""A worker that is killed, stopped, or leaves, while another one is in a loop of its own: that one ends and says it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.engine.runtime.jobs import Job, Task, eventually
from tests.support.cluster import CASE_SECONDS

# Signs of life come each second, and a main thread has four to say better what their absence says. Silence counts
# where a worker is stopped, after less than the minute of the default and more than a busy machine makes one wait.
SILENCE = 6
# It is told well before anything else would end the wait, which takes minutes.
BOUND = 50.0

PROGRAM = """
    import os, sys
    import jax
    import numpy as np
    import lockstep as ls

    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    me, way = jax.process_index(), os.environ["WAY"]

    def step(w, batch):
        total = ls.distribute.get_replica_context().all_reduce("mean", batch.sum())
        return w + total, batch.sum()

    program = ls.training.Program(lambda w, batch: (w + batch.mean(), {"loss": batch.sum()}), strategy)
    data = ls.data.Dataset.from_tensor_slices(np.ones((64, 3), "float32")).batch(4)
    w = np.zeros((), "float32")
    for number, batch in enumerate(strategy.experimental_distribute_dataset(data.repeat())):
        if number == 12:
            print("trains", flush=True)
            if me == 1 and way == "leaves":
                sys.exit()
            if me == 1:
                sys.stdin.readline()
        if way == "program":
            w, logs = program(w, np.ones((4, 3), "float32"))
            float(logs["loss"])
        else:
            w, losses = strategy.run(step, (w, batch))
            float(strategy.reduce("sum", losses, None))
"""


# By what happens to worker 1: the signal that it is sent, and what worker 0 says.
WAYS = {
    "killed": (signal.SIGKILL, "worker 1 has gone: its process ended"),
    "program": (
        signal.SIGSTOP,
        f"heartbeat at least every {SILENCE} s (LOCKSTEP_SILENCE_TIMEOUT). worker 1 does not",
    ),
    "leaves": (None, "Every task must make the same calls. worker 1 ended its program while worker 0 is in "),
}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Task]]]:
    """The workers of each way, started side by side: they mostly wait."""
    with ExitStack() as stack:
        started: dict[str, list[Task]] = {}
        for way in WAYS:
            job = Job(tmp_path_factory.mktemp(way))
            stack.callback(job.close)
            silence = {"LOCKSTEP_SILENCE_TIMEOUT": f"{SILENCE}"} if WAYS[way][0] == signal.SIGSTOP else {}
            started[way] = job.start_all(PROGRAM, 2, WAY=way, **silence)
        yield started


@pytest.mark.cluster
@pytest.mark.parametrize("way", WAYS)
def test_the_other_one_says_who_is_missing(jobs: dict[str, list[Task]], way: str) -> None:
    (left, gone), (sent, told) = jobs[way], WAYS[way]
    # All ways start side by side.
    eventually(lambda: "trains" in gone.out or gone.process.poll() is not None, lambda: gone.err[-3000:], CASE_SECONDS)
    assert "trains" in gone.out.splitlines(), gone.err[-3000:]
    if sent is not None:
        os.kill(gone.process.pid, sent)
    assert left.wait(BOUND) != 0
    assert told in left.err, left.err[-3000:]
    assert "PeerError" in left.report.read_text() and told in left.report.read_text()
