"""One evaluation of an Estimator: of a checkpoint, or of the variables of a training under way.

Source: tf.estimator.Estimator.evaluate, tensorflow_estimator/python/estimator/hooks/hooks.py.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lockstep._engine.input.feed import Feed
from lockstep._engine.loop import loop
from lockstep._engine.step.batches import Outputs
from lockstep._engine.step.replicas import Replicas
from lockstep._nest import map_structure
from lockstep._types import Array
from lockstep.errors import ArgumentError
from lockstep.estimator._core import CompiledModelFn, log_only_on
from lockstep.estimator._evaluation.by_rows import program_and_state
from lockstep.estimator._hooks import (
    GLOBAL_STEP,
    SecondOrStepTimer,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from lockstep.estimator._input_fns.source import Input
from lockstep.estimator._session import AloneSignals, HookRunner, Session
from lockstep.estimator._types import EstimatorLike, InputFn, Strategy
from lockstep.estimator._weights import is_by_rows
from lockstep.estimator.summary import FileWriterCache
from lockstep.summary.internal import protos

if TYPE_CHECKING:
    from lockstep.estimator._core import EstimatorCore

_log = logging.getLogger("lockstep")
Metrics = dict[str, Any]
FirstValues = Callable[[CompiledModelFn], Mapping[str, np.ndarray]]


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
    with runtime.collective_region("Estimator.evaluate"), log_only_on(runtime.is_chief):
        # The chief's view of the directory counts: it broadcasts what it has read.
        path = checkpoint_path or (core.latest_checkpoint() if runtime.is_chief else None)
        if path is None and runtime.is_chief:
            message = "Could not find trained model in model_dir: %s, running initialization to evaluate."
            _log.info(message, core.model_dir)
        # Of tables that lie in files by rows, one device needs no more than the rows of a batch.
        by_rows = not is_distributed and is_by_rows(path)
        input = Input(input_fn, "eval", replicas, is_distributed, core.params, core.config, on_host=by_rows)
        read = core.first_values_by_rows if by_rows else core.first_values
        metrics = _run(core, replicas, input, steps, hooks, lambda compiled: read(compiled, path))
        if runtime.is_chief:
            _write(directory, metrics, path)
    return metrics


def evaluate_in_memory(
    core: EstimatorCore, session: Session, input_fn: InputFn, steps: int | None, hooks: Sequence[Any], directory: str
) -> Metrics:
    """Evaluates the variables of a training under way, on this process' first device."""
    values = session.values()

    def first_values(compiled: CompiledModelFn) -> dict[str, np.ndarray]:
        # Metrics and what else the model_fn makes for evaluation alone are not among the training's variables.
        fresh = compiled.variables.initial_values()
        return {key: values.get(key, fresh[key]) for key in fresh}

    replicas = core.first_device_replicas()
    input = Input(input_fn, "eval", replicas, False, core.params, core.config)
    metrics = _run(core, replicas, input, steps, hooks, first_values)
    _write(directory, metrics, None)
    return metrics


def _run(
    core: EstimatorCore,
    replicas: Replicas,
    input: Input,
    steps: int | None,
    hooks: Sequence[Any],
    first_values: FirstValues,
) -> Metrics:
    """Evaluates; returns the metrics, with "loss" and "global_step". `first_values` is called on the chief alone."""
    runtime = replicas.runtime
    compiled = core.compile("eval", replicas, input)
    for name in ("loss", GLOBAL_STEP):
        if name in (compiled.spec.eval_metric_ops or {}):
            raise ArgumentError(
                f"Metric with name {name!r} is not allowed, because Estimator already defines a default metric with "
                "the same name. Give it another name in eval_metric_ops."
            )
    _log.info("Starting evaluation at %s", time.strftime("%Y-%m-%dT%H:%M:%S"))
    progress = [_Progress(steps)] if runtime.is_chief else []
    hooks = [*hooks, *(compiled.spec.evaluation_hooks or ()), *progress]
    compiled.begin(hooks)
    compiled.request_outputs(hooks)
    values = first_values(compiled) if runtime.is_chief else compiled.variables.zeros()
    program, state = program_and_state(compiled, values, input.source)
    if not runtime.is_alone:
        runtime.check_same("settings of evaluation", [compiled.digest(), steps], "Evaluate alike on every worker.")
        state.broadcast_from_chief()
    step = state.global_step
    # Signals of a process alone: nothing stops an evaluation but its data and `steps`, alike on all workers.
    session = Session(compiled, state, step, runtime.is_chief, AloneSignals())
    # Metrics are running totals in the state, so the last outputs hold those of all batches.
    last: deque[Outputs] = deque(maxlen=1)
    runner = HookRunner(hooks, session, True, last.append)
    runner.create()
    feed = Feed(input.source, program, runtime, steps, at_most=True)
    started = time.perf_counter()
    with feed.epoch(state.shapes()) as batches:
        loop.run(batches, program, state, runner)
    if not last:
        raise ArgumentError(
            "An evaluation needs at least one batch. Received: an input_fn without any. Check its source."
        )
    # TensorFlow's results are sorted by name.
    metrics: Metrics = map_structure(_on_host, last[0].last["metrics"])
    metrics[GLOBAL_STEP] = step
    runner.settle()
    # From here on a failure is this process' own: hooks' `end` needs no peers, which may have left.
    runtime.release()
    runner.end()
    _log.info("Inference Time : %0.5fs", time.perf_counter() - started)
    # TensorFlow's format: a dash here, a T at the start.
    _log.info("Finished evaluation at %s", time.strftime("%Y-%m-%d-%H:%M:%S"))
    return {name: metrics[name] for name in sorted(metrics)}


