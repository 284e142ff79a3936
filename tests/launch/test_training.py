"""Workers that train together, and the death of one of them."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.launch.staging import Stage, eventually, is_alive

WORKERS = 3
# Three processes import jax and compile, on as few as two cores.
UNTIL_TRAINING = 300.0
# What the end of one worker may take to be everyone's.
UNTIL_GONE = 40.0

TRAINING = """
    import lockstep as ls
    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    import keras
    import numpy as np

    class Tells(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                mark(f"training-{strategy.cluster_resolver.task_id}", str(os.getpid()))

    with strategy.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
        model.compile("adam", "mse")
    x = np.zeros((600, 8), "float32")
    model.fit(x, x[:, :4], batch_size=30, epochs=10**6, verbose=0, callbacks=[Tells()])
"""


@pytest.mark.parametrize("victim", [0, 2])
def test_the_death_of_one_worker_ends_all(stage: Stage, victim: int) -> None:
    stage.program(TRAINING)
    launcher = stage.start_command("--workers", WORKERS, "program.py")
    events = [f"training-{i}" for i in range(WORKERS)]
    eventually(
        lambda: launcher.poll() is not None or all((stage.directory / e).exists() for e in events),
        "training",
        UNTIL_TRAINING,
    )
    pids = stage.await_pids(*events)
    os.kill(pids[victim], signal.SIGKILL)
    killed = time.monotonic()
    result = stage.finish(launcher)
    assert time.monotonic() - killed < UNTIL_GONE
    assert not any(map(is_alive, pids))
    assert result.returncode == 128 + signal.SIGKILL
    assert f"worker {victim} failed first: killed by signal 9 (SIGKILL)" in result.stderr
