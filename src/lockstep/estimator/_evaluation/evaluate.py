"""One evaluation of an Estimator, of a checkpoint or of the variables of a training."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lockstep._engine.input.feed import Feed
from lockstep._engine.loop import loop
from lockstep._engine.step.replicas import Replicas
from lockstep._engine.step.steps_per_execution import Outputs
from lockstep._types import Array
from lockstep.errors import ArgumentError
from lockstep.estimator import _logs
from lockstep.estimator._compiled_model_fn import CompiledModelFn
from lockstep.estimator._hook_runner import HookRunner
from lockstep.estimator._input_fns.source import Input
from lockstep.estimator._model_fn.variables import GLOBAL_STEP
from lockstep.estimator._session import AloneSignals, Session
from lockstep.estimator._state import VariableState
from lockstep.estimator._types import InputFn, Strategy
from lockstep.summary import EventFile

if TYPE_CHECKING:
    from lockstep.estimator._core import EstimatorCore

_log = logging.getLogger("lockstep")
Metrics = dict[str, Any]


class Evaluation:
    """One call of `evaluate`.

    Args:
        core: The estimator's core.
        input_fn: The input function.
        steps: Maximum number of batches, or `None` for all.
        hooks: The caller's hooks.
        replicas: The replicas it runs on.
        is_distributed: Whether a strategy is given.
    """

    def __init__(
        self,
        core: EstimatorCore,
        input_fn: InputFn,
        steps: int | None,
        hooks: Sequence[Any],
        replicas: Replicas,
        is_distributed: bool,
    ) -> None:
        self._core = core
        self._steps = steps
        self._hooks = list(hooks)
        self._replicas = replicas
        self._input = Input(input_fn, "eval", replicas, is_distributed, core.params, core.config)
        self._outputs: Outputs | None = None

    def run(self, first_values: Callable[[CompiledModelFn], dict[str, np.ndarray]]) -> Metrics:
        """Evaluates; returns the metrics, with "loss" and "global_step".

        Args:
            first_values: Returns the values of the variables, on the chief.
        """
        runtime = self._replicas.runtime
        compiled = self._core.compile("eval", self._replicas, self._input)
        _check_metric_names(compiled)
        _log.info("Starting evaluation at %s", time.strftime("%Y-%m-%dT%H:%M:%S"))
        hooks = [*self._hooks, *(compiled.spec.evaluation_hooks or ()), *self._progress()]
        for hook in hooks:
            hook.begin()
        compiled.request_outputs(hooks)
        state = VariableState(
            compiled.program, first_values(compiled) if runtime.is_chief else compiled.variables.zeros()
        )
        if not runtime.is_alone:
            runtime.demand_same(
                "settings of evaluation", [compiled.digest(), self._steps], "Evaluate alike on every worker."
            )
            state.broadcast_from_chief()
        step = state.global_step
        runner = HookRunner(hooks, Session(compiled, state, step, runtime.is_chief, AloneSignals()), True, self._note)
        runner.create()
        feed = Feed(self._input.source, compiled.program, runtime, self._steps, at_most=True)
        started = time.perf_counter()
        with feed.epoch(state.shapes()) as batches:
            loop.run(batches, compiled.program, state, runner)
        metrics = self._metrics(step)
        runner.settle()
        # From here on a failure is this process' own: hooks' `end` needs no peers, which may have left.
        runtime.release()
        runner.end()
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
        metrics = {name: _to_python(v) for name, v in self._outputs.last["metrics"].items()}
        metrics[GLOBAL_STEP] = step
        return {name: metrics[name] for name in sorted(metrics)}


def _to_python(value: Array) -> Any:
    """Converts a scalar to a Python number, for JSON and messages; returns other arrays as they are."""
    array = np.asarray(value)
    return array.item() if array.ndim == 0 else array


def _check_metric_names(compiled: CompiledModelFn) -> None:
    for name in ("loss", GLOBAL_STEP):
        if name in (compiled.spec.eval_metric_ops or {}):
            raise ArgumentError(
                f"Metric with name {name!r} is not allowed, because Estimator already defines a default metric with "
                "the same name. Give it another name in eval_metric_ops."
            )


class _Progress:
    """Hook that logs an evaluation's progress: each tenth from 20 steps up, else each step."""

    def __init__(self, steps: int | None) -> None:
        self._steps = steps
        self._every = 1 if steps is None or steps < 20 else steps // 10
        self._done = 0

    def begin(self) -> None:
        """Does nothing."""

    def after_create_session(self, session: Session, coord: object) -> None:
        """Starts at the first step."""
        self._done = 0

    def before_run(self, run_context: object) -> None:
        """Asks for nothing."""

    def after_run(self, run_context: object, run_values: object) -> None:
        """Counts."""
        self._done += 1
        if self._steps is None and self._is_round():
            _log.info("Evaluation [%d]", self._done)
        elif self._steps is not None and (self._done % self._every == 0 or self._done == self._steps):
            _log.info("Evaluation [%d/%d]", self._done, self._steps)

    def end(self, session: Session) -> None:
        """Does nothing."""

    def _is_round(self) -> bool:
        """Returns whether to log a count: 1 to 9, 10, 20, ..., 100, 200, ..., so that lines stay few."""
        unit = 10 ** (len(str(self._done)) - 1)
        return self._done % unit == 0


