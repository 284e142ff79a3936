"""Predictions of an Estimator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lockstep._feed.feed import Feed
from lockstep._model_fn.text import Words
from lockstep._nest import map_structure
from lockstep.errors import ArgumentError
from lockstep.estimator._driver import Driver
from lockstep.estimator._input import Input
from lockstep.estimator._session import AloneSignals, Session
from lockstep.estimator._state import VariableState

if TYPE_CHECKING:
    from lockstep.estimator._engine import Engine


class Prediction:
    """One call of `predict`, on this process' first device.

    Args:
        engine: The model.
        input_fn: The data.
        keys: Of a dict of predictions, only these; `None` for all.
        hooks: The caller's.
    """

    def __init__(self, engine: Engine, input_fn: Any, keys: Sequence[str] | None, hooks: Sequence[Any]) -> None:
        self._engine = engine
        self._keys = keys
        self._hooks = list(hooks)
        self._replicas = engine.own_replicas()
        self._input = Input(input_fn, "infer", self._replicas, False, engine.params, engine.config)

    def run(self, first_values: Any) -> Iterator[Any]:
        """Yields the predictions of one batch after another."""
        job = self._engine.job("infer", self._replicas, self._input)
        keys = self._checked_keys(job.spec.predictions)
        hooks = [*self._hooks, *(job.spec.prediction_hooks or ())]
        for hook in hooks:
            hook.begin()
        job.want(hooks)
        state = VariableState(job.program, first_values(job))
        session = Session(job, state, state.global_step, True, AloneSignals())
        driver = Driver(hooks, session, True, lambda outputs: None)
        driver.create()
        feed = Feed(self._input.source, job.program, self._replicas.runtime, None, at_most=True)
        with feed.epoch(state.shapes()) as batches:
            for number, batch in enumerate(batches):
                driver.before(number, 1)
                outputs, after = job.program.run(state.take(), batch)
                state.give(after)
                stops = driver.after(number, outputs)
                yield _chosen(_on_host(outputs.last["predictions"]), keys)
                if stops:
                    break
        driver.end()

    def _checked_keys(self, predictions: Any) -> list[str] | None:
        if not self._keys:
            return None
        if not isinstance(predictions, dict):
            raise ArgumentError(
                "predict_keys argument is not valid in case of non-dict predictions. Received: "
                f"predict_keys={list(self._keys)}. Leave it out, or have the model_fn predict a dict."
            )
        found = [key for key in predictions if key in self._keys]
        if not found:
            raise ArgumentError(
                f"Expected to run at least one output from {list(predictions)}. Received: predict_keys="
                f"{list(self._keys)}."
            )
        return found


def _on_host(predictions: Any) -> Any:
    def one(leaf: Any) -> Any:
        return leaf.on_host() if isinstance(leaf, Words) else np.asarray(leaf)

    return map_structure(one, predictions, is_leaf=lambda leaf: isinstance(leaf, Words))


def _chosen(predictions: Any, keys: list[str] | None) -> Any:
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
