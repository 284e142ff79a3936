"""The job with parameter servers that an Estimator trains in: that of its strategy, or, without one, of its cluster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lockstep._engine.keras.servers.options import ServerOptions
from lockstep._engine.servers.chief_call import ChiefCall
from lockstep.distribute import ParameterServerStrategy
from lockstep.estimator._core import EstimatorCore
from lockstep.estimator._servers.training import train_on_chief, train_on_worker
from lockstep.estimator._training import TrainRequest

if TYPE_CHECKING:
    from lockstep.estimator._run_config import RunConfig

_log = logging.getLogger("lockstep")
_TASKS = ("chief", "master", "worker", "ps")
# A process is one task of one job: all its Estimators train there.
_of_cluster: list[ParameterServerStrategy] = []


def servers_of(config: RunConfig) -> ServerOptions | None:
    """Returns the servers that an Estimator of this config trains with, or `None`.

    Without a strategy a cluster with `ps` tasks trains asynchronously, as TensorFlow's by default: "parameter
    server-based between-graph replication" (tf.estimator.train_and_evaluate).
    """
    strategy = config.train_distribute
    if strategy is None and config.task_type in _TASKS and "ps" in config.cluster_spec.jobs:
        if not _of_cluster:
            _of_cluster.append(ParameterServerStrategy())
        strategy = _of_cluster[0]
    if not isinstance(strategy, ParameterServerStrategy):
        return None
    return strategy._servers  # pyright: ignore[reportPrivateUsage]


def train_with_servers(core: EstimatorCore, request: TrainRequest, options: ServerOptions) -> None:
    """Does this task's part of a call of `Estimator.train`."""
    replicas = core.first_device_replicas()
    core.is_table = options.policy.is_table
    call = options.job.begin("Estimator.train", {"steps": request.steps, "max_steps": request.max_steps})
    if not isinstance(call, ChiefCall):
        train_on_worker(core, request, replicas, options, call)
    # Only the chief looks: a worker would see checkpoints of the very training that it is to take part in.
    elif core.is_trained(replicas.runtime, request.max_steps):
        _log.info("Skipping training since max_steps has already saved.")
        call.end()
    else:
        train_on_chief(core, request, replicas, options, call, max(1, core.config.num_worker_replicas))
