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
from lockstep._step.replicas import Replicas
from lockstep.errors import ArgumentError
from lockstep.estimator._driver import Driver
from lockstep.estimator._input import Input
from lockstep.estimator._job import Job
from lockstep.estimator._session import AloneSignals, Session
from lockstep.estimator._state import VariableState
from lockstep.summary import EventFile

if TYPE_CHECKING:
    from lockstep.estimator._estimator import Estimator

_log = logging.getLogger("lockstep")
Metrics = dict[str, Any]


class Evaluation:
    """One call of `evaluate`.

    Args:
        estimator: Whose.
        input_fn: The data.
        steps: How many batches at most, or `None` for all.
        hooks: The caller's.
        replicas: Where it runs.
        is_distributed: Whether there is a strategy.
    """

    def __init__(
        self,
        estimator: Estimator,
        input_fn: Any,
        steps: int | None,
        hooks: Sequence[Any],
        replicas: Replicas,
        is_distributed: bool,
    ) -> None:
        self._estimator = estimator
        self._steps = steps
        self._hooks = list(hooks)
        self._replicas = replicas
        self._input = Input(input_fn, "eval", replicas, is_distributed, estimator.params, estimator.config)
        self._outputs: dict[str, Any] | None = None

    def run(self, first_values: Callable[[Job], dict[str, np.ndarray]]) -> Metrics:
        """Evaluates; returns the metrics, with "loss" and "global_step".

        Args:
            first_values: Returns the values of the variables, on the chief.
        """
        runtime = self._replicas.runtime
        job = self._estimator.job("eval", self._replicas, self._input)
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
        with feed.epoch() as batches:
            loop.run(batches, job.program, state, driver)
        metrics = self._metrics(job, step)
        driver.end()
        _log.info("Inference Time : %0.5fs", time.perf_counter() - started)
        _log.info("Finished evaluation at %s", time.strftime("%Y-%m-%d-%H:%M:%S"))
        return metrics

    def _progress(self) -> list[Any]:
        return [_Progress(self._steps)] if self._replicas.runtime.is_chief else []

    def _note(self, outputs: dict[str, Any]) -> None:
        self._outputs = outputs

    def _metrics(self, job: Job, step: int) -> Metrics:
        if self._outputs is None:
            raise ArgumentError(
                "An evaluation needs at least one batch. Received: an input_fn without any. Check its source."
            )
        found = {name: _value(job.program.local(v)) for name, v in self._outputs["metrics"].items()}
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
