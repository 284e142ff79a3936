"""Training of an Estimator: one run of the loop with hooks."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep import checkpoint
from lockstep._engine.input.feed import Feed
from lockstep._engine.loop import loop
from lockstep._engine.runtime import failure
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.outputs import Outputs
from lockstep._engine.step.replicas import Replicas
from lockstep._types import Batch
from lockstep.errors import ArgumentError, CheckpointError, Preempted, UnsupportedError
from lockstep.estimator import _restoring
from lockstep.estimator._compiled_model_fn import CompiledModelFn
from lockstep.estimator._data_position import InputState, RestoredPosition
from lockstep.estimator._hook_runner import HookRunner
from lockstep.estimator._hooks import (
    CheckpointSaverHook,
    LoggingTensorHook,
    NanTensorHook,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
)
from lockstep.estimator._input_fns.source import Input
from lockstep.estimator._session import AloneSignals, Session
from lockstep.estimator._state import VariableState
from lockstep.estimator._types import Hook, InputFn

if TYPE_CHECKING:
    from lockstep.estimator._core import EstimatorCore

_log = logging.getLogger("lockstep")
_SAVE_FAILED = "a checkpoint could not be written"
_ADVICE = "Every worker must run the same program with the same settings."


@dataclass(frozen=True)
class TrainRequest:
    """The arguments of a `train` call.

    Attributes:
        input_fn: The input function.
        hooks: The caller's hooks.
        steps: So many more, or `None`.
        max_steps: Up to this global step, or `None`.
        saving_listeners: Told of checkpoints.
    """

    input_fn: InputFn
    hooks: Sequence[Hook] = ()
    steps: int | None = None
    max_steps: int | None = None
    saving_listeners: Sequence[Hook] = field(default=())


class Training:
    """One call of `train`.

    Args:
        core: The estimator's core.
        request: The arguments.
        replicas: The replicas it runs on.
        is_distributed: Whether a strategy is given.
    """

    def __init__(self, core: EstimatorCore, request: TrainRequest, replicas: Replicas, is_distributed: bool) -> None:
        self._core = core
        self._config: Any = core.config
        self._request = request
        self._replicas = replicas
        self._runtime: Runtime = replicas.runtime
        self._stores: dict[tuple[str, str], checkpoint.CheckpointStore] = {}
        # The last step of each store that was saved with training to go on; and the error of a failed save.
        self._saved_at: dict[tuple[str, str], int] = {}
        self._failure: CheckpointError | None = None
        self._has_ended = False
        self._all_save = True
        self._waits = False
        self._last: Outputs | None = None
        self._input = Input(request.input_fn, "train", replicas, is_distributed, core.params, core.config)

    def run(self) -> int:
        """Trains; returns the global step at the end."""
        compiled = self._core.compile("train", self._replicas, self._input)
        hooks = self._all_hooks(compiled)
        # `begin` precedes the program, as in TensorFlow, where hooks may still add to the graph.
        for hook in hooks:
            hook.begin()
        compiled.request_outputs(hooks, self._config.session_creation_timeout_secs)
        state, start = self._start(compiled)
        signals = AloneSignals() if self._runtime.is_alone else _FeedSignals()
        save = partial(self._save, compiled, state)
        session = Session(compiled, state, start, self._runtime.is_chief, signals, save, self._flush)
        self._session = session
        self._run_init_fn(compiled, state, session)
        self._runner = HookRunner(hooks, session, self._runtime.is_alone, self._note)
        feed = Feed(
            self._input.source, compiled.program, self._runtime, self._steps(compiled, hooks, start), at_most=True
        )
        self._data = InputState(self._runtime, feed, compiled.program)
        self._data.restore(self._position)
        if isinstance(signals, _FeedSignals):
            signals.feed = feed
        with contextlib.ExitStack() as ending:
            # Waits for files in progress, however the run ends.
            ending.callback(self._close_stores)
            self._runner.create()
            with feed.epoch(state.shapes()) as batches:
                self._loop(batches, compiled, state, hooks)
            state.give(compiled.program.settle(state.take(), ends=True))
            self._has_ended = True
            self._runner.end()
            self._mark_end(compiled, state)
            # Only after this is the last checkpoint complete for all workers.
            self._require_saved("the end of Estimator.train")
        self._report()
        return session.global_step

    def _loop(
        self, batches: Iterator[Batch], compiled: CompiledModelFn, state: VariableState, hooks: Sequence[Any]
    ) -> None:
        """Runs the steps; on preemption, saves unsaved steps while the input is still open."""
        try:
            loop.run(batches, compiled.program, state, self._runner)
        except Preempted:
            for hook in hooks:
                if isinstance(hook, CheckpointSaverHook):
                    hook.on_preempted(self._session)
            self._flush()
            raise

    def _mark_end(self, compiled: CompiledModelFn, state: VariableState) -> None:
        """Saves the last step's checkpoint again if it was saved on the way, without the mark of the end."""
        for (directory, basename), step in list(self._saved_at.items()):
            if step == self._session.global_step:
                self._save(compiled, state, directory, basename, step, together=True)

    def _start(self, compiled: CompiledModelFn) -> tuple[VariableState, int]:
        """Restores or initializes the variables, alike on all workers; returns the global step too."""
        runtime = self._runtime
        loaded = _restoring.load_newest(self._core.model_dir) if runtime.is_chief else None
        self._position = RestoredPosition(compiled.program, runtime.is_chief, loaded)
        mine = {"variables": compiled.digest(), "steps": [self._request.steps, self._request.max_steps]}
        signal = [mine, self._position.message_size()]
        answers = runtime.agree("Estimator.train", signal, self._config.session_creation_timeout_secs)
        runtime.demand_equal("settings of Estimator.train", [a[0] for a in answers], _ADVICE)
        state = VariableState(compiled.program, self._first_values(compiled, loaded))
        if not runtime.is_alone:
            state.broadcast_from_chief()
        self._position.receive(answers[0][1])
        return state, state.global_step

    def _run_init_fn(self, compiled: CompiledModelFn, state: VariableState, session: Session) -> None:
        """Calls the Scaffold's init_fn, unless values come from a checkpoint."""
        init_fn = compiled.spec.scaffold.init_fn
        # TensorFlow's Scaffold runs init_fn only where no checkpoint is restored.
        if init_fn is None or session.global_step > 0:
            return
        init_fn(session)
        if not self._runtime.is_alone:
            state.broadcast_from_chief()

    def _first_values(self, compiled: CompiledModelFn, loaded: checkpoint.Checkpoint | None) -> dict[str, Any]:
        if not self._runtime.is_chief:
            return dict(compiled.variables.zeros())
        if loaded is None:
            return self._core.values(compiled, None)
        return _restoring.restore_loaded(compiled.variables, loaded)

    def _steps(self, compiled: CompiledModelFn, hooks: Sequence[Any], start: int) -> int | None:
        """Returns the maximum number of steps, StopAtStepHooks included, so that all workers stop exactly there."""
        ends = [hook.last_step for hook in hooks if isinstance(hook, StopAtStepHook) and hook.last_step is not None]
        if self._request.steps is not None:
            ends.append(start + self._request.steps)
        if self._request.max_steps is not None:
            ends.append(self._request.max_steps)
        # Rounded up: an increment above 1 may step beyond the end, as in TensorFlow.
        return max(0, -(-(min(ends) - start) // compiled.increment)) if ends else None

    def _all_hooks(self, compiled: CompiledModelFn) -> list[Any]:
        """Returns hooks in TensorFlow's order: the chief's first, the caller's before the check of the loss."""
        spec, config = compiled.spec, self._config
        own = [*self._chief_hooks(compiled), *self._request.hooks, NanTensorHook("loss")]
        if config.log_step_count_steps and self._runtime.is_chief:
            tensors = {"loss": "loss", "step": "global_step"}
            own.append(LoggingTensorHook(tensors, every_n_iter=config.log_step_count_steps))
        return [*own, *(spec.training_hooks or ())]

    def _chief_hooks(self, compiled: CompiledModelFn) -> list[Any]:
        """Returns the hooks that write, on the chief; on other workers those for its collective saves."""
        config, directory = self._config, self._core.model_dir
        hooks = self._saver_hooks(compiled)
        if not self._runtime.is_chief:
            return hooks
        hooks += compiled.spec.training_chief_hooks or ()
        if config.save_summary_steps:
            hooks.append(SummarySaverHook(save_steps=config.save_summary_steps, output_dir=directory))
        if config.log_step_count_steps:
            hooks.append(StepCounterHook(every_n_steps=config.log_step_count_steps, output_dir=directory))
        return hooks

    def _saver_hooks(self, compiled: CompiledModelFn) -> list[Any]:
        config = self._config
        listeners = [one for one in self._request.saving_listeners if self._runtime.is_chief or _is_for_all(one)]
        hooks = [
            *self._request.hooks,
            *(compiled.spec.training_hooks or ()),
            *(compiled.spec.training_chief_hooks or ()),
        ]
        savers = [hook for hook in hooks if isinstance(hook, CheckpointSaverHook)]
        chiefs = compiled.spec.training_chief_hooks or ()
        self._all_save = not any(isinstance(hook, CheckpointSaverHook) for hook in chiefs)
        if savers:
            savers[0].listeners.extend(listeners)
        # A listener may read the file at once, as TensorFlow's can, unless its `flushes` says that it waits itself.
        called = [*listeners, *(one for hook in savers for one in hook.listeners)]
        self._waits = not all(getattr(one, "flushes", False) for one in called)
        if savers:
            return []
        if not (config.save_checkpoints_secs or config.save_checkpoints_steps):
            self._check_no_listeners()
            return []
        return [
            CheckpointSaverHook(
                self._core.model_dir,
                save_secs=config.save_checkpoints_secs,
                save_steps=config.save_checkpoints_steps,
                listeners=listeners,
            )
        ]

    def _check_no_listeners(self) -> None:
        if self._request.saving_listeners:
            raise ArgumentError(
                "There should be a CheckpointSaverHook to use saving_listeners. Received: a RunConfig without "
                "checkpoints. Please set one of the RunConfig.save_checkpoints_steps or "
                "RunConfig.save_checkpoints_secs."
            )

    def _save(
        self,
        compiled: CompiledModelFn,
        state: VariableState,
        directory: str,
        basename: str,
        step: int,
        together: bool = False,
    ) -> str:
        """Writes a checkpoint, on the chief; every task may call it, and all must if they save `together`."""
        together = together and self._all_save
        if not together and state.is_sharded:
            raise UnsupportedError(
                "With shard_optimizer_state a part of the optimizers' state is on each worker, and all of them save "
                f"together. Received: a checkpoint for {directory} that not all of them save, by session.save or a "
                "CheckpointSaverHook in training_chief_hooks. Let RunConfig(save_checkpoints_steps=...) say when, or "
                "give all workers a CheckpointSaverHook."
            )
        arrays, extra = self._data.to_checkpoint(self._session.batches, together, self._has_ended)
        if self._has_ended:
            self._saved_at.pop((directory, basename), None)
        elif together or self._runtime.is_alone:
            self._saved_at[directory, basename] = step
        # A process that was suspended, and given up by the others, must not overwrite their newer checkpoints.
        self._runtime.demand_current()
        # NaN weights must not replace good ones: hooks that check losses lazily do so now, on all workers alike.
        self._runner.settle()
        # Gathering sharded state is collective.
        values = state.local(compiled.variables.checkpoint_keys()) if self._runtime.is_chief or state.is_sharded else {}
        if not self._runtime.is_chief:
            return os.path.join(directory, f"{basename}-{step}")
        store = self._store(directory, basename)
        with self._defer_save_errors():
            store.save(step, {**values, **arrays}, extra)
            if self._waits:
                store.wait()
        return store.prefix_of(step)

    def _flush(self) -> None:
        for store in self._stores.values():
            store.wait()

    def _store(self, directory: str, basename: str) -> checkpoint.CheckpointStore:
        key = (directory, basename)
        if key not in self._stores:
            config = self._config
            self._stores[key] = checkpoint.CheckpointStore(
                directory, basename, config.keep_checkpoint_max, config.keep_checkpoint_every_n_hours
            )
        return self._stores[key]

    def _close_stores(self) -> None:
        for store in self._stores.values():
            store.close()

    def _note(self, outputs: Outputs) -> None:
        self._last = outputs
        self._check_saves()

    def _check_saves(self) -> None:
        """Raises the error of a background save; with several workers, once all know of it."""
        with self._defer_save_errors():
            for store in self._stores.values():
                store.check()
        if not self._runtime.is_alone and self._session.has_received(_SAVE_FAILED):
            self._require_saved("a checkpoint that could not be written")

    @contextlib.contextmanager
    def _defer_save_errors(self) -> Generator[None]:
        """Defers an error of a save until all workers know of it; in a single process, raises it at once."""
        try:
            yield
        except CheckpointError as error:
            if self._runtime.is_alone:
                raise
            self._failure = self._failure or error
            self._session.broadcast(_SAVE_FAILED)

    def _require_saved(self, topic: str) -> None:
        """Waits for the files, and raises a failed save's error on all workers; a collective call."""
        with self._defer_save_errors():
            self._flush()
        text = self._runtime.agree(topic, None if self._failure is None else str(self._failure))[0]
        if text is not None:
            raise failure.mark_agreed(self._failure or CheckpointError(f"{self._runtime.tasks[0]}: {text}"))

    def _report(self) -> None:
        if self._last is None:
            _log.warning("Training with estimator made no steps. Perhaps input is empty or misspecified.")
            return
        _log.info("Loss for final step: %s.", np.asarray(self._last.last["loss"]))


class _FeedSignals:
    """Signals travel with the agreement on batches."""

    feed: Feed | None = None

    def broadcast(self, signal: str) -> None:
        if self.feed is not None:
            self.feed.broadcast(signal)

    def has_received(self, signal: str) -> bool:
        return self.feed is not None and self.feed.has_received(signal)


def _is_for_all(listener: Hook) -> bool:
    """Returns whether a listener must run on every worker, because it makes collective calls."""
    return getattr(listener, "is_for_all_tasks", False)
