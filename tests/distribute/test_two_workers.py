"""The replica view across processes: two workers of two devices do what one worker of four does."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import layers

import lockstep as ls
from tests.distribute.test_replica_view import _train
from tests.engine.keras.cases import precision
from tests.engine.runtime.jobs import Job

PROGRAM = """
    import numpy as np
    from tests.distribute.test_two_workers import strategy, weights
    np.savez(__file__ + ".npz", *weights(strategy()))
"""


def strategy() -> Any:
    """All that differs from the view of the whole batch: a ring, small packs, and each replica's own statistics."""
    options = ls.distribute.CommunicationOptions(bytes_per_pack=64, implementation="ring")
    return ls.distribute.MultiWorkerMirroredStrategy(communication_options=options, batch_statistics="replica")


def weights(chosen: Any) -> list[np.ndarray]:
    """Trains a model with batch normalisation; returns its weights."""
    with precision("float64"):
        return _train(chosen, layers.BatchNormalization()).get_weights()


def test_two_workers_of_two_devices(job: Job) -> None:
    tasks = job.start_all(PROGRAM, 2, JAX_NUM_CPU_DEVICES="2")
    expected = weights(strategy())
    for task in tasks:
        assert task.wait() == 0, task.err
        found = np.load(f"{task.program}.npz")
        for i, value in enumerate(expected):
            np.testing.assert_allclose(found[f"arr_{i}"], value, rtol=0, atol=1e-9)
