"""The replica view across processes: two workers of two devices do what one of four does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras import layers

import lockstep as ls
from tests.distribute.test_replica_view import _train
from tests.keras.cases import precision
from tests.runtime.jobs import Job

PROGRAM = """
    import numpy as np
    import lockstep as ls
    options = ls.distribute.CommunicationOptions({communication})
    strategy = ls.distribute.MultiWorkerMirroredStrategy(communication_options=options, {more})
    from tests.distribute.test_two_workers import weights
    np.savez(__file__ + ".npz", *weights(strategy))
"""
# The options of each job, and the strategy of one process that does the same.
JOBS = {
    "ring": ("implementation='ring', bytes_per_pack=64", "", ls.distribute.get_strategy),
    "own statistics": (
        "",
        "batch_statistics='replica'",
        lambda: ls.distribute.MirroredStrategy(batch_statistics="replica"),
    ),
}


def weights(strategy: Any) -> list[np.ndarray]:
    """Trains a model with batch normalisation; returns its weights."""
    with precision("float64"):
        return _train(strategy, layers.BatchNormalization()).get_weights()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job that ends with the test."""
    job = Job(tmp_path)
    yield job
    job.close()


def test_two_workers_of_two_devices(job: Job) -> None:
    started = {
        name: job.start_all(PROGRAM.format(communication=communication, more=more), 2, JAX_NUM_CPU_DEVICES="2")
        for name, (communication, more, _) in JOBS.items()
    }
    for name, tasks in started.items():
        expected = weights(JOBS[name][2]())
        for task in tasks:
            assert task.wait() == 0, task.err
            found = np.load(f"{task.program}.npz")
            for i, value in enumerate(expected):
                np.testing.assert_allclose(found[f"arr_{i}"], value, rtol=0, atol=1e-9, err_msg=name)
