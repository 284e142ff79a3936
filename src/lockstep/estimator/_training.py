"""Training of an Estimator: one run of the loop with hooks."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep import checkpoint
from lockstep._feed.feed import Feed
from lockstep._loop import loop
from lockstep._runtime import failure
from lockstep._runtime.runtime import Runtime
from lockstep._step.outputs import Outputs
from lockstep._step.replicas import Replicas
from lockstep.errors import ArgumentError, CheckpointError, Preempted, UnsupportedError
from lockstep.estimator import _restoring
from lockstep.estimator._data_position import Data, Found
from lockstep.estimator._driver import Driver
from lockstep.estimator._hooks import (
    CheckpointSaverHook,
    LoggingTensorHook,
    NanTensorHook,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
)
from lockstep.estimator._input import Input
from lockstep.estimator._job import Job
from lockstep.estimator._session import AloneSignals, Session
from lockstep.estimator._state import VariableState

if TYPE_CHECKING:
    from lockstep.estimator._engine import Engine

_log = logging.getLogger("lockstep")
_SAVE_FAILED = "a checkpoint could not be written"
_ADVICE = "Every worker must run the same program with the same settings."


@dataclass(frozen=True)
class TrainRequest:
    """What `train` is asked to do.

    Attributes:
        input_fn: The data.
        hooks: The caller's.
        steps: So many more, or `None`.
        max_steps: Up to this global step, or `None`.
        saving_listeners: Told of checkpoints.
    """

    input_fn: Any
    hooks: Sequence[Any] = ()
    steps: int | None = None
    max_steps: int | None = None
    saving_listeners: Sequence[Any] = field(default=())


class Training:
    """One call of `train`.

    Args:
        engine: The model.
        request: What is asked for.
        replicas: Where it runs.
        is_distributed: Whether there is a strategy.
    """

    def __init__(self, engine: Engine, request: TrainRequest, replicas: Replicas, is_distributed: bool) -> None:
        self._engine = engine
        self._config: Any = engine.config
        self._request = request
        self._replicas = replicas
        self._runtime: Runtime = replicas.runtime
        self._stores: dict[tuple[str, str], checkpoint.CheckpointStore] = {}
        # The step that each has saved last, if training went on then; and why one could not be written.
        self._saved_at: dict[tuple[str, str], int] = {}
        self._failure: CheckpointError | None = None
        self._has_ended = False
        self._all_save = True
        self._waits = False
        self._last: Outputs | None = None
        self._input = Input(request.input_fn, "train", replicas, is_distributed, engine.params, engine.config)

    def run(self) -> int:
        """Trains; returns the global step at the end."""
        job = self._engine.job("train", self._replicas, self._input)
        hooks = self._all_hooks(job)
        for hook in hooks:
            hook.begin()
        job.want(hooks, self._config.session_creation_timeout_secs)
        state, start = self._start(job)
        signals = AloneSignals() if self._runtime.is_alone else _FeedSignals()
        save = partial(self._save, job, state)
        session = Session(job, state, start, self._runtime.is_chief, signals, save, self._flush)
        self._session = session
        self._initialise(job, state, session)
        self._driver = Driver(hooks, session, self._runtime.is_alone, self._note)
        feed = Feed(self._input.source, job.program, self._runtime, self._steps(job, hooks, start), at_most=True)
        self._data = Data(self._runtime, feed, job.program)
        self._data.restore(self._found)
        if isinstance(signals, _FeedSignals):
            signals.feed = feed
        with contextlib.ExitStack() as ending:
            # Files under way are waited for, however the run ends.
            ending.callback(self._close_stores)
            self._driver.create()
            with feed.epoch(state.shapes()) as batches:
                self._loop(batches, job, state, hooks)
            state.give(job.program.settle(state.take(), ends=True))
            self._has_ended = True
            self._driver.end()
            self._mark_end(job, state)
            # Only now is the last checkpoint there, for all tasks.
            self._demand_saved("the end of Estimator.train")
        self._report()
        return session.global_step

    def _loop(self, batches: Any, job: Job, state: VariableState, hooks: Sequence[Any]) -> None:
        """Runs the steps. If the job is asked to end, what is not saved yet is saved, while the data are still open."""
        try:
            loop.run(batches, job.program, state, self._driver)
        except Preempted:
            for hook in hooks:
                if isinstance(hook, CheckpointSaverHook):
                    hook.on_preempted(self._session)
            self._flush()
            raise

    def _mark_end(self, job: Job, state: VariableState) -> None:
        """A checkpoint of the last step that was saved on the way does not know that it is the end: once more."""
        for (directory, basename), step in list(self._saved_at.items()):
            if step == self._session.global_step:
                self._save(job, state, directory, basename, step, together=True)

    def _start(self, job: Job) -> tuple[VariableState, int]:
        """Restores or initialises the variables, on all tasks alike; returns the global step too."""
        runtime = self._runtime
        loaded = _restoring.newest(self._engine.model_dir) if runtime.is_chief else None
        self._found = Found(job.program, runtime.is_chief, loaded)
        mine = {"variables": job.digest(), "steps": [self._request.steps, self._request.max_steps]}
        word = [mine, self._found.word()]
        answers = runtime.agree("Estimator.train", word, self._config.session_creation_timeout_secs)
        runtime.demand_equal("settings of Estimator.train", [a[0] for a in answers], _ADVICE)
        state = VariableState(job.program, self._first_values(job, loaded))
        if not runtime.is_alone:
            state.follow_chief()
        self._found.hear(answers[0][1])
        return state, state.global_step

    def _initialise(self, job: Job, state: VariableState, session: Session) -> None:
        """Calls the Scaffold's init_fn, unless values come from a checkpoint."""
        init_fn = job.spec.scaffold.init_fn
        if init_fn is None or session.global_step > 0:
            return
        init_fn(session)
        if not self._runtime.is_alone:
            state.follow_chief()

    def _first_values(self, job: Job, loaded: checkpoint.Checkpoint | None) -> dict[str, Any]:
        if not self._runtime.is_chief:
            return dict(job.variables.zeros())
        if loaded is None:
            return self._engine.values(job, None)
        return _restoring.values_of(job.variables, loaded)

    def _steps(self, job: Job, hooks: Sequence[Any], start: int) -> int | None:
        """How many steps to make at most: also what StopAtStepHooks ask for, so that all tasks stop exactly there."""
        ends = [hook.last_step for hook in hooks if isinstance(hook, StopAtStepHook) and hook.last_step is not None]
        if self._request.steps is not None:
            ends.append(start + self._request.steps)
        if self._request.max_steps is not None:
            ends.append(self._request.max_steps)
        return max(0, -(-(min(ends) - start) // job.increment)) if ends else None

    def _all_hooks(self, job: Job) -> list[Any]:
        """In TensorFlow's order: those of the chief first, the caller's before the look at the loss."""
        spec, config = job.spec, self._config
        own = [*self._chief_hooks(job), *self._request.hooks, NanTensorHook("loss")]
        if config.log_step_count_steps and self._runtime.is_chief:
            tensors = {"loss": "loss", "step": "global_step"}
            own.append(LoggingTensorHook(tensors, every_n_iter=config.log_step_count_steps))
        return [*own, *(spec.training_hooks or ())]

    def _chief_hooks(self, job: Job) -> list[Any]:
        """Hooks that write, on the chief; what all tasks must do when it saves, on the others."""
        config, directory = self._config, self._engine.model_dir
        hooks = self._saver_hooks(job)
        if not self._runtime.is_chief:
            return hooks
        hooks += job.spec.training_chief_hooks or ()
        if config.save_summary_steps:
            hooks.append(SummarySaverHook(save_steps=config.save_summary_steps, output_dir=directory))
        if config.log_step_count_steps:
            hooks.append(StepCounterHook(every_n_steps=config.log_step_count_steps, output_dir=directory))
        return hooks

    def _saver_hooks(self, job: Job) -> list[Any]:
        config = self._config
        listeners = [one for one in self._request.saving_listeners if self._runtime.is_chief or _is_for_all(one)]
        given = [*self._request.hooks, *(job.spec.training_hooks or ()), *(job.spec.training_chief_hooks or ())]
        savers = [hook for hook in given if isinstance(hook, CheckpointSaverHook)]
        chiefs = job.spec.training_chief_hooks or ()
        self._all_save = not any(isinstance(hook, CheckpointSaverHook) for hook in chiefs)
        if savers:
            savers[0].listeners.extend(listeners)
        # Listeners expect the file to be there; one that does not says so.
        told = [*listeners, *(one for hook in savers for one in hook.listeners)]
        self._waits = not all(getattr(one, "flushes", False) for one in told)
        if savers:
            return []
        if not (config.save_checkpoints_secs or config.save_checkpoints_steps):
            self._demand_no_listeners()
            return []
        return [
            CheckpointSaverHook(
                self._engine.model_dir,
                save_secs=config.save_checkpoints_secs,
                save_steps=config.save_checkpoints_steps,
                listeners=listeners,
            )
        ]

    def _demand_no_listeners(self) -> None:
        if self._request.saving_listeners:
            raise ArgumentError(
                "There should be a CheckpointSaverHook to use saving_listeners. Received: a RunConfig without "
                "checkpoints. Please set one of the RunConfig.save_checkpoints_steps or "
                "RunConfig.save_checkpoints_secs."
            )

    def _save(
        self, job: Job, state: VariableState, directory: str, basename: str, step: int, together: bool = False
    ) -> str:
        """Writes a checkpoint, on the chief; every task may call it, and all must if they save `together`."""
        together = together and self._all_save
        if not together and state.is_in_parts:
            raise UnsupportedError(
                "With shard_optimizer_state a part of the optimizers' state is on each worker, and all of them save "
                f"together. Received: a checkpoint for {directory} that not all of them save, by session.save or a "
                "CheckpointSaverHook in training_chief_hooks. Let RunConfig(save_checkpoints_steps=...) say when, or "
                "give all workers a CheckpointSaverHook."
            )
        arrays, extra = self._data.saved(self._session.batches, together, self._has_ended)
        if self._has_ended:
            self._saved_at.pop((directory, basename), None)
        elif together or self._runtime.is_alone:
            self._saved_at[directory, basename] = step
        # A process that was stopped, and given up by the others, must not write over what they have saved since.
        self._runtime.demand_current()
        # Weights that are not numbers must not replace good ones: who looks at losses does so now, on all tasks alike.
        self._driver.settle()
        # What lies in parts takes all tasks.
        values = state.local(job.variables.checkpoint_keys()) if self._runtime.is_chief or state.is_in_parts else {}
        if not self._runtime.is_chief:
            return os.path.join(directory, f"{basename}-{step}")
        store = self._store(directory, basename)
        with self._heeded():
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
        """Raises what a save in the background has failed with: with others, when all have been told."""
        with self._heeded():
            for store in self._stores.values():
                store.check()
        if not self._runtime.is_alone and self._session.told(_SAVE_FAILED):
            self._demand_saved("a checkpoint that could not be written")

    @contextlib.contextmanager
    def _heeded(self) -> Generator[None]:
        """Keeps what a save fails with until all tasks have been told; alone, it is raised at once."""
        try:
            yield
        except CheckpointError as error:
            if self._runtime.is_alone:
                raise
            self._failure = self._failure or error
            self._session.ask(_SAVE_FAILED)

    def _demand_saved(self, topic: str) -> None:
        """Waits until the files are on the disk, and raises on all tasks what has failed; all call it."""
        with self._heeded():
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
    """Words travel with the agreement on batches."""

    feed: Feed | None = None

    def ask(self, word: str) -> None:
        if self.feed is not None:
            self.feed.ask(word)

    def told(self, word: str) -> bool:
        return self.feed is not None and self.feed.told(word)


def _is_for_all(listener: Any) -> bool:
    """Whether a listener must run on every task, because what it does takes all of them."""
    return getattr(listener, "is_for_all_tasks", False)
