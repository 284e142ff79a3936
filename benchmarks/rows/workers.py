"""Row 4: the multi-worker tutorial's network on two workers of this machine, 64 examples each."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.harness.case import OURS, TENSORFLOW, Bar, Case, Side
from benchmarks.harness.processes import free_ports, gang, tf_configs, wait_for_all

MODULE, RATE = "benchmarks.rows.workers", "steps/s"
_EACH, _STEPS = 64, 70
ALONE, _DDP, _PSUM = "lockstep, no communication", "PyTorch DDP, Gloo", "bare jax, a psum per gradient"


def together(options: Mapping[str, Any]) -> dict[str, float]:
    """Runs `worker_runs`, of `worker_module` or of this module, in processes that form a cluster."""
    return _gang(options, tf_configs(options["workers"]))


def apart(options: Mapping[str, Any]) -> dict[str, float]:
    """Runs the same in processes that know nothing of each other, at the same time."""
    return _gang(options, [{}] * options["workers"])


def distributed_data_parallel(options: Mapping[str, Any]) -> dict[str, float]:
    """The same for PyTorch, with a thread each, as torchrun has it."""
    (port,) = free_ports(1)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(options["workers"])}
    threads = str(max(1, (os.cpu_count() or 1) // options["workers"]))
    return _gang(options, [{**shared, "RANK": str(i), "OMP_NUM_THREADS": threads} for i in range(options["workers"])])


def bare_jax(options: Mapping[str, Any]) -> dict[str, float]:
    """The same for jax."""
    (port,) = free_ports(1)
    return _gang({**options, "coordinator": f"127.0.0.1:{port}"}, [{}] * options["workers"])


def _gang(options: Mapping[str, Any], own: list[dict[str, str]]) -> dict[str, float]:
    environments = [{**os.environ, **variables} for variables in own]
    module = options.get("worker_module", MODULE)
    found = gang(module, options["worker_runs"], options, environments, options["limit"])
    return {RATE: statistics.mean(result[RATE] for result in found)}


def lockstep_worker(options: Mapping[str, Any]) -> dict[str, float]:
    """Keras' `fit` of the tutorial; without TF_CONFIG, a single worker."""
    import lockstep as ls  # isort: split
    import keras

    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        return _fit(keras, ls.data, options, strategy.num_replicas_in_sync)


def tensorflow_worker(options: Mapping[str, Any]) -> dict[str, float]:
    """The same in TensorFlow."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        return _fit(tf.keras, tf.data, options, strategy.num_replicas_in_sync)


def _fit(keras: Any, data: Any, options: Mapping[str, Any], replicas: int) -> dict[str, float]:
    from benchmarks.programs import keras_models
    from benchmarks.programs.examples import square_digits
    from benchmarks.programs.fit import timed_epochs

    x, y = square_digits(options["data"])
    dataset = data.Dataset.from_tensor_slices((x, y)).shuffle(60000).repeat().batch(_EACH * replicas)
    model = keras_models.workers_cnn(keras)
    between = wait_for_all if replicas == 1 else None
    rate = timed_epochs(keras, model, _STEPS, options["epochs"], between, x=dataset, steps_per_epoch=_STEPS)
    return {RATE: rate}


def torch_worker(options: Mapping[str, Any]) -> dict[str, float]:
    """DistributedDataParallel over Gloo."""
    import torch

    from benchmarks.programs import torch_loop, torch_models
    from benchmarks.programs.examples import square_digits

    torch.distributed.init_process_group("gloo")
    x, y = square_digits(options["data"])
    data = torch_loop.as_tensors(x[..., None], y)
    model = torch.nn.parallel.DistributedDataParallel(torch_models.workers_cnn())
    step = torch_loop.plain_step(model, torch_loop.sgd(model))
    batches = torch_loop.shuffled(data, _EACH, options["worker"])
    torch_loop.timed(step, batches, _STEPS)
    rate = torch_loop.timed(step, batches, _STEPS * options["epochs"])
    torch.distributed.destroy_process_group()
    return {RATE: rate}


def jax_worker(options: Mapping[str, Any]) -> dict[str, float]:
    """The step in `shard_map`, each gradient averaged by a psum of its own."""
    from benchmarks.programs import jax_loops, jax_workers
    from benchmarks.programs.examples import square_digits

    x, y = square_digits(options["data"])

    def make() -> Any:
        return jax_loops.cnn(np.random.default_rng(0), pool=False, width=128, axis=jax_workers.AXIS)

    counts = (_STEPS, _STEPS * options["epochs"])
    return {RATE: jax_workers.rate(make, (x[..., None], y.astype(np.int32)), _EACH, counts, options)}


def _side(name: str, runs: str, worker: str, environment: Any, role: Any = "peer", quick: bool = True) -> Side:
    return Side(name, runs, environment, role, {"workers": 2, "worker_runs": worker}, quick)


CASES = [
    Case(
        row=4,
        name="Two workers",
        title="Multi-worker tutorial's CNN (2.77 M parameters) on 2 workers x 64, `fit`, processes of this machine",
        module=MODULE,
        metrics={RATE: "epochs of 70 steps after the first one; with several workers, of all together"},
        needs=["digits"],
        sides=[
            _side(OURS, "together", "lockstep_worker", "lockstep", "ours"),
            _side(TENSORFLOW, "together", "tensorflow_worker", "tensorflow"),
            _side(_DDP, "distributed_data_parallel", "torch_worker", "torch"),
            _side(_PSUM, "bare_jax", "jax_worker", "jax", quick=False),
            _side(ALONE, "apart", "lockstep_worker", "lockstep", "ceiling"),
        ],
        bars=[
            Bar("x TensorFlow 2.15", (OURS, RATE), [(TENSORFLOW, RATE)], 1.5, 2.0),
            Bar("x the same without communication", (OURS, RATE), [(ALONE, RATE)], 0.65, 0.85),
        ],
        limit=300,
        notes=(
            "Without communication: two single-worker processes of the same program, batch 64 each, at the same time "
            "on the same cores, timed between a common start after the first epoch and each one's end."
        ),
    )
]
