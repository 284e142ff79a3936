"""The other methods of Keras' trainer for models of a strategy: `evaluate`, `predict`, and those on one batch."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from keras.src import backend, tree
from keras.src.backend import config
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.utils.python_utils import pythonify_logs

from lockstep._engine.input import random_state, samples
from lockstep._engine.input.batch import no_batch, signature
from lockstep._engine.input.feed import Feed
from lockstep._engine.input.samples import Sample
from lockstep._engine.input.source import Source, dataset_of, source_of
from lockstep._engine.keras import agreement, programs
from lockstep._engine.keras.callbacks import BatchListener, callback_list
from lockstep._engine.keras.compiled_models import is_compiled
from lockstep._engine.keras.initial_values import without_programs
from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.keras.state import PREDICT, TEST, TRAIN, ModelState
from lockstep._engine.loop import loop
from lockstep._engine.runtime.progress import EVALUATION
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import Outputs, to_arrays
from lockstep._engine.step.protocol import Program
from lockstep._nest import canonical, map_structure, unpack
from lockstep._types import Batch, Model, PyTree
from lockstep.errors import ArgumentError, UnsupportedError

# ---- Input, shared with fit ----


def make_source(owned: Ownership, call: str, model: Model, x: PyTree, **arguments: Any) -> Source:
    """Returns the source of a call's data."""
    # Sources may draw random numbers as soon as they are looked at, so all workers first take the chief's random state.
    random_state.follow_chief(owned.replicas.runtime, call)
    # What workers without a program compute travels from here.
    is_scheduled = owned.scheduler is not None and call == "fit"
    divides = not is_scheduled and is_compiled(model)
    return source_of(dataset_of(x), owned.replicas, divides, **arguments)


def make_feed(source: Source, program: Program, owned: Ownership, steps: int | None) -> Feed:
    """Returns the feed of a run, within Keras' cap for debugging runs."""
    limit = config.max_steps_per_epoch()
    return Feed(source, program, owned.replicas.runtime, cap(steps or limit, limit, "steps_per_epoch"))


def cap(value: Any, limit: int | None, name: str) -> Any:
    """Returns `value` within `limit`, Keras' cap for debugging runs."""
    if limit and value and limit < value:
        warnings.warn(f"Limiting {name} to {limit}", stacklevel=4)
        return limit
    return value


def build(model: Model, source: Source) -> None:
    """Builds what is not built yet, as Keras does, from the shapes of a first batch."""
    parts = (*model._flatten_layers(), model._compile_metrics, model._compile_loss)
    is_built = all(part is None or part.built for part in parts) and not vars(model).get("_lockstep_steps_unseen")
    # Looking at a batch may read the source, so only if its shapes are needed.
    _symbolic_build(model, () if is_built else unpack(to_arrays(source.peek())))


def _symbolic_build(model: Model, batch: PyTree) -> None:
    with without_programs():
        model._symbolic_build(data_batch=batch)


def opened_first_batch(source: Source) -> Any:
    """Returns a first batch as a model sees it, without consuming it."""
    return unpack(to_arrays(source.peek()))


def canonical_batch(batch: Any) -> Any:
    """Returns a batch that a user has passed as steps take it."""
    return canonical(batch)


# ---- evaluate ----


def evaluate(
    model: Model,
    owned: Ownership,
    x: PyTree = None,
    y: PyTree = None,
    batch_size: int | None = None,
    verbose: Any = "auto",
    sample_weight: PyTree = None,
    steps: int | None = None,
    callbacks: Any = None,
    return_dict: bool = False,
    **kwargs: Any,
) -> Any:
    """Stands in for `keras.Model.evaluate`; all arguments as there, `batch_size` is the global one."""
    model._assert_compile_called("evaluate")
    use_cached = kwargs.pop("_use_cached_eval_dataset", False)
    position = kwargs.pop("_position", None)
    if kwargs:
        raise ValueError(f"Arguments not recognized: {kwargs}")
    runtime = owned.replicas.runtime
    with owned.collective_call("evaluate"), runtime.preemption.progress.in_phase(EVALUATION):
        # fit evaluates on the same data after each epoch, under the name that Keras gives them.
        feed = getattr(model, "_eval_epoch_iterator", None) if use_cached else None
        if feed is None:
            arguments = {"y": y, "sample_weight": sample_weight, "batch_size": batch_size, "steps_per_epoch": steps}
            source = make_source(owned, "evaluate", model, x, shuffle=False, **arguments)
            build(model, source)
            feed = make_feed(source, programs.test_program(model, owned), owned, steps)
            if position is not None:
                feed.resume(position)
        if use_cached:
            model._eval_epoch_iterator = feed
        program = programs.test_program(model, owned)
        called = callback_list(callbacks, model, runtime, verbose, epochs=1, steps=feed.num_batches)
        state = ModelState(model, owned, program, TEST)
        model.stop_evaluating = False
        # Before workers compare, as in fit: callbacks may change variables.
        called.on_test_begin()
        agreement.begin_run(runtime, "evaluate", state, {}, feed)
        model.reset_metrics()
        listener = TestListener("test", model, called, runtime)
        run_batches(feed, program, state, listener)
        logs = pythonify_logs(model._get_metrics_result_or_logs(listener.logs))
        runtime.release()
        called.on_test_end(logs)
    return logs if return_dict else model._flatten_metrics_in_order(logs)


class TestListener(BatchListener):
    """Calls Keras' callbacks for test batches."""

    def should_stop(self) -> bool:
        """Returns whether the evaluation ends here."""
        return self.model.stop_evaluating


# ---- predict ----


