"""Predictions of an Estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lockstep._engine.input.feed import Feed
from lockstep._nest import map_structure
from lockstep._text import Words
from lockstep._types import Array, PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._hook_runner import HookRunner
from lockstep.estimator._input_fns.source import Input
from lockstep.estimator._session import AloneSignals, Session
from lockstep.estimator._state import VariableState
from lockstep.estimator._types import InputFn

if TYPE_CHECKING:
    from lockstep.estimator._compiled_model_fn import CompiledModelFn
    from lockstep.estimator._core import EstimatorCore


class Prediction:
    """One call of `predict`, on this process' first device.

    Args:
        core: The estimator's core.
        input_fn: The input function.
        keys: Keys to return of a dict of predictions; `None` for all.
        hooks: The caller's hooks.
    """

    def __init__(
        self, core: EstimatorCore, input_fn: InputFn, keys: Sequence[str] | None, hooks: Sequence[Any]
    ) -> None:
        self._core = core
        self._keys = keys
        self._hooks = list(hooks)
        self._replicas = core.first_device_replicas()
        self._input = Input(input_fn, "infer", self._replicas, False, core.params, core.config)

    def run(self, first_values: Callable[[CompiledModelFn], Mapping[str, np.ndarray]]) -> Iterator[Any]:
        """Yields the predictions of one batch after another."""
        compiled = self._core.compile("infer", self._replicas, self._input)
        keys = self._select_keys(compiled.spec.predictions)
        hooks = [*self._hooks, *(compiled.spec.prediction_hooks or ())]
        for hook in hooks:
            hook.begin()
        compiled.request_outputs(hooks)
        state = VariableState(compiled.program, first_values(compiled))
        session = Session(compiled, state, state.global_step, True, AloneSignals())
        runner = HookRunner(hooks, session, True, lambda outputs: None)
        runner.create()
        feed = Feed(self._input.source, compiled.program, self._replicas.runtime, None, at_most=True)
        with feed.epoch(state.shapes()) as batches:
            for number, batch in enumerate(batches):
                runner.before(number, 1)
                outputs, after = compiled.program.run(state.take(), batch)
                state.give(after)
                stops = runner.after(number, outputs)
                yield _select(_on_host(outputs.last["predictions"]), keys)
                if stops:
                    break
        runner.end()

    def _select_keys(self, predictions: PyTree) -> list[str] | None:
        if not self._keys:
            return None
        if not isinstance(predictions, dict):
            raise ArgumentError(
                "predict_keys argument is not valid in case of non-dict predictions. Received: "
                f"predict_keys={list(self._keys)}. Leave it out, or have the model_fn predict a dict."
            )
        chosen = [key for key in predictions if key in self._keys]
        if not chosen:
            raise ArgumentError(
                f"Expected to run at least one output from {list(predictions)}. Received: predict_keys="
                f"{list(self._keys)}."
            )
        return chosen


def _on_host(predictions: PyTree) -> Any:
    def one(leaf: Array) -> Any:
        return leaf.on_host() if isinstance(leaf, Words) else np.asarray(leaf)

    return map_structure(one, predictions, is_leaf=lambda leaf: isinstance(leaf, Words))


def _select(predictions: PyTree, keys: list[str] | None) -> Any:
    return predictions if keys is None else {key: predictions[key] for key in keys}


def examples_of(batches: Iterator[Any]) -> Iterator[Any]:
    """Yields the predictions of one example after another.

    Raises:
        ArgumentError: If predictions of a batch are of different lengths.
    """
    for batch in batches:
        leaves = jax.tree.leaves(batch)
        lengths = {np.shape(leaf)[:1] for leaf in leaves}
        if len(lengths) != 1 or lengths == {()}:
            raise ArgumentError(
                "Batch length of predictions should be same. Received: shapes "
                f"{[np.shape(leaf) for leaf in leaves]}. Pass yield_single_examples=False for whole batches."
            )
        for row in range(len(leaves[0])):
            yield map_structure(lambda a: a[row], batch)  # noqa: B023
