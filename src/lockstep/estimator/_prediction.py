"""Predictions of an Estimator, on this process' first device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lockstep._engine.input.feed import Feed
from lockstep._nest import map_structure
from lockstep._text import Words
from lockstep._types import Array, PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._evaluation.by_rows import program_and_state
from lockstep.estimator._input_fns.source import Input
from lockstep.estimator._session import AloneSignals, HookRunner, Session
from lockstep.estimator._types import InputFn
from lockstep.estimator._weights import is_by_rows

if TYPE_CHECKING:
    from lockstep.estimator._core import EstimatorCore


def predict_batches(
    core: EstimatorCore, input_fn: InputFn, wanted: Sequence[str] | None, hooks: Sequence[Any], path: str | None
) -> Iterator[Any]:
    """Yields the predictions of one batch after another; see `Estimator.predict`."""
    replicas = core.first_device_replicas()
    by_rows = is_by_rows(path)
    input = Input(input_fn, "infer", replicas, False, core.params, core.config, on_host=by_rows)
    compiled = core.compile("infer", replicas, input)
    keys = _select_keys(compiled.spec.predictions, wanted)
    hooks = [*hooks, *(compiled.spec.prediction_hooks or ())]
    compiled.begin(hooks)
    compiled.request_outputs(hooks)
    values = core.first_values_by_rows(compiled, path) if by_rows else core.first_values(compiled, path)
    program, state = program_and_state(compiled, values, input.source)
    session = Session(compiled, state, state.global_step, True, AloneSignals())
    runner = HookRunner(hooks, session, True, lambda outputs: None)
    runner.create()
    feed = Feed(input.source, program, replicas.runtime, None, at_most=True)
    # Not the engine's loop, which runs ahead of its caller: a batch is computed when the program asks for it, so an
    # endless input_fn does, as in TensorFlow.
    with feed.epoch(state.shapes()) as batches:
        for number, batch in enumerate(batches):
            runner.before(number, 1)
            outputs, after = program.run(state.take(), batch)
            state.give(after)
            stops = runner.after(number, outputs)
            predictions = _on_host(outputs.last["predictions"])
            yield predictions if keys is None else {key: predictions[key] for key in keys}
            if stops:
                break
    runner.end()


def _select_keys(predictions: PyTree, wanted: Sequence[str] | None) -> list[str] | None:
    """Returns the predictions to return, in their order; `None` for all."""
    if not wanted:
        return None
    if not isinstance(predictions, dict):
        raise ArgumentError(
            "predict_keys argument is not valid in case of non-dict predictions. Received: "
            f"predict_keys={list(wanted)}. Leave it out, or have the model_fn predict a dict."
        )
    # TensorFlow's rule: keys that are not predicted are left out, as long as one is.
    keys = [key for key in predictions if key in wanted]
    if not keys:
        raise ArgumentError(
            f"Expected to run at least one output from {list(predictions)}. Received: predict_keys={list(wanted)}."
        )
    return keys


def _on_host(predictions: PyTree) -> Any:
    def to_host(leaf: Array) -> Any:
        return leaf.on_host() if isinstance(leaf, Words) else np.asarray(leaf)

    return map_structure(to_host, predictions, is_leaf=lambda leaf: isinstance(leaf, Words))


def examples_of(batches: Iterator[Any]) -> Iterator[Any]:
    """Yields the predictions of one example after another.

    Raises:
        ArgumentError: If predictions of a batch are of different lengths.
    """
    for batch in batches:
        leaves = jax.tree.leaves(batch)
        # A value without rows, such as a scalar, fits no example.
        lengths = {np.shape(leaf)[:1] for leaf in leaves}
        if len(lengths) != 1 or lengths == {()}:
            raise ArgumentError(
                "Batch length of predictions should be same. Received: shapes "
                f"{[np.shape(leaf) for leaf in leaves]}. Pass yield_single_examples=False for whole batches."
            )
        for row in range(len(leaves[0])):
            yield map_structure(lambda a: a[row], batch)  # noqa: B023
