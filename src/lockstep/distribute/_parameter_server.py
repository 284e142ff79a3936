"""ParameterServerStrategy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lockstep.cluster_resolver import ClusterResolver, Task
from lockstep.cluster_resolver.internal import default_resolver
from lockstep.distribute._context import running_scope
from lockstep.distribute._devices import default_devices
from lockstep.distribute._strategy import Strategy
from lockstep.errors import ArgumentError, ClusterSpecError, UnsupportedError

if TYPE_CHECKING:
    from lockstep._engine.keras.servers.options import ServerOptions
    from lockstep._engine.servers.job import Job
    from lockstep.distribute._options import RunOptions
    from lockstep.distribute._values import ReduceOp

_MODES = ("async", "sync")
_JOBS = ("chief", "master", "worker", "ps")


@dataclass(frozen=True)
class Asked:
    """Options of a strategy as they were given; see `ParameterServerStrategy`."""

    mode: str
    staleness: int | None
    lazy: bool
    log_order: bool
    partitioner: Callable[..., Any] | None


class ParameterServerStrategy(Strategy):
    """Trains a model whose variables lie on parameter servers, with workers that may come, go and die.

    Every task runs the same program: `chief`, `worker` and `ps` tasks make the same calls, and `fit`, `evaluate` and
    `predict` return on all of them what they return on the chief (the task `chief`, else worker 0). The `ps` tasks hold
    the variables; the others compute gradients, each batch's once, whatever dies. Large tables of `Embedding` layers
    lie in ranges of rows on the servers, and a task has only the rows that its batch needs.

    An evaluator is a cluster of its own, and so is a process that no cluster describes: there, models train as with
    `OneDeviceStrategy`.

    Args:
        cluster_resolver: Describes the cluster. Default: that of TF_CONFIG.
        variable_partitioner: Into how many ranges of rows a variable is divided: called with shape and dtype, returns
            the number for each axis (see `lockstep.distribute.experimental.partitioners`). Default: tables of at least
            1 MiB over all servers, all else whole.
        mode: "async" (default, as TensorFlow): servers apply each gradient as it comes. "sync": each update waits for
            all shares of its batch, and training follows the trajectory of one device, bit-equal for any number of
            workers and servers.
        staleness: With "async": how many updates a gradient may have missed, at least 0. Default: `None`, no bound.
        replicas: With "sync": into how many shares each batch is divided, as
            `MultiWorkerMirroredStrategy(batch_statistics="replica")` of so many replicas divides it; of an Estimator so
            many batches of its input_fn are one. Default: 1, each batch whole, so that any model follows one device's
            trajectory.
        lazy: Whether rows without a gradient stay as they are where the optimizer would move them (Adam, momentum), as
            TensorFlow's `LazyAdam`. Default: False, rows are caught up when they are next used.
        log_order: Whether servers log the order in which they apply updates, for a run that repeats it. Default: False.

    Raises:
        ArgumentError: If an option is wrong, or does not go with the mode.
        ClusterSpecError: If the cluster has no `ps` or no worker task, or this process is none of its tasks.
        AddressError: If an address of the cluster cannot be bound.

    Source: tf.distribute.ParameterServerStrategy.
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        variable_partitioner: Callable[..., Any] | None = None,
        *,
        mode: str = "async",
        staleness: int | None = None,
        replicas: int | None = None,
        lazy: bool = False,
        log_order: bool = False,
    ) -> None:
        from lockstep._engine.runtime import failure
        from lockstep._engine.runtime.runtime import Runtime
        from lockstep._engine.step.replicas import Replicas

        failure.report_to_launcher()
        _check_options(mode, staleness, replicas)
        resolver = default_resolver() if cluster_resolver is None else cluster_resolver
        task = _own_task(resolver)
        self._servers: ServerOptions | None = None
        self._asked = Asked(mode, staleness, lazy, log_order, variable_partitioner)
        if task is not None:
            from lockstep._engine.servers.job import Job

            job = Job.connect(resolver.cluster_spec(), task)
            made = _options(job, task, variable_partitioner, mode, staleness, replicas, lazy, log_order)
            self._servers = replace(made, scheduler=self._coordinator)
        devices = default_devices()
        # Workers compute with one replica each, and so does a coordinator from outside of the cluster for them.
        super().__init__(Replicas(Runtime(), devices[:1] if _is_outside(resolver) else devices), resolver)

    @classmethod
    def _of_job(cls, job: Job, variable_partitioner: Any = None, **options: Any) -> ParameterServerStrategy:
        """Returns the strategy of a task that is part of a job already."""
        from lockstep._engine.runtime.runtime import Runtime
        from lockstep._engine.step.replicas import Replicas

        mode, staleness, replicas = (options.get(k) for k in ("mode", "staleness", "replicas"))
        mode = mode or "async"
        _check_options(mode, staleness, replicas)
        strategy = cls.__new__(cls)
        Strategy.__init__(strategy, Replicas(Runtime(), default_devices()[:1]))
        lazy, log_order = bool(options.get("lazy")), bool(options.get("log_order"))
        strategy._asked = Asked(mode, staleness, lazy, log_order, variable_partitioner)
        strategy._servers = _options(job, job.task, variable_partitioner, mode, staleness, replicas, lazy, log_order)
        return strategy

    @property
    def num_replicas_in_sync(self) -> int:
        """Into how many shares a global batch is divided."""
        return 1 if self._servers is None else self._servers.shares

    @property
    def is_chief(self) -> bool:
        """Returns whether this process writes for all: the `chief` task, else worker 0; an evaluator never is."""
        return super().is_chief if self._servers is None else self._servers.role == "chief"

    def run(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: RunOptions | None = None) -> Any:
        """Runs a function: in one that `ClusterCoordinator.schedule` takes, on the worker that computes it.

        Elsewhere on this task alone, where there are no servers, as for an evaluator.

        Raises:
            UnsupportedError: On a task of a job, outside of a scheduled function: its tasks do not run together. Use
                `Model.fit`, or `lockstep.distribute.coordinator.ClusterCoordinator(strategy).schedule(fn)`.

        Source: tf.distribute.ParameterServerStrategy.
        """
        if self._is_scheduled():
            from lockstep.distribute._options import run_options
            from lockstep.distribute._program import Program
            from lockstep.distribute._run import check_call

            run_options(options)
            given, by_name = check_call(fn, args, kwargs)
            return Program.convert(fn)(*given, **by_name)
        self._demand_alone("strategy.run")
        return super().run(fn, args, kwargs, options)

    def reduce(self, reduce_op: ReduceOp | str, value: Any, axis: int | None) -> Any:
        """Combines the values of a worker's replicas, of which there is one; see `Strategy.reduce`."""
        if not self._is_scheduled():
            return super().reduce(reduce_op, value, axis)
        from lockstep.distribute._coordinator.reduction import reduce_value

        return reduce_value(reduce_op, value, axis)

    def gather(self, value: Any, axis: int) -> Any:
        """Puts the values of a worker's replicas after each other, of which there is one; see `Strategy.gather`."""
        if not self._is_scheduled():
            return super().gather(value, axis)
        from lockstep.distribute._context import get_replica_context

        context = get_replica_context()
        assert context is not None
        return context.all_gather(value, axis)

    @property
    def _num_servers(self) -> int:
        """How many servers hold variables; 0 for an evaluator, or without a cluster."""
        if self._servers is not None:
            return self._servers.job.num_servers
        resolver = self.cluster_resolver
        outside = resolver is not None and _is_outside(resolver)
        return len(resolver.cluster_spec().task_indices("ps")) if resolver is not None and outside else 0

    def _is_scheduled(self) -> bool:
        """Returns whether a function that was scheduled is being traced."""
        scope = running_scope()
        return scope is not None and scope.strategy is self

    def _demand_alone(self, what: str) -> None:
        if self._servers is not None:
            raise UnsupportedError(
                f"With parameter servers each task computes batches of its own, and none waits for another. Received: "
                f"{what}, in which all replicas run together. Use Model.fit, "
                "ClusterCoordinator(strategy).schedule(fn), or MultiWorkerMirroredStrategy."
            )

    def _coordinator(self) -> Any:
        """Returns the coordinator of this strategy."""
        from lockstep.distribute._coordinator.coordinator import ClusterCoordinator

        return ClusterCoordinator(self)

    def _scheduler(self) -> Callable[[], Any] | None:
        """Returns what makes the coordinator, for a process that is none of the cluster's tasks; `None` without one."""
        resolver = self.cluster_resolver
        return self._coordinator if resolver is not None and _is_outside(resolver) else None

    @contextlib.contextmanager
    def scope(self) -> Generator[Strategy]:
        """Opens the context in which models are made for this strategy.

        Raises:
            StartupOrderError: If the scope of another strategy is open.
        """
        from lockstep._engine.keras import binding, ownership
        from lockstep.distribute import _context

        if self._servers is None:
            with super().scope(), ownership.scope(self._demanded_replicas(), scheduler=self._scheduler()):
                yield self
            return
        from lockstep._engine.keras.servers.tables import tables_by

        binding.install()
        replicas = self._demanded_replicas()
        with (
            _context.enter_strategy(self),
            ownership.scope(replicas, self._servers),
            tables_by(self._servers.policy),
        ):
            yield self


