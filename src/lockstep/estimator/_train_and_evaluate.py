"""train_and_evaluate, TrainSpec and EvalSpec: the same program on every task of a cluster, each doing its part.

Source: tensorflow_estimator/python/estimator/training.py, where _TrainingExecutor is the trainer below.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.servers.chief_call import ChiefCall
from lockstep.distribute import ParameterServerStrategy
from lockstep.errors import ArgumentError, CheckpointError, Preempted, UnsupportedError
from lockstep.estimator._arguments import (
    check_function,
    check_hooks,
    check_instances,
    check_listeners,
    check_seconds,
    check_step_count,
)
from lockstep.estimator._core import global_step_of
from lockstep.estimator._estimator import Estimator, core_of
from lockstep.estimator._evaluation.checkpoints import EvaluationListener, Evaluations, Result, as_json, from_json
from lockstep.estimator._evaluation.evaluator import Evaluator
from lockstep.estimator._export.exporters import Exporter
from lockstep.estimator._servers.job import servers_of
from lockstep.estimator._status import Status, StatusFile, StatusWatch

if TYPE_CHECKING:
    from lockstep._engine.keras.servers.options import ServerOptions
    from lockstep.estimator._run_config import RunConfig

_log = logging.getLogger("lockstep")
# The call by which workers learn the chief's result.
_RESULT = "train_and_evaluate"
# Seconds between looks at the evaluator's status.
_POLL_SECONDS = 1.0
# A living evaluator renews its status every 2 seconds; 30 missed renewals also cover a slow network file system.
_ALIVE_SECONDS = 60.0


class _TrainSpec(NamedTuple):
    input_fn: Callable[..., Any]
    max_steps: int | None
    hooks: tuple[Any, ...]
    saving_listeners: tuple[Any, ...]


class TrainSpec(_TrainSpec):
    """The training settings of train_and_evaluate.

    Args:
        input_fn: Returns the training data: a dataset of (features, labels), or the two.
        max_steps: At which global step training ends; `None`: when the data ends.
        hooks: `SessionRunHook`s, for every task that trains.
        saving_listeners: `CheckpointSaverListener`s, for the chief.

    Raises:
        ArgumentError: A value is of another kind, or `max_steps` is not above 0.

    Source: tf.estimator.TrainSpec.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        max_steps: int | None = None,
        hooks: Iterable[Any] | None = None,
        saving_listeners: Iterable[Any] | None = None,
    ) -> TrainSpec:
        """Checks and makes one."""
        return super().__new__(
            cls,
            check_function(input_fn, "input_fn"),
            check_step_count(max_steps, "max_steps"),
            check_hooks(hooks),
            check_listeners(saving_listeners),
        )


class _EvalSpec(NamedTuple):
    input_fn: Callable[..., Any]
    steps: int | None
    name: str | None
    hooks: tuple[Any, ...]
    exporters: tuple[Any, ...]
    start_delay_secs: float
    throttle_secs: float


