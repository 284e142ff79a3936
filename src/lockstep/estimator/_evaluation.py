"""Evaluation of an Estimator."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lockstep._feed.feed import Feed
from lockstep._loop import loop
from lockstep._model_fn.variables import GLOBAL_STEP
from lockstep._step.outputs import Outputs
from lockstep._step.replicas import Replicas
from lockstep.errors import ArgumentError
from lockstep.estimator import _logs
from lockstep.estimator._driver import Driver
from lockstep.estimator._input import Input
from lockstep.estimator._job import Job
from lockstep.estimator._session import AloneSignals, Session
from lockstep.estimator._state import VariableState
from lockstep.summary import EventFile

if TYPE_CHECKING:
    from lockstep.estimator._engine import Engine

_log = logging.getLogger("lockstep")
Metrics = dict[str, Any]


class Evaluation:
    """One call of `evaluate`.

    Args:
        engine: The model.
        input_fn: The data.
        steps: How many batches at most, or `None` for all.
        hooks: The caller's.
        replicas: Where it runs.
        is_distributed: Whether there is a strategy.
    """

    def __init__(
        self,
        engine: Engine,
        input_fn: Any,
        steps: int | None,
        hooks: Sequence[Any],
        replicas: Replicas,
        is_distributed: bool,
    ) -> None:
        self._engine = engine
        self._steps = steps
        self._hooks = list(hooks)
        self._replicas = replicas
        self._input = Input(input_fn, "eval", replicas, is_distributed, engine.params, engine.config)
        self._outputs: Outputs | None = None

    def run(self, first_values: Callable[[Job], dict[str, np.ndarray]]) -> Metrics:
        """Evaluates; returns the metrics, with "loss" and "global_step".

        Args:
            first_values: Returns the values of the variables, on the chief.
        """
        runtime = self._replicas.runtime
        job = self._engine.job("eval", self._replicas, self._input)
        _demand_names_are_free(job)
        _log.info("Starting evaluation at %s", time.strftime("%Y-%m-%dT%H:%M:%S"))
        hooks = [*self._hooks, *(job.spec.evaluation_hooks or ()), *self._progress()]
        for hook in hooks:
            hook.begin()
        job.want(hooks)
        state = VariableState(job.program, first_values(job) if runtime.is_chief else job.variables.zeros())
        if not runtime.is_alone:
            runtime.demand_same(
                "settings of evaluation", [job.digest(), self._steps], "Evaluate alike on every worker."
            )
            state.follow_chief()
        step = state.global_step
        driver = Driver(hooks, Session(job, state, step, runtime.is_chief, AloneSignals()), True, self._note)
        driver.create()
        feed = Feed(self._input.source, job.program, runtime, self._steps, at_most=True)
        started = time.perf_counter()
        with feed.epoch(state.shapes()) as batches:
            loop.run(batches, job.program, state, driver)
        metrics = self._metrics(step)
        driver.settle()
        runtime.release()
        driver.end()
        _log.info("Inference Time : %0.5fs", time.perf_counter() - started)
        _log.info("Finished evaluation at %s", time.strftime("%Y-%m-%d-%H:%M:%S"))
        return metrics

    def _progress(self) -> list[Any]:
        return [_Progress(self._steps)] if self._replicas.runtime.is_chief else []

    def _note(self, outputs: Outputs) -> None:
        self._outputs = outputs

    def _metrics(self, step: int) -> Metrics:
        if self._outputs is None:
            raise ArgumentError(
                "An evaluation needs at least one batch. Received: an input_fn without any. Check its source."
            )
        found = {name: _value(v) for name, v in self._outputs.last["metrics"].items()}
        found[GLOBAL_STEP] = step
        return {name: found[name] for name in sorted(found)}


def _value(value: Any) -> Any:
    """A single number as Python's, which prints and goes into JSON as a number; arrays stay arrays."""
    array = np.asarray(value)
    return array.item() if array.ndim == 0 else array


