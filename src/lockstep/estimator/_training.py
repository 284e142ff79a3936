"""Training of an Estimator: one run of the loop with hooks."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep import checkpoint
from lockstep._feed.feed import Feed
from lockstep._loop import loop
from lockstep._runtime.runtime import Runtime
from lockstep._step.outputs import Outputs
from lockstep._step.replicas import Replicas
from lockstep.errors import ArgumentError
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
        self._waits = False
        self._last: Outputs | None = None
        self._input = Input(request.input_fn, "train", replicas, is_distributed, engine.params, engine.config)

    def run(self) -> int:
        """Trains; returns the global step at the end."""
        job = self._engine.job("train", self._replicas, self._input)
        hooks = self._all_hooks(job)
        for hook in hooks:
            hook.begin()
        job.want(hooks)
        state, start = self._start(job)
        signals = AloneSignals() if self._runtime.is_alone else _FeedSignals()
        save = partial(self._save, job, state)
        session = Session(job, state, start, self._runtime.is_chief, signals, save, self._flush)
        self._initialise(job, state, session)
        self._driver = Driver(hooks, session, self._runtime.is_alone, self._note)
        with contextlib.ExitStack() as ending:
            # Files under way are waited for, however the run ends.
            ending.callback(self._close_stores)
            self._driver.create()
            feed = Feed(self._input.source, job.program, self._runtime, self._steps(job, hooks, start), at_most=True)
            if isinstance(signals, _FeedSignals):
                signals.feed = feed
            with feed.epoch(state.shapes()) as batches:
                loop.run(batches, job.program, state, self._driver)
            self._driver.end()
        # Only now is the last checkpoint there, for all tasks.
        self._runtime.agree("the end of Estimator.train", None)
        self._report()
        return session.global_step

    def _start(self, job: Job) -> tuple[VariableState, int]:
        """Restores or initialises the variables, on all tasks alike; returns the global step too."""
        runtime, path = self._runtime, self._latest_on_chief()
        mine = {"variables": job.digest(), "steps": [self._request.steps, self._request.max_steps]}
        answers = runtime.agree("Estimator.train", [mine, path], self._config.session_creation_timeout_secs)
        runtime.demand_equal("settings of Estimator.train", [a[0] for a in answers], _ADVICE)
        state = VariableState(job.program, self._first_values(job, path))
        if not runtime.is_alone:
            state.follow_chief()
        return state, state.global_step

    def _initialise(self, job: Job, state: VariableState, session: Session) -> None:
        """Calls the Scaffold's init_fn, unless values come from a checkpoint."""
        init_fn = job.spec.scaffold.init_fn
        if init_fn is None or session.global_step > 0:
            return
        init_fn(session)
        if not self._runtime.is_alone:
            state.follow_chief()

    def _latest_on_chief(self) -> str | None:
        return self._engine.latest_checkpoint() if self._runtime.is_chief else None

    def _first_values(self, job: Job, path: str | None) -> dict[str, Any]:
        if not self._runtime.is_chief:
            return dict(job.variables.zeros())
        return self._engine.values(job, path)

    def _steps(self, job: Job, hooks: Sequence[Any], start: int) -> int | None:
        """How many steps to make at most: also what StopAtStepHooks ask for, so that all tasks stop exactly there."""
        ends = [hook.last_step for hook in hooks if isinstance(hook, StopAtStepHook) and hook.last_step is not None]
        if self._request.steps is not None:
            ends.append(start + self._request.steps)
        if self._request.max_steps is not None:
            ends.append(self._request.max_steps)
        return max(0, -(-(min(ends) - start) // job.increment)) if ends else None

    def _all_hooks(self, job: Job) -> list[Any]:
        """In TensorFlow's order: those of the chief first."""
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

    def _save(self, job: Job, state: VariableState, directory: str, basename: str, step: int) -> str:
        """Writes a checkpoint, on the chief; every task may call it."""
        if not self._runtime.is_chief:
            return os.path.join(directory, f"{basename}-{step}")
        self._driver.settle()
        store = self._store(directory, basename)
        path = store.save(step, state.local(job.variables.saved()), {})
        if self._waits:
            store.wait()
        return path

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