class EvalSpec(_EvalSpec):
    """The evaluation settings of train_and_evaluate.

    Args:
        input_fn: Returns the data: a dataset of (features, labels), or the two.
        steps: Number of batches; `None` for all.
        name: Name of this evaluation, to tell several apart: summaries go to "eval_" and the name.
        hooks: `SessionRunHook`s.
        exporters: An `Exporter` or several, of different names; each exports after each evaluation.
        start_delay_secs: Seconds that an evaluator waits before its first evaluation.
        throttle_secs: Minimum seconds between the starts of evaluations.

    Raises:
        ArgumentError: A value is of another kind, or out of range; or exporters have no names of their own.

    Source: tf.estimator.EvalSpec.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        steps: int | None = 100,
        name: str | None = None,
        hooks: Iterable[Any] | None = None,
        exporters: object | None = None,
        start_delay_secs: float = 120,
        throttle_secs: float = 600,
    ) -> EvalSpec:
        """Checks and makes one."""
        if name is not None and not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f'name must be a string, or None. Received: {name!r}. Example: name="validation"')
        return super().__new__(
            cls,
            check_function(input_fn, "input_fn"),
            check_step_count(steps, "steps"),
            name,
            check_hooks(hooks),
            _check_exporters(exporters),
            check_seconds(start_delay_secs, "start_delay_secs"),
            check_seconds(throttle_secs, "throttle_secs"),
        )


def _check_exporters(values: object) -> tuple[Any, ...]:
    exporters = (values,) if isinstance(values, Exporter) else values
    example = 'LatestExporter("latest", serving_input_receiver_fn)'
    checked = check_instances(exporters, Exporter, "exporters", example)
    names: list[Any] = [exporter.name for exporter in checked]
    for name in names:
        if not isinstance(name, str) or not name or names.count(name) > 1:
            raise ArgumentError(
                "Each exporter must have a name of its own that is not empty: it is that of a directory. Received: "
                f"{names!r}."
            )
    return checked


def train_and_evaluate(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> Result:
    """Trains and evaluates, in one process or as this task's part of a cluster.

    Chief and workers train, with the strategy in `RunConfig.train_distribute`. An `evaluator` task follows the
    checkpoints, evaluates every one that it can, and ends when training ends. Without an evaluator the workers evaluate
    together, after checkpoints and at the end.

    Args:
        estimator: The Estimator to train.
        train_spec: The training settings.
        eval_spec: The evaluation settings, with exporters.

    Returns:
        The metrics of the last evaluation and the results of exporters, the same on every worker. (None, None) if
        `max_steps` had been reached before.

    Raises:
        ArgumentError: If a spec or the cluster is invalid.
        PeerError: On the evaluator, if the training fails.

    Source: tf.estimator.train_and_evaluate.
    """
    arguments: dict[str, tuple[object, type]] = {
        "estimator": (estimator, Estimator),
        "train_spec": (train_spec, TrainSpec),
        "eval_spec": (eval_spec, EvalSpec),
    }
    for name, (value, kind) in arguments.items():
        if not isinstance(value, kind):
            raise ArgumentError(f"`{name}` must have type `{kind.__name__}`. Received: {type(value)}.")
    config: Any = estimator.config
    if config.task_type == "evaluator":
        # RunConfig takes any index of an evaluator; TensorFlow refuses more than one here, too.
        if config.task_id > 0:
            raise ArgumentError(
                "For distributed training, there can only be one `evaluator` task (with task id 0). Received: task id "
                f"{config.task_id}. Start one."
            )
        return Evaluator(estimator, eval_spec, train_spec.max_steps).run()
    _check_strategy(config)
    servers = servers_of(config)
    if servers is None:
        return _Trainer(estimator, train_spec, eval_spec).run()
    return _take_part(servers, estimator, train_spec, eval_spec)


def _take_part(servers: ServerOptions, estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> Result:
    """Does this task's part in a job with parameter servers."""
    if servers.role == "ps":
        # TensorFlow's server never returns; this one ends with the chief's program.
        servers.job.serve_until_end()
        return None, None
    if servers.role == "worker":
        estimator.train(train_spec.input_fn, train_spec.hooks, None, train_spec.max_steps)
        return from_json(servers.job.begin(_RESULT).result()[0])
    result = _Trainer(estimator, train_spec, eval_spec).run()
    call = servers.job.begin(_RESULT)
    assert isinstance(call, ChiefCall), "servers and workers have returned"
    call.end(as_json(result))
    return result


