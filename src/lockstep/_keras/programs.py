"""The step programs of a model: its own `train_step`, `test_step` and `predict_step`, compiled for its replicas.

They live where Keras keeps its compiled functions (`model.train_function`, ...), which `compile` clears.
"""

from __future__ import annotations

from typing import Any

from lockstep._keras.ownership import Ownership
from lockstep._keras.replica_step import replica_train_step
from lockstep._step.program import CompiledProgram, EagerProgram, Kept, Program, Step


def train_program(model: Any, owned: Ownership) -> Program:
    """Returns the program that trains `model`."""
    per_replica = replica_train_step(model, owned.replicas) if owned.replicas.explicit else None
    return _cached(model, owned, "train_function", model.train_step, per_replica)


def test_program(model: Any, owned: Ownership) -> Program:
    """Returns the program that evaluates `model`; the global view is exact for it whatever the strategy says."""
    return _cached(model, owned, "test_function", model.test_step)


def predict_program(model: Any, owned: Ownership) -> Program:
    """Returns the program whose outputs are the predictions."""

    def predict_step(state: Any, data: Any) -> tuple[Any, Any]:
        outputs, non_trainable = model.predict_step(state, data)
        return outputs, (state[0], non_trainable)

    return _cached(model, owned, "predict_function", predict_step, kept="all")


def is_compiled(model: Any) -> bool:
    """Whether steps of `model` are compiled, or run as they are."""
    return model.jit_compile and not model.run_eagerly


def _cached(
    model: Any,
    owned: Ownership,
    attribute: str,
    step: Step,
    per_replica: Step | None = None,
    kept: Kept = "last",
) -> Program:
    found = getattr(model, attribute)
    if isinstance(found, (CompiledProgram, EagerProgram)):
        return found
    if is_compiled(model):
        program = CompiledProgram(step, owned.replicas, per_replica, kept)
    else:
        program = EagerProgram(step, owned.replicas)
    setattr(model, attribute, program)
    return program
