"""Training of an Estimator: one call of `train`, from the traced model_fn to the last checkpoint.

Source: tf.estimator.Estimator._train_with_estimator_spec, MonitoredTrainingSession.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep import checkpoint
from lockstep._engine.input.feed import Feed
from lockstep._engine.input.source import Source
from lockstep._engine.loop import loop
from lockstep._engine.runtime import environment, failure, progress
from lockstep._engine.runtime.recorder import Recorder, recording
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import Outputs
from lockstep._engine.step.protocol import Program
from lockstep._engine.step.replicas import Replicas
from lockstep.errors import ArgumentError, CheckpointError, Preempted, UnsupportedError
from lockstep.estimator._core import CompiledModelFn, restore_loaded
from lockstep.estimator._data_position import InputState, RestoredPosition
from lockstep.estimator._hooks import (
    CheckpointSaverHook,
    LoggingTensorHook,
    NanTensorHook,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
)
from lockstep.estimator._input_fns.grouped import GroupedSource
from lockstep.estimator._input_fns.source import Input
from lockstep.estimator._session import AloneSignals, HookRunner, Session
from lockstep.estimator._state import VariableState
from lockstep.estimator._types import Hook, InputFn

if TYPE_CHECKING:
    from lockstep.estimator._core import EstimatorCore

_log = logging.getLogger("lockstep")
_SAVE_FAILED = "a checkpoint could not be written"
_ADVICE = "Every worker must run the same program with the same settings."
_STRICT = "LOCKSTEP_STRICT_CHECKPOINTS"
_STRICT_MEANING = "a damaged checkpoint is an error, and none before it is used"


@dataclass(frozen=True)
class TrainRequest:
    """The arguments of a `train` call; `steps` are relative, `max_steps` is a global step."""

    input_fn: InputFn
    hooks: Sequence[Hook] = ()
    steps: int | None = None
    max_steps: int | None = None
    saving_listeners: Sequence[Hook] = ()


class Training:
    """One call of `train`, with a strategy (`is_distributed`) or on this process' first device."""

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
        self._recorder: Recorder | None = None
        # The input_fn is called now, before the model_fn, in TensorFlow's order.
        self._input = self._make_input(is_distributed)

    def run(self) -> int:
        """Trains, and leaves a report of that in the model_dir; returns the global step at the end."""
        runtime, request = self._runtime, self._request
        account, task = runtime.preemption.progress, runtime.tasks[runtime.process]
        about = {"max_steps": request.max_steps or "", "steps": request.steps or "", **self._about()}
        with recording(
            account, task, self._core.model_dir, "Estimator.train", about, is_chief=runtime.is_chief
        ) as self._recorder:
            return self._train()

    def _about(self) -> dict[str, Any]:
        """Returns who computes a step, for the report of the run."""
        return {"replicas": self._replicas.count}

    def _train(self) -> int:
        runtime, timeout = self._runtime, self._config.session_creation_timeout_secs
        # 1. Trace: the model_fn is called once, abstractly, for its variables, hooks and summaries.
        compiled = self._core.compile("train", self._replicas, self._input)
        hooks = self._all_hooks(compiled)
        # `begin` precedes the program, as in TensorFlow, where hooks may still add to the graph.
        compiled.begin(hooks)
        compiled.request_outputs(hooks, timeout)
        source, program = source_of(compiled, self._input), self._program_of(compiled)
        # 2. Restore or initialize, on the chief; agree on settings and variables; broadcast what the chief has.
        state, position = self._first_state(compiled, program, timeout)
        start = state.global_step
        # 3. Open the session that hooks see, and the feed; an interrupted call goes on with its next batch.
        signals = self._make_signals()
        save = partial(self._save, compiled, state)
        session = self._session = Session(compiled, state, start, runtime.is_chief, signals, save, self._flush)
        init_fn = compiled.spec.scaffold.init_fn
        # TensorFlow's Scaffold runs init_fn only where no checkpoint is restored.
        # What it assigns on the chief counts.
        if init_fn is not None and session.global_step == 0:
            init_fn(session)
            if not runtime.is_alone:
                state.broadcast_from_chief()
        self._runner = self._make_runner(hooks, session)
        steps = self._step_limit(compiled, hooks, start)
        feed = Feed(source, program, runtime, steps, at_most=True)
        self._data = InputState(runtime, feed, program)
        self._data.restore(position)
        self._attach_feed(feed, steps)
        if isinstance(signals, _FeedSignals):
            signals.feed = feed
        with contextlib.ExitStack() as ending:
            # Waits for files in progress, however the run ends.
            ending.callback(self._close_stores)
            # 4. Run the steps. The first checkpoint is written by `create`, before any of them.
            self._runner.create()
            with feed.epoch(state.shapes()) as batches:
                try:
                    loop.run(batches, program, state, self._runner)
                except Preempted:
                    # While the input is still open: the checkpoint holds its position, too.
                    for hook in hooks:
                        if isinstance(hook, CheckpointSaverHook):
                            hook.on_preempted(session)
                    self._flush()
                    raise
            self._end_steps(state, program)
            # 5. End: hooks write the last checkpoint, marked as that of a complete call.
            self._has_ended = True
            self._runner.end()
            # One that was saved on the way at this very step lacks the mark: a restart would go on with the data.
            for (directory, basename), step in list(self._saved_at.items()):
                if step == session.global_step:
                    self._save(compiled, state, directory, basename, step, together=True)
            # Only after this is the last checkpoint complete for all workers.
            self._require_saved("the end of Estimator.train")
        if self._last is None:
            _log.warning("Training with estimator made no steps. Perhaps input is empty or misspecified.")
        else:
            _log.info("Loss for final step: %s.", np.asarray(self._last.last["loss"]))
        return session.global_step

    # ---- What other ways to train do otherwise ----

    def _make_input(self, is_distributed: bool) -> Input:
        """Calls the input_fn."""
        core = self._core
        return Input(self._request.input_fn, "train", self._replicas, is_distributed, core.params, core.config)

    def _program_of(self, compiled: CompiledModelFn) -> Program:
        """Returns the step program."""
        return compiled.program

    def _load_newest(self, strict: bool) -> checkpoint.Checkpoint | None:
        """Reads the newest checkpoint that is not damaged."""
        return checkpoint.load_newest(self._core.model_dir, strict=strict)

    def _contents(
        self, compiled: CompiledModelFn, state: VariableState, prefix: str, step: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the variables for a checkpoint, and JSON beside them; called on the chief alone but for shards."""
        # Gathering sharded state is collective.
        is_needed = self._runtime.is_chief or state.is_sharded
        return state.local(compiled.variables.checkpoint_keys()) if is_needed else {}, {}

    def _new_values(self, compiled: CompiledModelFn) -> Mapping[str, np.ndarray]:
        """Returns first values, where there is no checkpoint."""
        return self._core.first_values(compiled, None)

    def _state_of(self, compiled: CompiledModelFn, program: Any, values: Mapping[str, np.ndarray]) -> VariableState:
        """Returns the state with these first values."""
        return VariableState(program, values)

    def _make_signals(self) -> Any:
        """Returns the signals of hooks."""
        return AloneSignals() if self._runtime.is_alone else _FeedSignals()

    def _make_runner(self, hooks: Sequence[Any], session: Session) -> HookRunner:
        """Returns what calls the hooks."""
        return HookRunner(hooks, session, self._runtime.is_alone, self._note)

    def _attach_feed(self, feed: Feed, steps: int | None) -> None:
        """Notes the feed, before its first batch, and how many steps there will be at most."""

    def _end_steps(self, state: VariableState, program: Program) -> None:
        """Makes the state common, after the last step."""
        # Local SGD averages the replicas a last time, so that the checkpoint is of the common weights.
        state.give(program.synchronize(state.take(), ends=True))

    # ----

    def _first_state(
        self, compiled: CompiledModelFn, program: Program, timeout: float
    ) -> tuple[VariableState, RestoredPosition]:
        """Restores or initializes the variables, alike on all workers; returns the input position, too."""
        runtime, variables = self._runtime, compiled.variables
        loaded = None
        if runtime.is_chief:
            strict = environment.env_flag(_STRICT, _STRICT_MEANING, default=False)
            loaded = self._load_newest(strict)
            if loaded is not None:
                progress.mark("restored")
        position = RestoredPosition(program, runtime.is_chief, loaded)
        # Variables by name, shape and dtype: their values come from the chief.
        settings = {"variables": compiled.digest(), "steps": [self._request.steps, self._request.max_steps]}
        # One message says both: who differs must be told before values of other shapes are broadcast.
        answers = runtime.all_gather_object("Estimator.train", [settings, position.message_size()], timeout)
        runtime.check_equal("settings of Estimator.train", [a[0] for a in answers], _ADVICE)
        if not runtime.is_chief:
            values = variables.zeros()
        elif loaded is None:
            values = self._new_values(compiled)
        else:
            values = restore_loaded(variables, loaded)
        state = self._state_of(compiled, program, values)
        if not runtime.is_alone:
            state.broadcast_from_chief()
        position.receive(answers[0][1])
        # On all workers: the chief alone has read the checkpoint.
        if self._recorder is not None and state.global_step > 0:
            self._recorder.restored()
        return state, position

    def _step_limit(self, compiled: CompiledModelFn, hooks: Sequence[Any], start: int) -> int | None:
        """Returns the maximum number of steps, StopAtStepHooks included, so that all workers stop exactly there."""
        # A hook with num_steps has no last_step yet: it stops by a signal, with workers some steps later.
        ends = [hook.last_step for hook in hooks if isinstance(hook, StopAtStepHook) and hook.last_step is not None]
        if self._request.steps is not None:
            ends.append(start + self._request.steps)
        if self._request.max_steps is not None:
            ends.append(self._request.max_steps)
        # Rounded up: an increment above 1 may step beyond the end, as in TensorFlow.
        return max(0, -(-(min(ends) - start) // compiled.increment)) if ends else None

    def _all_hooks(self, compiled: CompiledModelFn) -> list[Any]:
        """Returns hooks in TensorFlow's order: the chief's first, the caller's before the check of the loss."""
        spec, config, is_chief = compiled.spec, self._config, self._runtime.is_chief
        # Hooks that write are the chief's; savers are on all workers, as saving is collective.
        hooks = self._saver_hooks(compiled)
        if is_chief:
            hooks += spec.training_chief_hooks or ()
            if config.save_summary_steps:
                hooks.append(SummarySaverHook(save_steps=config.save_summary_steps, output_dir=self._core.model_dir))
            # Before the line of the loss: logs of TensorFlow have "global_step/sec" first.
            if config.log_step_count_steps:
                every = config.log_step_count_steps
                hooks.append(StepCounterHook(every_n_steps=every, output_dir=self._core.model_dir))
        hooks += [*self._request.hooks, NanTensorHook("loss")]
        if is_chief and config.log_step_count_steps:
            tensors = {"loss": "loss", "step": "global_step"}
            hooks.append(LoggingTensorHook(tensors, every_n_iter=config.log_step_count_steps))
        return [*hooks, *(spec.training_hooks or ())]

    def _saver_hooks(self, compiled: CompiledModelFn) -> list[Any]:
        """Returns the hook that saves by the RunConfig, unless the program has its own, which gets the listeners."""
        config, spec, request = self._config, compiled.spec, self._request
        # TensorFlow's listeners are the chief's; one with `is_for_all_tasks` makes collective calls.
        is_chief = self._runtime.is_chief
        listeners = [x for x in request.saving_listeners if is_chief or getattr(x, "is_for_all_tasks", False)]
        chiefs = [hook for hook in spec.training_chief_hooks or () if isinstance(hook, CheckpointSaverHook)]
        everyones = [*request.hooks, *(spec.training_hooks or ())]
        savers = [*(hook for hook in everyones if isinstance(hook, CheckpointSaverHook)), *chiefs]
        self._all_save = not chiefs
        if savers:
            savers[0].listeners.extend(listeners)
        # A listener may read the file at once, as TensorFlow's can, unless its `flushes` says that it waits itself.
        called = [*listeners, *(listener for hook in savers for listener in hook.listeners)]
        self._waits = not all(getattr(listener, "flushes", False) for listener in called)
        if savers:
            return []
        if not (config.save_checkpoints_secs or config.save_checkpoints_steps):
            if request.saving_listeners:
                raise ArgumentError(
                    "There should be a CheckpointSaverHook to use saving_listeners. Received: a RunConfig without "
                    "checkpoints. Please set one of the RunConfig.save_checkpoints_steps or "
                    "RunConfig.save_checkpoints_secs."
                )
            return []
        secs, steps = config.save_checkpoints_secs, config.save_checkpoints_steps
        return [CheckpointSaverHook(self._core.model_dir, save_secs=secs, save_steps=steps, listeners=listeners)]

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
        with self._runtime.preemption.progress.being(progress.SAVING):
            return self._write(compiled, state, directory, basename, step, together)

    def _write(
        self, compiled: CompiledModelFn, state: VariableState, directory: str, basename: str, step: int, together: bool
    ) -> str:
        key = (directory, basename)
        arrays, extra = self._data.to_checkpoint(self._session.batches, together, self._has_ended)
        if self._has_ended:
            self._saved_at.pop(key, None)
        elif together or self._runtime.is_alone:
            self._saved_at[key] = step
        # A process that was suspended, and given up by the others, must not overwrite their newer checkpoints.
        self._runtime.check_current()
        # NaN weights must not replace good ones: hooks that check losses lazily do so now, on all workers alike.
        self._runner.settle()
        values, about = self._contents(compiled, state, os.path.join(directory, f"{basename}-{step}"), step)
        if not self._runtime.is_chief:
            return os.path.join(directory, f"{basename}-{step}")
        if key not in self._stores:
            config = self._config
            hours = config.keep_checkpoint_every_n_hours
            self._stores[key] = checkpoint.CheckpointStore(
                directory, basename, config.keep_checkpoint_max, math.inf if hours is None else hours
            )
        store = self._stores[key]
        with self._defer_save_errors():
            store.save(step, {**values, **arrays}, {**extra, **about})
            # Else it is written in the background, and its error comes with a later step.
            if self._waits:
                store.wait()
        return store.prefix_of(step)

    def _flush(self) -> None:
        for store in self._stores.values():
            store.wait()

    def _close_stores(self) -> None:
        for store in self._stores.values():
            store.close()

    def _note(self, outputs: Outputs) -> None:
        """Keeps the last outputs, and raises the error of a background save; with several workers, on all of them."""
        self._last = outputs
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
            # Raised on the chief alone it would leave the others in their next collective until they time out.
            self._failure = self._failure or error
            self._session.broadcast(_SAVE_FAILED)

    def _require_saved(self, topic: str) -> None:
        """Waits for the files, and raises a failed save's error on all workers; a collective call."""
        with self._defer_save_errors():
            self._flush()
        text = self._runtime.all_gather_object(topic, None if self._failure is None else str(self._failure))[0]
        if text is not None:
            raise failure.mark_agreed(self._failure or CheckpointError(f"{self._runtime.tasks[0]}: {text}"))


def source_of(compiled: CompiledModelFn, made: Input) -> Source:
    """Returns the batches that steps train on: of a SyncReplicasOptimizer all that one update is made of.

    Raises:
        UnsupportedError: If a strategy averages over replicas as well.
    """
    count, replicas = compiled.batches_of_update, compiled.replicas.count
    if count is None or (count == 1 and replicas == 1):
        return made.source
    if replicas > 1:
        raise UnsupportedError(
            "A strategy averages the gradients of its replicas by itself. Received: a SyncReplicasOptimizer in a "
            f"training with {replicas} replicas. Use the optimizer that it wraps; or leave train_distribute out, and "
            "train in a cluster with `ps` tasks."
        )
    return GroupedSource(made.source, count)


class _FeedSignals:
    """Signals that travel with the workers' agreement on batches, which is made anyway."""

    # There is none until the input is open; what hooks' `begin` broadcasts before is lost.
    feed: Feed | None = None

    def broadcast(self, signal: str) -> None:
        if self.feed is not None:
            self.feed.broadcast(signal)

    def has_received(self, signal: str) -> bool:
        return self.feed is not None and self.feed.has_received(signal)
