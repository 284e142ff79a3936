"""The step programs of a model: its own `train_step`, `test_step` and `predict_step`, compiled for its replicas.

They live where Keras keeps its compiled functions (`model.train_function`, ...), which `compile` clears.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import keras

from lockstep._engine.keras.compiled_models import is_compiled
from lockstep._engine.keras.non_finite import Reports, new_counters, watched
from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.keras.replica_step import local_train_step, replica_train_step
from lockstep._engine.step.batches import DeviceBatch, Outputs
from lockstep._engine.step.eager import EagerProgram
from lockstep._engine.step.local_sgd import LocalTraining
from lockstep._engine.step.program import StepProgram, adapter_for
from lockstep._engine.step.program_digest import Subject
from lockstep._engine.step.protocol import OutputMode, Program, Step
from lockstep._engine.step.replicas import Replicas
from lockstep._nest import on_opened, pack, unpack
from lockstep._types import Batch, Model, State
from lockstep.errors import ArgumentError, UnsupportedError

_ADVICE = (
    "Make and compile the same model on every worker: the same layers with the same settings, loss, optimizer and "
    "callbacks. Look for what depends on the task."
)


class TrainProgram(StepProgram):
    """Trains a model; undoes steps that are not finite, if a callback asks for it.

    Args:
        step: The step of the whole batch.
        replica_step: The step of one replica's shard, in the replica view.
        local: LocalTraining SGD, if the strategy has it.
    """

    def __init__(
        self,
        model: Model,
        step: Step,
        replicas: Replicas,
        replica_step: Step | None,
        local: LocalTraining | None = None,
    ) -> None:
        subject = _subject("train_step")
        adapter = adapter_for(replicas, replica_step, local, partial(_slots, model))
        super().__init__(step, replicas, adapter, subject=subject)
        self._model = model
        self._plain = step, replica_step
        self._most: int | None = None
        self._counters: Any = None
        self._reports: Reports | None = None
        self._last: Outputs | None = None
        self._is_inside = False

    @property
    def reports(self) -> Reports | None:
        """Returns the reports of steps that were not finite, if they are watched."""
        return self._reports

    def watch(self, most: int | None, where: Callable[[int], str] = str) -> None:
        """Watches the steps from now on, or no more; a collective call, before the first of them.

        Args:
            most: After how many steps in a row that are not finite training ends, at least 1; `None` to watch no more.
            where: Describes a step, by its number since training began.

        Raises:
            UnsupportedError: If gradients travel in fewer bytes, or replicas train by themselves in between.
        """
        self._reports = None if most is None else Reports(where, most, self._replicas.runtime)
        if most is None:
            return
        if self._replicas.local_sgd is not None:
            raise UnsupportedError(
                "Steps that are not finite can be undone where all replicas make them together. Received: NonFinite "
                "together with local_steps. Leave one of them out; keras.callbacks.TerminateOnNaN only looks at the "
                "loss."
            )
        reduction = self._replicas.reduction
        if reduction is not None and reduction.compresses:
            raise UnsupportedError(
                "Steps that are not finite can be undone where gradients travel as they are. Received: NonFinite "
                "together with gradient_dtype or power_sgd_rank. Leave one of them out; keras.callbacks.TerminateOnNaN "
                "only looks at the loss."
            )
        self._recompile(most)
        self._counters = self.place_state(jnp.asarray(new_counters()))

    def _recompile(self, most: int | None) -> None:
        """Replaces the steps by watched ones, or by plain ones. Between two watched trainings they stay compiled."""
        if most == self._most:
            return
        step, replica_step = self._plain
        if most is not None:
            step = watched(step, self._model, most)
            replica_step = None if replica_step is None else watched(replica_step, self._model, most)
        adapter = adapter_for(self._replicas, replica_step, None, partial(_slots, self._model))
        super().__init__(step, self._replicas, adapter, subject=_subject("train_step"))
        self._most = most

    def __call__(self, state: State, batch: DeviceBatch) -> tuple[Any, Any]:
        """Runs one step; `state` is donated."""
        if self._reports is None:
            self._recompile(None)
        if self._reports is None or self._is_inside:
            return super().__call__(state, batch)
        outputs, after = self.run(state, batch)
        return outputs.value, after

    def run(self, state: State, placed: DeviceBatch) -> tuple[Outputs, Any]:
        """Runs as many steps as `placed` has; `state` is donated."""
        if self._reports is None:
            self._recompile(None)
            return super().run(state, placed)
        if self._reports.ended and self._last is not None:
            # All workers know it since the same dispatch; the epoch ends without more steps.
            return self._last, state
        self._is_inside = True
        try:
            outputs, (after, self._counters) = super().run((state, self._counters), placed)
        finally:
            self._is_inside = False
        logs, counters = outputs.value
        self._reports.add(counters, placed)
        self._last = replace(outputs, value=logs)
        return self._last, after

    def decide(self, state: State, batch: Batch) -> None:
        """Decides whether several steps go into one dispatch; a collective call."""
        if self._reports is None:
            self._recompile(None)
        super().decide(state if self._reports is None else (state, self._counters), batch)


def _slots(model: Model) -> range:
    """Returns the numbers of the optimizer's arrays in the state."""
    start = len(model.trainable_variables) + len(model.non_trainable_variables)
    return range(start, start + len(model.optimizer.variables))