class _Trainer:
    """The training side of train_and_evaluate, on chief and workers."""

    def __init__(self, estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> None:
        self._estimator = estimator
        self._train_spec = train_spec
        self._eval_spec = eval_spec
        self._config: Any = estimator.config
        # Before the first message to the evaluator: `former` must be the status of an earlier run.
        self._status = StatusFile(estimator.model_dir, "trainer")
        self._evaluator = StatusWatch(estimator.model_dir, "evaluator")
        self._is_distributed = bool(self._config.cluster_spec)

    def run(self) -> Result:
        strategy = self._config.train_distribute
        runtime = Runtime() if strategy is None else strategy._demanded_replicas().runtime
        if not self._has_evaluator(runtime):
            return self._train_and_evaluate_in_turn(runtime)
        with self._publishing(runtime):
            self._train(runtime, ())
            return self._result_of_evaluator(runtime)

    def _has_evaluator(self, runtime: Runtime) -> bool:
        """Returns whether the cluster lists an evaluator, or one that it does not list is alive."""
        listed = "evaluator" in self._config.cluster_spec.jobs if self._is_distributed else False
        # A status file may be of an evaluator that died: it is alive once it renews the file.
        if not listed and self._is_distributed and runtime.is_chief and _is_at_work(self._evaluator.latest):
            self._evaluator.wait_for_renewal()
        return bool(runtime.all_gather_object("whether there is an evaluator", listed or self._is_evaluator_alive())[0])

    def _is_evaluator_alive(self) -> bool:
        """Returns whether an evaluator is alive and has not ended."""
        if not self._is_distributed:
            return False
        return _is_at_work(self._evaluator.look()) and self._evaluator.silent_seconds < _ALIVE_SECONDS

    def _train_and_evaluate_in_turn(self, runtime: Runtime) -> Result:
        """Trains, and evaluates after checkpoints; _TrainingExecutor.run_local, on all workers of a strategy."""
        config, spec = self._config, self._train_spec
        if runtime.is_chief:
            _log.info("Running training and evaluation locally (non-distributed).")
            _log.info(
                "Start train and evaluate loop. The evaluate will happen after every checkpoint. Checkpoint frequency "
                "is determined based on RunConfig arguments: save_checkpoints_steps %s or save_checkpoints_secs %s.",
                config.save_checkpoints_steps,
                config.save_checkpoints_secs,
            )
        if not (config.save_checkpoints_secs or config.save_checkpoints_steps):
            raise ArgumentError(
                "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the "
                "RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs. Received: neither."
            )
        # TensorFlow returns (None, None) then, without an evaluation.
        if core_of(self._estimator).is_trained(runtime, spec.max_steps):
            if servers_of(config) is not None:
                # Workers are on their way into it: it says that there is nothing to do.
                self._estimator.train(spec.input_fn, max_steps=spec.max_steps)
            elif runtime.is_chief:
                _log.info("Skipping training since max_steps has already saved.")
            return None, None
        # Workers of one strategy evaluate together: the chief alone would leave the others waiting in a collective.
        strategy = config.eval_distribute if runtime.is_alone else config.train_distribute
        evaluations = Evaluations(self._estimator, self._eval_spec, spec.max_steps, strategy, runtime.is_chief)
        listener = EvaluationListener(evaluations, runtime, self._eval_spec.throttle_secs, self._is_evaluator_alive)
        with self._publishing(runtime):
            # Each evaluation between two steps would compile the same program again.
            with core_of(self._estimator).cache_programs():
                self._train(runtime, (listener,))
            if listener.is_left_to_evaluator:
                return self._result_of_evaluator(runtime)
        if evaluations.step is None:
            raise CheckpointError("There was no new checkpoint after the training. Eval status: missing checkpoint")
        if runtime.is_alone:
            return evaluations.result
        # Only the chief has exported.
        return from_json(runtime.all_gather_object("the result of the evaluation", as_json(evaluations.result))[0])

    @contextlib.contextmanager
    def _publishing(self, runtime: Runtime) -> Generator[None]:
        """Publishes and renews the trainer's status, within the context: also while it waits for a late evaluator."""
        self._publish(runtime, state="running")
        with self._status.renew_in_background():
            yield

    def _publish(self, runtime: Runtime, **status: Any) -> None:
        if runtime.is_chief and self._is_distributed:
            self._status.publish(status)

    def _train(self, runtime: Runtime, listeners: Sequence[Any]) -> None:
        """Trains, and publishes the outcome for the evaluator."""
        spec = self._train_spec
        try:
            # The user's first: TensorFlow evaluates a checkpoint when they have seen it.
            listeners = (*spec.saving_listeners, *listeners)
            self._estimator.train(spec.input_fn, spec.hooks, None, spec.max_steps, listeners)
        except Preempted:
            self._publish(runtime, state="preempted")  # The evaluator waits for the restarted trainer.
            raise
        except BaseException as error:
            # Of any kind, also SystemExit: an evaluator would wait for LOCKSTEP_PEER_TIMEOUT otherwise.
            self._publish(runtime, state="failed", error=f"{type(error).__name__}: {error}")
            raise
        # For messages: the evaluator itself goes by the checkpoints.
        step = global_step_of(self._estimator.latest_checkpoint()) if runtime.is_chief else None
        self._publish(runtime, state="ended", step=step)

    def _result_of_evaluator(self, runtime: Runtime) -> Result:
        """Waits for the evaluator's result of the last checkpoint, and broadcasts it."""
        # Only the chief reads the status file; one collective call per look keeps the others alive and informed.
        wait = None
        if runtime.is_chief:
            step = global_step_of(self._estimator.latest_checkpoint())
            wait = _EvaluatorWait(self._evaluator, self._estimator.model_dir, step, self._status.former.get("run"))
        while True:
            mine = wait.look() if wait is not None else None
            answer = runtime.all_gather_object("the result of the evaluator", mine)[0]
            if answer["is_over"]:
                return from_json(answer["result"])


class _EvaluatorWait:
    """The chief's wait for the evaluator to evaluate the last checkpoint, of `step`.

    TensorFlow's trainers do not wait, and return no result.
    """

    def __init__(self, watch: StatusWatch, model_dir: str, step: int, former_run: str | None) -> None:
        self._watch = watch
        self._model_dir = model_dir
        self._step = step
        self._former_run = former_run
        self._limits = Limits.from_environment()
        self._began = time.monotonic()
        _log.info("Waiting for the evaluator to evaluate step %d.", step)

    def look(self) -> dict[str, Any]:
        """Returns whether the wait is over, and the result."""
        status = self._watch.look() or self._early_evaluator_status()
        # An earlier step is of a run before: the evaluator has not seen this end yet.
        if status.get("is_final") and int(status.get("step") or 0) >= self._step:
            return {"is_over": True, "result": status["result"]}
        if "error" in status and not status.get("is_restarted"):
            _log.warning("The evaluator has failed; the training itself has ended well. %s", status["error"])
            return {"is_over": True, "result": None}
        waited = time.monotonic() - self._began
        # Not from before the wait began: an evaluator may have been silent in a long evaluation meanwhile.
        silent = min(self._watch.silent_seconds, waited)
        if silent > self._limits.peer or waited > self._limits.leave:
            _log.warning(
                "The evaluator has not evaluated step %d after %.0f s (at most LOCKSTEP_LEAVE_TIMEOUT); its status in "
                "%s was last renewed %.0f s ago (at most LOCKSTEP_PEER_TIMEOUT). It is missing, stopped or stuck. The "
                "training itself has ended well.",
                self._step,
                waited,
                self._model_dir,
                silent,
            )
            return {"is_over": True, "result": None}
        time.sleep(_POLL_SECONDS)
        return {"is_over": False, "result": None}

    def _early_evaluator_status(self) -> Status:
        """Returns the status of an evaluator that ended before this trainer began to watch."""
        # Without anything to train, it may be that fast: it started after the trainer's former run, whose status it has
        # seen, and has never seen a living trainer.
        status = self._watch.latest
        has_followed_none = status.get("follows") is None and status.get("after") == self._former_run
        return status if self._watch.may_be_of_this_run and has_followed_none else {}


def _is_at_work(status: Status) -> bool:
    """Returns whether the evaluator of a status has neither ended nor failed."""
    return bool(status) and not status.get("is_final") and "error" not in status


def _check_strategy(config: RunConfig) -> None:
    """Raises an error unless this task can train in its cluster."""
    jobs = config.cluster_spec.jobs if config.cluster_spec else []
    strategy = config.train_distribute
    if config.task_type == "ps" and not isinstance(strategy, ParameterServerStrategy | None):
        raise UnsupportedError(
            f"A `ps` task has nothing to do where {type(strategy).__name__} trains: each worker holds all variables. "
            f"Received: task {config.task_type} {config.task_id}. Do not start it, or leave train_distribute out, and "
            "servers hold the variables."
        )
    trainers = sum(config.cluster_spec.num_tasks(job) for job in jobs if job in ("chief", "master", "worker"))
    if trainers > 1 and strategy is None and "ps" not in jobs:
        raise ArgumentError(
            f"Several tasks that train need a strategy. Received: a cluster of {trainers}, and no train_distribute. "
            "Use RunConfig(train_distribute=lockstep.distribute.MultiWorkerMirroredStrategy())."
        )
