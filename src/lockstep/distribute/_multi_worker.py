"""MultiWorkerMirroredStrategy."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from lockstep.cluster_resolver import ClusterResolver, Task
from lockstep.cluster_resolver.internal import default_resolver, training_tasks
from lockstep.distribute._communication import CommunicationOptions, checked_options, reduction
from lockstep.distribute._devices import default_devices
from lockstep.distribute._options import LocalSteps, check_slots, rounds_of, statistics_of
from lockstep.distribute._strategy import Strategy
from lockstep.errors import ClusterSpecError

if TYPE_CHECKING:
    from lockstep._engine.runtime.runtime import Runtime
    from lockstep._engine.step.replicas import Device


class MultiWorkerMirroredStrategy(Strategy):
    """Trains on all devices of all workers of a cluster.

    Every worker runs the same program. Creating the strategy joins the cluster, so it must come before anything that
    JAX computes. An evaluator is a cluster of its own, and so is a process that neither TF_CONFIG nor a launcher of
    several processes describes.

    Args:
        cluster_resolver: Describes the cluster. Default: that of TF_CONFIG if it is set, else that of the launcher
            whose variables are there (`TorchrunClusterResolver`, `MPIClusterResolver`, `SlurmClusterResolver`), which
            the log names. TF_CONFIG='{}' means a process that trains alone.
        communication_options: How gradients travel. Default: `CommunicationOptions()`.
        batch_statistics: "global" (default): batch normalisation takes its moments over the global batch, as one
            device would. "replica" (default with `local_steps`): over each replica's share, as TensorFlow does.
        local_steps: Has each replica train by itself for a round of steps in `fit` and `Estimator.train`; what is said
            here of gradients then concerns the changes of the weights in a round. Default: every step is one of all.
        shard_optimizer_state: As for MirroredStrategy, over the devices of all workers. Default: False.

    Raises:
        ClusterSpecError: If the cluster is described wrongly, launchers contradict each other, or this process is a
            `ps` task.
        StartupOrderError: If JAX has started, or this process has joined a cluster before.
        AddressError: If an address of the cluster cannot be bound or resolved.
        MissingTaskError: If a task does not arrive within LOCKSTEP_JOIN_TIMEOUT seconds (300).
        MismatchError: If tasks differ in cluster, versions, options, `LOCKSTEP_XLA_LOWERINGS` or
            `LOCKSTEP_ONEDNN`.
        UnsupportedError: If the devices cannot do what the options ask for.

    Source: tf.distribute.MultiWorkerMirroredStrategy.
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: CommunicationOptions | None = None,
        *,
        batch_statistics: str | None = None,
        local_steps: LocalSteps | None = None,
        shard_optimizer_state: bool = False,
    ) -> None:
        from lockstep._engine.runtime import failure, local_training
        from lockstep._engine.step import backends
        from lockstep._engine.step.replicas import AXIS, Replicas

        # First of all: whatever fails from here on, `lockstep run` is to hear the reason from the task itself.
        failure.report_to_launcher()
        statistics = statistics_of(batch_statistics, local_steps)
        options = checked_options(communication_options)
        rounds = rounds_of(local_steps, batch_statistics, options)
        resolver = default_resolver() if cluster_resolver is None else cluster_resolver
        # Options are checked before the job is joined: an error of one task alone must not leave the others waiting.
        runtime, devices = _join(resolver, options)
        found = reduction(options, devices[0].platform)
        # Before the backend connects, which all tasks do together: those that do not fit must have ended by then.
        _demand_same_settings(runtime, devices[0].platform, statistics, options, local_steps, shard_optimizer_state)
        replicas = Replicas(runtime, devices, statistics, found, rounds, shard_optimizer_state)
        check_slots(replicas)
        backends.connect(runtime, devices, AXIS, options.timeout_seconds)
        super().__init__(replicas, resolver)
        if not runtime.is_alone:
            local_training.note_join(self, len(runtime.tasks))
            _watch_models()
            # A full collection stops the thread that shows signs of life, for 0.17 s of the processor with all that
            # Keras imports, and for seconds on a machine with ten times as much to do. What is there now stays.
            gc.freeze()


def _watch_models() -> None:
    """Has models notice that they train outside of the strategy."""
    from lockstep._engine.keras import unowned

    unowned.watch()


def _join(resolver: ClusterResolver, options: CommunicationOptions) -> tuple[Runtime, list[Device]]:
    """Joins the cluster, unless this process is all of it."""
    from lockstep._engine.runtime.join import join
    from lockstep._engine.runtime.runtime import Runtime

    cluster = resolver.cluster_spec()
    tasks = training_tasks(cluster)
    task = _own_task(resolver, tasks)
    if len(tasks) < 2 or task is None:
        return Runtime(), default_devices()
    runtime = join(cluster, task, options.timeout_seconds)
    return runtime, _all_devices()


def _own_task(resolver: ClusterResolver, tasks: tuple[Task, ...]) -> Task | None:
    """Returns this process' place among `tasks`, or `None` for a process that trains by itself."""
    task = resolver.task
    if task is not None and task.type == "ps":
        raise ClusterSpecError(
            f"A `ps` task takes no part in synchronous training. This process is {task}, says the cluster resolver. "
            'Do not start the program for `ps` tasks, or give it a task such as {"type": "worker", "index": 0}.'
        )
    # Nobody waits for an evaluator in a collective: it may come late, end early, or be missing.
    if task is None or task.type == "evaluator":
        return None
    if len(tasks) > 1 and task not in tasks:
        raise ClusterSpecError(
            f"This process must be a task of its cluster. Received: {task}; the cluster has "
            f"{', '.join(map(str, tasks))}. Correct `task` in TF_CONFIG."
        )
    return task


def _all_devices() -> list[Device]:
    """All devices of the default kind, the chief's first."""
    import jax

    # For what it does besides: it sizes XLA's thread pool, checks it, and registers what the platform brings.
    default_devices()
    # Process 0 is the chief: its replicas come first, and their values count in broadcasts.
    return sorted(jax.devices(), key=lambda d: (d.process_index, d.id))


def _demand_same_settings(
    runtime: Runtime,
    platform: str,
    statistics: str,
    options: CommunicationOptions,
    local_steps: LocalSteps | None,
    shards_optimizer_state: bool,
) -> None:
    from lockstep._engine.step import backends

    settings = {
        "batch_statistics": statistics,
        "communication_options": repr(options),
        "local_steps": repr(local_steps),
        "shard_optimizer_state": repr(shards_optimizer_state),
        # Programs that differ, if only in their rounding, give weights that differ.
        **backends.settings(platform),
    }
    advice = "Create the same strategy on every worker, and start all with the same settings in the environment."
    runtime.check_same("strategy options", settings, advice)