def train_program(model: Model, owned: Ownership) -> Program:
    """Returns the program that trains `model`."""
    cached = model.train_function
    if isinstance(cached, TrainProgram):
        cached.watch(None)  # A callback that needs it asks anew, when the training begins.
        return cached
    _check_pure(model, "train_step")
    if not is_compiled(model):
        _check_eager(owned.replicas)
        return _find_or_make(model, owned, "train_function", on_opened(model.train_step))
    per_replica = replica_train_step(model, owned.replicas) if owned.replicas.explicit else None
    local = local_train_step(model, owned.replicas)
    model.train_function = TrainProgram(model, on_opened(model.train_step), owned.replicas, per_replica, local)
    return model.train_function


def _check_eager(replicas: Replicas) -> None:
    """Raises `UnsupportedError` for options that only compiled steps can follow."""
    if replicas.shards_optimizer_state and replicas.count > 1:
        raise UnsupportedError(
            "With shard_optimizer_state XLA divides compiled steps. Received: a model with run_eagerly=True or "
            "jit_compile=False, which one device trains alone. Leave these out, or debug with a strategy without it."
        )
    if replicas.local_sgd is not None:
        raise UnsupportedError(
            "With local_steps each replica trains by itself in between, in a compiled program. Received: a model with "
            "run_eagerly=True or jit_compile=False, which one device trains alone. Leave these out, or debug with a "
            "strategy without local_steps."
        )


def test_program(model: Model, owned: Ownership) -> Program:
    """Returns the program that evaluates `model`; the global view is exact for it whatever the strategy says."""
    _check_pure(model, "test_step")
    return _find_or_make(model, owned, "test_function", on_opened(model.test_step))


def _check_pure(model: Model, name: str) -> None:
    """Raises `ArgumentError` for a step without a state, as programs written for TensorFlow override it."""
    step = getattr(type(model), name)
    # An attribute of the model itself stands in for its class's.
    is_pure = name in vars(model) or step is getattr(keras.Model, name)
    if is_pure or len(inspect.signature(step).parameters) != 2:
        return
    raise ArgumentError(
        f"A model's own {name} is a pure function on JAX: (self, state, data) -> (logs, state). Received: "
        f"{type(model).__name__}.{name}(self, data), as TensorFlow's are. Override compute_loss instead; or see Keras' "
        "guide 'Customizing what happens in fit() with JAX'; or call such a step in a loop, with strategy.run."
    )


def predict_program(model: Model, owned: Ownership) -> Program:
    """Returns the program whose outputs are the predictions."""

    def predict_step(state: State, data: Batch) -> tuple[Any, Any]:
        outputs, non_trainable = model.predict_step(state, unpack(data))
        return pack(outputs), (state[0], non_trainable)

    return _find_or_make(model, owned, "predict_function", predict_step, output_mode="all")


def _find_or_make(
    model: Model, owned: Ownership, attribute: str, step: Step, output_mode: OutputMode = "last"
) -> Program:
    cached = getattr(model, attribute)
    if isinstance(cached, (StepProgram, EagerProgram)):
        return cached
    subject = _subject(step.__name__)
    if is_compiled(model):
        program = StepProgram(step, owned.replicas, None, output_mode, subject=subject)
    else:
        program = EagerProgram(step, owned.replicas, subject)
    setattr(model, attribute, program)
    return program


def _subject(step: str) -> Subject:
    # Without the model's name: Keras numbers models, and a worker may have made another before.
    return Subject(f"{step} of the model", advice=_ADVICE)