def predict(
    model: Model,
    owned: Ownership,
    x: PyTree,
    batch_size: int | None = None,
    verbose: Any = "auto",
    steps: int | None = None,
    callbacks: Any = None,
) -> Any:
    """Stands in for `keras.Model.predict`; every worker gets the predictions for all of `x`."""
    runtime = owned.replicas.runtime
    with owned.collective_call("predict"), runtime.preemption.progress.in_phase(EVALUATION):
        arguments = {"batch_size": batch_size, "steps_per_epoch": steps, "shuffle": False}
        source = make_source(owned, "predict", model, x, **arguments)
        # Not `build`: predict works without compile, and so without the shapes of targets.
        if not all(layer.built for layer in model._flatten_layers()):
            inputs, _, _ = data_adapter_utils.unpack_x_y_sample_weight(unpack(source.peek()))
            # Builds the layers, and computes nothing that stays.
            with backend.StatelessScope():
                model(inputs)
        program = programs.predict_program(model, owned)
        feed = make_feed(source, program, owned, steps)
        called = callback_list(callbacks, model, runtime, verbose, epochs=1, steps=feed.num_batches)
        state = ModelState(model, owned, program, PREDICT)
        model.stop_predicting = False
        called.on_predict_begin()
        agreement.begin_run(runtime, "predict", state, {}, feed)
        listener = PredictListener("predict", model, called, runtime)
        run_batches(feed, program, state, listener)
        predictions = concatenate(jax.device_get(listener.outputs))
        # All steps are done on all workers: what fails from here on fails on this one alone.
        runtime.release()
        called.on_predict_end()
    return predictions


class PredictListener(BatchListener):
    """Calls Keras' callbacks for batches of predictions, and collects these.

    Attributes:
        outputs: The outputs of all steps.
    """

    def __init__(self, kind: str, model: Model, callbacks: Any, runtime: Runtime) -> None:
        super().__init__(kind, model, callbacks, runtime)
        self.outputs: list[Any] = []
        self._shown = 0

    def collect(self, outputs: Outputs) -> None:
        """Keeps the outputs of all steps of a dispatch."""
        self.outputs += outputs.each()

    def callback_logs(self) -> Any:
        """Returns the outputs since the last call."""
        new, self._shown = self.outputs[self._shown :], len(self.outputs)
        return {"outputs": concatenate(new)}

    def should_stop(self) -> bool:
        """Returns whether predicting ends here."""
        return self.model.stop_predicting


def run_batches(feed: Feed, program: Program, state: ModelState, listener: BatchListener) -> None:
    """Runs steps over one pass of the data."""
    with state.attached():
        with feed.epoch(state.shapes()) as batches:
            steps = loop.run(batches, program, state, listener)
        listener.end()
    if steps == 0:
        raise no_batch()


def concatenate(outputs: list[Any]) -> Any:
    """Concatenates outputs along the batch."""
    trees = [unpack(one) for one in outputs]
    if len(trees) == 1:
        # Copies: a program may write to predictions, and not to what JAX gives of its arrays.
        return tree.map_structure(np.array, trees[0])
    return tree.map_structure_up_to(trees[0], lambda *leaves: np.concatenate(leaves), *trees)


# ---- Methods on one batch ----


def train_on_batch(
    model: Model,
    owned: Ownership,
    x: PyTree,
    y: PyTree = None,
    sample_weight: PyTree = None,
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
    _symbolic_build(model, batch)
    return _logs(model, owned, "train_on_batch", programs.train_program(model, owned), TRAIN, batch, return_dict)


def test_on_batch(
    model: Model, owned: Ownership, x: PyTree, y: PyTree = None, sample_weight: PyTree = None, return_dict: bool = False
) -> Any:
    """Stands in for `keras.Model.test_on_batch`; the batch is the global one, the same on every worker."""
    model._assert_compile_called("test_on_batch")
    batch = (x, y, sample_weight)
    _symbolic_build(model, batch)
    return _logs(model, owned, "test_on_batch", programs.test_program(model, owned), TEST, batch, return_dict)


def predict_on_batch(model: Model, owned: Ownership, x: PyTree) -> Any:
    """Stands in for `keras.Model.predict_on_batch`; every worker gets all predictions."""
    if not all(layer.built for layer in model._flatten_layers()):
        with backend.StatelessScope():
            model(x)
    outputs = _run_step(model, owned, "predict_on_batch", programs.predict_program(model, owned), PREDICT, (x,))
    return map_structure(np.array, outputs)


@dataclass(frozen=True)
class _Batch:
    """A global batch that all workers pass, to be compared."""

    batch: Any
    runtime: Runtime

    def facts(self) -> dict[str, Any]:
        """Returns the dtypes and shapes."""
        return {"batch": signature(self.batch)}

    def sample(self, number: int) -> Sample | None:
        """Returns some of its rows."""
        return Sample(self.batch, number) if samples.are_compared(self.runtime) else None


def _logs(
    model: Model, owned: Ownership, call: str, program: Program, groups: Any, batch: Batch, return_dict: bool
) -> Any:
    model.reset_metrics()
    logs = pythonify_logs(_run_step(model, owned, call, program, groups, batch))
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def _run_step(model: Model, owned: Ownership, call: str, program: Program, groups: Any, batch: Batch) -> Any:
    """Runs one step program once."""
    state = ModelState(model, owned, program, groups)
    runtime = owned.replicas.runtime
    with runtime.collective_region(call):
        owned.sync_point()
        agreement.begin_run(runtime, call, state, {}, _Batch(batch, runtime))
        with state.attached():
            outputs, after = program(state.take(), program.place_batch(canonical(batch)))
            state.give(after)
        return program.local(outputs)