def _on_host(value: Array) -> Any:
    array = np.asarray(value)
    # Python numbers, for JSON and messages.
    return array.item() if array.ndim == 0 else array


class _Progress(SessionRunHook):
    """Hook that logs an evaluation's progress: each tenth from 20 steps up, else each step, as TensorFlow does."""

    def __init__(self, steps: int | None) -> None:
        self._steps = steps
        self._every = 1 if steps is None or steps < 20 else steps // 10
        self._done = 0

    def after_run(self, run_context: object, run_values: object) -> None:
        self._done += 1
        if self._steps is None:
            # TensorFlow logs each: here 1 to 9, 10, 20, ..., 100, 200, ..., so that lines stay few.
            unit = 10 ** (len(str(self._done)) - 1)
            if self._done % unit == 0:
                _log.info("Evaluation [%d]", self._done)
        elif self._done % self._every == 0 or self._done == self._steps:
            _log.info("Evaluation [%d/%d]", self._done, self._steps)


def _write(directory: str, metrics: Metrics, path: str | None) -> None:
    """Writes an evaluation for TensorBoard, and logs it."""
    step = int(metrics[GLOBAL_STEP])
    # Python's floats of float32 values would have 17 digits.
    is_float32 = not jax.config.read("jax_enable_x64")
    shown = {k: np.float32(v) if isinstance(v, float) and is_float32 else v for k, v in metrics.items()}
    text = ", ".join(f"{name} = {value!s}" for name, value in shown.items())
    _log.info("Saving dict for global step %d: %s", step, text)
    # One file for all evaluations of this process: TensorBoard reads no more of a file once there is a newer one.
    writer = FileWriterCache.get(directory)
    for name, value in metrics.items():
        if isinstance(value, (tuple, list, dict)):
            _log.warning("Skipping summary for %s: it is a structure of values. Report each under a name.", name)
        elif name != GLOBAL_STEP:
            writer.add_summary(_summary_of(name, value), step)
    if path is not None:
        _log.info("Saving 'checkpoint_path' summary for global step %d: %s", step, path)
        # TensorFlow writes it too: TensorBoard shows which checkpoint the numbers are of.
        writer.add_summary(protos.text_value("checkpoint_path", [path.encode()], "text", ()), step)
    writer.flush()


def _summary_of(name: str, value: Any) -> Any:
    """Returns a metric as a summary: a number, or an array, which TensorBoard itself does not show."""
    if isinstance(value, (int, float)):
        return protos.scalar_value(name, value)
    array = np.asarray(value)
    # Readers of event files find it there, as they do in TensorFlow's.
    return protos.tensor_value(name, array)


class InMemoryEvaluatorHook(SessionRunHook):
    """Hook that evaluates the variables in training: at the start, every so many steps, and at the end.

    Args:
        estimator: The Estimator that trains, on one machine.
        input_fn: See `Estimator.evaluate`.
        steps: See `Estimator.evaluate`; None: until the input ends.
        hooks: See `Estimator.evaluate`.
        name: See `Estimator.evaluate`.
        every_n_iter: Steps between actions, counted from the first step of this run.

    Source: tf.estimator.experimental.InMemoryEvaluatorHook.

    Raises:
        ArgumentError: If an argument is invalid, or there are several workers.
    """

    def __init__(
        self,
        estimator: EstimatorLike,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        name: str | None = None,
        every_n_iter: int | None = 100,
    ) -> None:
        if every_n_iter is None or every_n_iter <= 0:
            raise ArgumentError(f"invalid every_n_iter={every_n_iter}. It is a number of steps, at least 1.")
        if steps is not None and steps <= 0:
            raise ArgumentError(f"Must specify steps > 0, given: {steps}. None evaluates until the input ends.")
        config = estimator.config
        # On several workers all would have to evaluate together; TensorFlow's hook refuses them, too.
        if config.num_ps_replicas > 0 or config.num_worker_replicas > 1:
            raise ArgumentError(
                "InMemoryEvaluator supports only single machine (aka Local) setting. Received: "
                f"{config.num_worker_replicas} workers and {config.num_ps_replicas} parameter servers. Use "
                "train_and_evaluate, which evaluates checkpoints."
            )
        for hook in hooks or ():
            if not isinstance(hook, SessionRunHook):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ArgumentError(
                    f"Hooks must be a SessionRunHook, given: {hook!r}. Derive its class from "
                    "lockstep.estimator.SessionRunHook."
                )
        self._estimator = estimator
        self._input_fn = input_fn
        self._steps = steps
        self._hooks = list(hooks or ())
        self._name = name
        self._timer = SecondOrStepTimer(every_steps=every_n_iter)
        self._first_step = 0

    def begin(self) -> None:
        """Starts counting."""
        self._timer.reset()

    def after_create_session(self, session: Session, coord: object) -> None:
        """Evaluates the first values."""
        self._first_step = int(session.run(GLOBAL_STEP))
        self._evaluate(session, 0)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Evaluates, if it is time to."""
        # TensorFlow counts iterations of this run, not global steps.
        done = int(run_context.session.run(GLOBAL_STEP)) - self._first_step
        if self._timer.should_trigger_for_step(done):
            self._evaluate(run_context.session, done)

    def end(self, session: Session) -> None:
        """Evaluates the last values."""
        self._evaluate(session, int(session.run(GLOBAL_STEP)) - self._first_step)

    def next_step(self, step: int) -> int:
        """Returns the next step after which it evaluates."""
        return self._first_step + self._timer.next_trigger(step - self._first_step)

    def _evaluate(self, session: Session, done: int) -> None:
        self._estimator._evaluate_in_memory(session, self._input_fn, self._steps, self._hooks, self._name)
        self._timer.update_last_triggered_step(done)