def _demand_names_are_free(job: Job) -> None:
    for name in ("loss", GLOBAL_STEP):
        if name in (job.spec.eval_metric_ops or {}):
            raise ArgumentError(
                f"Metric with name {name!r} is not allowed, because Estimator already defines a default metric with "
                "the same name. Give it another name in eval_metric_ops."
            )


class _Progress:
    """Logs how far an evaluation is: each tenth from 20 steps up, else each step."""

    def __init__(self, steps: int | None) -> None:
        self._steps = steps
        self._every = 1 if steps is None or steps < 20 else steps // 10
        self._done = 0

    def begin(self) -> None:
        """Does nothing."""

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Starts at the first step."""
        self._done = 0

    def before_run(self, run_context: Any) -> None:
        """Asks for nothing."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts."""
        self._done += 1
        if self._steps is None and self._is_round():
            _log.info("Evaluation [%d]", self._done)
        elif self._steps is not None and (self._done % self._every == 0 or self._done == self._steps):
            _log.info("Evaluation [%d/%d]", self._done, self._steps)

    def end(self, session: Any) -> None:
        """Does nothing."""

    def _is_round(self) -> bool:
        """1 to 9, then 10, 20, ..., 100, 200, ..., so that the number of lines stays bounded."""
        unit = 10 ** (len(str(self._done)) - 1)
        return self._done % unit == 0


def evaluate(
    engine: Engine,
    strategy: Any,
    input_fn: Any,
    steps: int | None,
    hooks: Sequence[Any],
    checkpoint_path: str | None,
    directory: str,
) -> Metrics:
    """Evaluates a checkpoint, on all tasks of a strategy; see `Estimator.evaluate`."""
    replicas, is_distributed = engine.replicas_of(strategy)
    runtime = replicas.runtime
    with runtime.depending_on_others("Estimator.evaluate"), _logs.only_on(runtime.is_chief):
        path = checkpoint_path or (engine.latest_checkpoint() if runtime.is_chief else None)
        if path is None and runtime.is_chief:
            message = "Could not find trained model in model_dir: %s, running initialization to evaluate."
            _log.info(message, engine.model_dir)
        evaluation = Evaluation(engine, input_fn, steps, hooks, replicas, is_distributed)
        metrics = evaluation.run(lambda job: engine.values(job, path))
        if runtime.is_chief:
            write(directory, metrics, path)
    return metrics


def evaluate_in_memory(
    engine: Engine, session: Session, input_fn: Any, steps: int | None, hooks: Sequence[Any], directory: str
) -> Metrics:
    """Evaluates the variables of a training under way, on this process' first device."""
    values = session.values()

    def first_values(job: Job) -> dict[str, np.ndarray]:
        fresh = job.variables.initial_values()
        return {key: values.get(key, fresh[key]) for key in fresh}

    metrics = Evaluation(engine, input_fn, steps, hooks, engine.own_replicas(), False).run(first_values)
    write(directory, metrics, None)
    return metrics


def write(directory: str, metrics: Metrics, path: str | None) -> None:
    """Writes an evaluation for TensorBoard, and logs it."""
    step = int(metrics[GLOBAL_STEP])
    shown = ", ".join(f"{k} = {_shown(v)}" for k, v in metrics.items())
    _log.info("Saving dict for global step %d: %s", step, shown)
    file = EventFile(directory)
    for name, value in metrics.items():
        if name != GLOBAL_STEP and isinstance(value, (int, float)):
            file.scalar(name, value, step)
    if path is not None:
        _log.info("Saving 'checkpoint_path' summary for global step %d: %s", step, path)
        file.text_of_plugin("checkpoint_path", "text", path, step)
    file.close()


def _shown(value: Any) -> str:
    """A float with the digits that float32 has."""
    return str(np.float32(value)) if isinstance(value, float) and not jax.config.read("jax_enable_x64") else str(value)