def _check_options(mode: str, staleness: int | None, replicas: int | None) -> None:
    if mode not in _MODES:
        raise ArgumentError(f'mode must be "async" or "sync". Received: {mode!r}. Choose one of them.')
    for name, value, least, goes_with in (("staleness", staleness, 0, "async"), ("replicas", replicas, 1, "sync")):
        if value is None:
            continue
        if type(value) is not int or value < least:
            raise ArgumentError(f"{name} must be a whole number of at least {least}. Received: {value!r}. Correct it.")
        if mode != goes_with:
            raise ArgumentError(
                f'{name} goes with mode="{goes_with}". Received: {name}={value} with mode="{mode}". Leave {name} out, '
                "or choose that mode."
            )


def _is_outside(resolver: ClusterResolver) -> bool:
    """Returns whether this process is none of the tasks of a cluster with servers: it may coordinate them."""
    return resolver.task is None and "ps" in resolver.cluster_spec().jobs


def _own_task(resolver: ClusterResolver) -> Task | None:
    """Returns this process' place in the job, or `None` for a process that trains by itself."""
    cluster, task = resolver.cluster_spec(), resolver.task
    if task is None or task.type == "evaluator":
        return None
    jobs = cluster.jobs
    if "ps" not in jobs or not {"worker", "chief", "master"} & set(jobs):
        raise ClusterSpecError(
            "ParameterServerStrategy needs a cluster with at least one `ps` task and one `worker` or `chief` task. "
            f"Received: jobs {sorted(jobs)}. Add the missing ones to TF_CONFIG, start the program with `lockstep run "
            "--workers 2 --ps 1`, or use MultiWorkerMirroredStrategy."
        )
    if task.type not in _JOBS:
        raise ClusterSpecError(
            f"A task of this cluster is one of {', '.join(_JOBS)} or evaluator. Received: {task}. Correct `task` in "
            "TF_CONFIG."
        )
    return task


def _options(
    job: Job,
    task: Task,
    partitioner: Callable[..., Any] | None,
    mode: str,
    staleness: int | None,
    replicas: int | None,
    lazy: bool,
    log_order: bool,
) -> ServerOptions:
    from lockstep._engine.keras.servers.options import ServerOptions
    from lockstep._engine.keras.servers.tables import TablePolicy

    role: Any = "chief" if job.is_chief else "ps" if task.type == "ps" else "worker"
    kind: Any = mode
    return ServerOptions(
        job, role, str(task), kind, staleness, replicas or 1, lazy, log_order, TablePolicy(partitioner)
    )
