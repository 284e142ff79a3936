"""`train_on_batch`, `test_on_batch` and `predict_on_batch` of a model that belongs to a strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from keras.src import backend
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.utils.python_utils import pythonify_logs

from lockstep._engine.input import samples
from lockstep._engine.input.batch import signature
from lockstep._engine.input.samples import Sample
from lockstep._engine.keras import agreement, programs
from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.keras.state import PREDICT, TEST, TRAIN, ModelState
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.protocol import Program
from lockstep._nest import canonical, map_structure
from lockstep.errors import ArgumentError, UnsupportedError


def train_on_batch(
    model: Any,
    owned: Ownership,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    class_weight: Any = None,
    return_dict: bool = False,
) -> Any:
    """Stands in for `keras.Model.train_on_batch`; the batch is the global one, the same on every worker."""
    model._assert_compile_called("train_on_batch")
    if owned.replicas.local_sgd is not None:
        raise UnsupportedError(
            "With local_steps replicas train by themselves until a round or the training ends. Received: "
            "train_on_batch, a training of one step. Use fit, or a strategy without local_steps."
        )
    if class_weight is not None:
        if sample_weight is not None:
            raise ArgumentError(
                "Only one of `sample_weight` and `class_weight` can weigh a batch. Received both. Multiply them."
            )
        sample_weight = data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
    batch = (x, y, sample_weight)
    model._symbolic_build(data_batch=batch)
    return _logs(model, owned, "train_on_batch", programs.train_program(model, owned), TRAIN, batch, return_dict)


def test_on_batch(
    model: Any, owned: Ownership, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False
) -> Any:
    """Stands in for `keras.Model.test_on_batch`; the batch is the global one, the same on every worker."""
    model._assert_compile_called("test_on_batch")
    batch = (x, y, sample_weight)
    model._symbolic_build(data_batch=batch)
    return _logs(model, owned, "test_on_batch", programs.test_program(model, owned), TEST, batch, return_dict)


def predict_on_batch(model: Any, owned: Ownership, x: Any) -> Any:
    """Stands in for `keras.Model.predict_on_batch`; every worker gets all predictions."""
    if not all(layer.built for layer in model._flatten_layers()):
        with backend.StatelessScope():
            model(x)
    outputs = _step(model, owned, "predict_on_batch", programs.predict_program(model, owned), PREDICT, (x,))
    return map_structure(np.array, outputs)


@dataclass(frozen=True)
class _Batch:
    """A global batch that all tasks pass, to be compared."""

    batch: Any
    runtime: Runtime

    def facts(self) -> dict[str, Any]:
        """Returns the dtypes and shapes."""
        return {"batch": signature(self.batch)}

    def sample(self, number: int) -> Sample | None:
        """Returns some of its rows."""
        return Sample(self.batch, number) if samples.are_compared(self.runtime) else None


def _logs(model: Any, owned: Ownership, call: str, program: Program, groups: Any, batch: Any, return_dict: bool) -> Any:
    model.reset_metrics()
    logs = pythonify_logs(_step(model, owned, call, program, groups, batch))
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def _step(model: Any, owned: Ownership, call: str, program: Program, groups: Any, batch: Any) -> Any:
    """Runs one step program once."""
    state = ModelState(model, owned, program, groups)
    runtime = owned.replicas.runtime
    with runtime.depending_on_others(call):
        owned.sync_point()
        agreement.begin_run(runtime, call, state, {}, _Batch(batch, runtime))
        with state.attached():
            outputs, after = program(state.take(), program.place_batch(canonical(batch)))
            state.give(after)
        return program.local(outputs)
