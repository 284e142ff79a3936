"""train_and_evaluate: the same program on every task of a cluster, each doing its part."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Generator
from typing import Any

from lockstep._runtime.generation import generation
from lockstep._runtime.limits import Limits
from lockstep._runtime.runtime import Runtime
from lockstep.errors import ArgumentError, CheckpointError, Preempted, UnsupportedError
from lockstep.estimator._estimator import Estimator, engine_of
from lockstep.estimator._evaluating import Evaluations, Result, as_json, from_json
from lockstep.estimator._evaluator import Evaluator
from lockstep.estimator._restoring import global_step_of
from lockstep.estimator._self_evaluation import SelfEvaluation
from lockstep.estimator._signs import Sign, new_run
from lockstep.estimator._specs import EvalSpec, TrainSpec

_log = logging.getLogger("lockstep")
_POLL_SECONDS = 1.0
# An evaluator renews its sign every few seconds.
_ALIVE_SECONDS = 60.0


def train_and_evaluate(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> Result:
    """Trains and evaluates: all of it in one process, or this task's part in a cluster.

    Chief and workers train, with the strategy in `RunConfig.train_distribute`. An `evaluator` task follows the
    checkpoints, evaluates every one that it can, and ends when training ends. Without an evaluator the workers evaluate
    together, after checkpoints and at the end.

    Args:
        estimator: What to train.
        train_spec: How.
        eval_spec: How to evaluate, and what to export.

    Returns:
        The metrics of the last evaluation, and what each exporter returned; on every task the same. (None, None) if
        `max_steps` had been reached before.

    Raises:
        ArgumentError: If a spec or the cluster is wrong.
        PeerError: On the evaluator, if the training fails.

    Source: tf.estimator.train_and_evaluate.
    """
    _check(estimator, train_spec, eval_spec)
    config: Any = estimator.config
    if config.task_type == "evaluator":
        return Evaluator(estimator, eval_spec, train_spec.max_steps).run()
    _demand_strategy(config)
    return _Trainer(estimator, train_spec, eval_spec).run()


class _Trainer:
    """A task that trains."""

    def __init__(self, estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> None:
        self._estimator = estimator
        self._train_spec = train_spec
        self._eval_spec = eval_spec
        self._config: Any = estimator.config
        self._sign = Sign(estimator.model_dir, "trainer")
        self._evaluator = Sign(estimator.model_dir, "evaluator")
        self._is_distributed = bool(self._config.cluster_spec)

    def run(self) -> Result:
        runtime = self._runtime()
        if self._has_evaluator(runtime):
            return self._with_evaluator(runtime)
        return self._alone(runtime)

    def _runtime(self) -> Runtime:
        strategy = self._config.train_distribute
        return Runtime() if strategy is None else strategy._demanded_replicas().runtime

    def _has_evaluator(self, runtime: Runtime) -> bool:
        """Whether the cluster lists an evaluator, or one that it does not list has given a sign of life."""
        listed = "evaluator" in self._config.cluster_spec.jobs if self._is_distributed else False
        return bool(runtime.agree("whether there is an evaluator", listed or self._evaluator_lives())[0])

    def _evaluator_lives(self) -> bool:
        """Whether there is one that has not come to its end."""
        if not self._is_distributed:
            return False
        sign = self._evaluator.read()
        return self._evaluator.age() < _ALIVE_SECONDS and not sign.get("is_final") and "error" not in sign

    def _alone(self, runtime: Runtime) -> Result:
        """Trains and evaluates in turn."""
        config, spec = self._config, self._train_spec
        if runtime.is_chief:
            _log.info("Running training and evaluation locally (non-distributed).")
            _log.info(
                "Start train and evaluate loop. The evaluate will happen after every checkpoint. Checkpoint frequency "
                "is determined based on RunConfig arguments: save_checkpoints_steps %s or save_checkpoints_secs %s.",
                config.save_checkpoints_steps,
                config.save_checkpoints_secs,
            )
        _demand_checkpoints(config)
        if engine_of(self._estimator).is_trained(runtime, spec.max_steps):
            if runtime.is_chief:
                _log.info("Skipping training since max_steps has already saved.")
            return None, None
        strategy = config.eval_distribute if runtime.is_alone else config.train_distribute
        evaluations = Evaluations(self._estimator, self._eval_spec, spec.max_steps, strategy, runtime.is_chief)
        listener = SelfEvaluation(evaluations, runtime, self._eval_spec.throttle_secs, self._evaluator_lives)
        with engine_of(self._estimator).keeping_programs(), self._leaving_signs(runtime):
            self._estimator.train(spec.input_fn, spec.hooks, None, spec.max_steps, (*spec.saving_listeners, listener))
        if listener.is_left_to_evaluator:
            return self._result_of_evaluator(runtime)
        if evaluations.step is None:
            raise CheckpointError("There was no new checkpoint after the training. Eval status: missing checkpoint")
        return _from_chief(runtime, evaluations.result)

    def _with_evaluator(self, runtime: Runtime) -> Result:
        spec = self._train_spec
        with self._leaving_signs(runtime):
            self._estimator.train(spec.input_fn, spec.hooks, None, spec.max_steps, spec.saving_listeners)
        return self._result_of_evaluator(runtime)

    @contextlib.contextmanager
    def _leaving_signs(self, runtime: Runtime) -> Generator[None]:
        """Tells an evaluator that the training runs, and how it ends."""
        if not (runtime.is_chief and self._is_distributed):
            yield
            return
        run = {"run": new_run(), "generation": generation()}
        self._sign.write({**run, "state": "running"})
        with self._sign.renewed():
            try:
                yield
            except Preempted:
                self._sign.write({**run, "state": "preempted"})  # It will be started again.
                raise
            except BaseException as error:
                self._sign.write({**run, "state": "failed", "error": f"{type(error).__name__}: {error}"})
                raise
            step = global_step_of(self._estimator.latest_checkpoint())
            self._sign.write({**run, "state": "ended", "step": step})

    def _result_of_evaluator(self, runtime: Runtime) -> Result:
        """Waits for the evaluator to come to the last checkpoint; every task gets its result."""
        step = global_step_of(self._estimator.latest_checkpoint()) if runtime.is_chief else 0
        waited = _Waiting(self._evaluator, step) if runtime.is_chief else None
        while True:
            mine = waited.look() if waited is not None else None
            answer = runtime.agree("the result of the evaluator", mine)[0]
            if answer["is_over"]:
                return from_json(answer["result"])


class _Waiting:
    """The chief's wait for the evaluator."""

    def __init__(self, sign: Sign, step: int) -> None:
        self._sign = sign
        self._step = step
        self._limits = Limits.from_environment()
        self._began = time.monotonic()
        _log.info("Waiting for the evaluator to evaluate step %d.", step)

    def look(self) -> dict[str, Any]:
        """Returns whether the wait is over, and with what result."""
        found = self._sign.read()
        if found.get("is_final") and int(found.get("step") or 0) >= self._step:
            return {"is_over": True, "result": found["result"]}
        if "error" in found:
            _log.warning("The evaluator has failed; the training itself has ended well. %s", found["error"])
            return {"is_over": True, "result": None}
        waited = time.monotonic() - self._began
        silent = min(self._sign.age(), waited)
        if silent > self._limits.peer or waited > self._limits.leave:
            _log.warning(
                "The evaluator has not evaluated step %d: no sign of it for %.0f s, after %.0f s. The training itself "
                "has ended well. Limits: LOCKSTEP_PEER_TIMEOUT, LOCKSTEP_LEAVE_TIMEOUT.",
                self._step,
                silent,
                waited,
            )
            return {"is_over": True, "result": None}
        time.sleep(_POLL_SECONDS)
        return {"is_over": False, "result": None}