def evaluate(
    core: EstimatorCore,
    strategy: Strategy | None,
    input_fn: InputFn,
    steps: int | None,
    hooks: Sequence[Any],
    checkpoint_path: str | None,
    directory: str,
) -> Metrics:
    """Evaluates a checkpoint, on all tasks of a strategy; see `Estimator.evaluate`."""
    replicas, is_distributed = core.replicas_of(strategy)
    runtime = replicas.runtime
    with runtime.depending_on_others("Estimator.evaluate"), _logs.only_on(runtime.is_chief):
        path = checkpoint_path or (core.latest_checkpoint() if runtime.is_chief else None)
        if path is None and runtime.is_chief:
            message = "Could not find trained model in model_dir: %s, running initialization to evaluate."
            _log.info(message, core.model_dir)
        evaluation = Evaluation(core, input_fn, steps, hooks, replicas, is_distributed)
        metrics = evaluation.run(lambda compiled: core.values(compiled, path))
        if runtime.is_chief:
            write(directory, metrics, path)
    return metrics


def evaluate_in_memory(
    core: EstimatorCore, session: Session, input_fn: InputFn, steps: int | None, hooks: Sequence[Any], directory: str
) -> Metrics:
    """Evaluates the variables of a training under way, on this process' first device."""
    values = session.values()

    def first_values(compiled: CompiledModelFn) -> dict[str, np.ndarray]:
        fresh = compiled.variables.initial_values()
        return {key: values.get(key, fresh[key]) for key in fresh}

    metrics = Evaluation(core, input_fn, steps, hooks, core.first_device_replicas(), False).run(first_values)
    write(directory, metrics, None)
    return metrics


def write(directory: str, metrics: Metrics, path: str | None) -> None:
    """Writes an evaluation for TensorBoard, and logs it."""
    step = int(metrics[GLOBAL_STEP])
    text = ", ".join(f"{k} = {_format(v)}" for k, v in metrics.items())
    _log.info("Saving dict for global step %d: %s", step, text)
    file = EventFile(directory)
    for name, value in metrics.items():
        if name != GLOBAL_STEP and isinstance(value, (int, float)):
            file.scalar(name, value, step)
    if path is not None:
        _log.info("Saving 'checkpoint_path' summary for global step %d: %s", step, path)
        file.text_of_plugin("checkpoint_path", "text", path, step)
    file.close()


def _format(value: object) -> str:
    """Formats a float with the digits of float32."""
    return str(np.float32(value)) if isinstance(value, float) and not jax.config.read("jax_enable_x64") else str(value)
