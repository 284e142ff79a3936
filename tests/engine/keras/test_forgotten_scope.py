"""A model that was made outside of the scope trains on each worker alone: one warning says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.runtime.jobs import Job, addresses
from tests.support.cluster import CASE_SECONDS

_START = """
import gc
import numpy as np
import lockstep as ls

def made():
    import keras
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)], name="forgotten")
    model.compile("sgd", "mse")
    return model

x, y = np.ones((8, 4)), np.ones((8, 1))
strategy = ls.distribute.MultiWorkerMirroredStrategy()
"""
_TOLD = "does not belong to MultiWorkerMirroredStrategy: each of the 2 workers trains all of it alone"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    running = Job(tmp_path)
    yield running
    running.close()


@pytest.mark.cluster
def test_a_forgotten_scope_is_told_once(job: Job) -> None:
    forgets = "made().fit(x, y, verbose=0)\nmade().train_on_batch(x, y)"
    programs = {
        "import lockstep\nimport keras\n" + _START + forgets: ":17: UserWarning: The model 'forgotten'",
        # Another model has its scope.
        _START + "with strategy.scope():\n    made().fit(x, y, verbose=0)\n" + forgets: "`with strategy.scope(): ...`",
        _START
        + "def step(state, batch): return state, {}\nls.training.Program(step)\n"
        + forgets: "The Program of step",
    }
    jobs = [job.start_all(program, 2) for program in programs]
    for tasks, named in zip(jobs, programs.values(), strict=True):
        for task in tasks:
            assert task.wait(CASE_SECONDS) == 0, task.err
            assert task.err.count(_TOLD) == 1, task.err
            assert named in task.err


@pytest.mark.cluster
def test_models_that_are_meant_to_train_alone_are_left_alone(job: Job) -> None:
    quiet = """
with ls.distribute.OneDeviceStrategy("cpu:0").scope():
    made().fit(x, y, verbose=0)
with strategy.scope():
    model = made()
model.fit(x, y, verbose=0)
made().predict(x, verbose=0)
del strategy, model
import keras
keras.backend.clear_session()
gc.collect()
made().fit(x, y, verbose=0)
print("done", flush=True)
"""
    tasks = job.start_all(_START + quiet, 2)
    alone = job.start(_START + "made().fit(x, y, verbose=0)")
    for task in (*tasks, alone):
        assert task.wait(CASE_SECONDS) == 0, task.err
        assert "belong" not in task.err, task.err


@pytest.mark.cluster
def test_an_estimator_without_a_strategy_is_told_of(job: Job) -> None:
    program = """
import tempfile
from tests.estimator import small
small.line(tempfile.mkdtemp(), ls.estimator.RunConfig()).train(small.input_fn())
"""
    chief, worker = ([address] for address in addresses(2))
    cluster = {"chief": chief, "worker": worker}
    configs = [json.dumps({"cluster": cluster, "task": {"type": kind, "index": 0}}) for kind in cluster]
    for task in [job.start(_START + program, TF_CONFIG=config) for config in configs]:
        assert task.wait(CASE_SECONDS) == 0, task.err
        assert task.err.count(_TOLD) == 1, task.err
        assert "Give it RunConfig(train_distribute=strategy)." in task.err