def _from_chief(runtime: Runtime, result: Result) -> Result:
    """The exports are known to the chief only."""
    if runtime.is_alone:
        return result
    return from_json(runtime.agree("the result of the evaluation", as_json(result))[0])


def _check(estimator: Any, train_spec: Any, eval_spec: Any) -> None:
    for name, value, kind in (
        ("estimator", estimator, Estimator),
        ("train_spec", train_spec, TrainSpec),
        ("eval_spec", eval_spec, EvalSpec),
    ):
        if not isinstance(value, kind):
            raise ArgumentError(f"`{name}` must have type `{kind.__name__}`. Received: {type(value)}.")
    config: Any = estimator.config
    if config.task_type == "evaluator" and config.task_id > 0:
        raise ArgumentError(
            f"For distributed training, there can only be one `evaluator` task (with task id 0). Received: task id "
            f"{config.task_id}. Start one."
        )


def _demand_strategy(config: Any) -> None:
    """Raises unless this task can train in its cluster."""
    jobs = config.cluster_spec.jobs if config.cluster_spec else []
    if config.task_type == "ps" or ("ps" in jobs and config.train_distribute is None):
        raise UnsupportedError(
            "Parameter servers need asynchronous training, which this version of lockstep lacks. Received: a cluster "
            "with `ps` tasks. Leave them out of TF_CONFIG, and train synchronously: RunConfig(train_distribute="
            "lockstep.distribute.MultiWorkerMirroredStrategy())."
        )
    trainers = sum(config.cluster_spec.num_tasks(job) for job in jobs if job in ("chief", "master", "worker"))
    if trainers > 1 and config.train_distribute is None:
        raise ArgumentError(
            f"Several tasks that train need a strategy. Received: a cluster of {trainers}, and no train_distribute. "
            "Use RunConfig(train_distribute=lockstep.distribute.MultiWorkerMirroredStrategy())."
        )


def _demand_checkpoints(config: Any) -> None:
    if not (config.save_checkpoints_secs or config.save_checkpoints_steps):
        raise ArgumentError(
            "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the "
            "RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs. Received: neither."
        )
