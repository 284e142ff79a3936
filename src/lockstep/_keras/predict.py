"""`predict` of a model that belongs to a strategy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from keras.src import backend, tree
from keras.src.trainers.data_adapters import data_adapter_utils

from lockstep._feed.source import source_of
from lockstep._keras import agreement, programs, running
from lockstep._keras.callbacks import callback_list
from lockstep._keras.ownership import Ownership
from lockstep._keras.state import PREDICT, ModelState
from lockstep._step.program import Program


def predict(
    model: Any,
    owned: Ownership,
    x: Any,
    batch_size: int | None = None,
    verbose: Any = "auto",
    steps: int | None = None,
    callbacks: Any = None,
) -> Any:
    """Stands in for `keras.Model.predict`; every worker gets the predictions for all of `x`."""
    runtime = owned.replicas.runtime
    with running.guarded(owned, "predict"):
        compiled = programs.is_compiled(model)
        source = source_of(x, owned.replicas, compiled, batch_size=batch_size, steps_per_epoch=steps, shuffle=False)
        if not all(layer.built for layer in model._flatten_layers()):
            inputs, _, _ = data_adapter_utils.unpack_x_y_sample_weight(source.peek())
            with backend.StatelessScope():
                model(inputs)
        program = programs.predict_program(model, owned)
        feed = running.feed_of(source, program, owned, steps)
        called = callback_list(callbacks, model, runtime, verbose, epochs=1, steps=feed.num_batches)
        state = ModelState(model, owned, program, PREDICT)
        model.stop_predicting = False
        called.on_predict_begin()
        agreement.begin_run(runtime, "predict", state, running.data_facts(feed))
        listener = _PredictListener(model, called, program)
        with state.attached():
            running.demand_data(running.drive(model, feed, program, state, listener))
        called.on_predict_end()
    return listener.predictions()


class _PredictListener:
    """Keras' predict callbacks as the loop's listener; collects the outputs."""

    def __init__(self, model: Any, callbacks: Any, program: Program) -> None:
        self._model = model
        self._callbacks = callbacks
        self._program = program
        self._outputs: list[Any] = []

    def before(self, step: int) -> None:
        self._callbacks.on_predict_batch_begin(step)

    def after(self, step: int, outputs: list[Any]) -> bool:
        local = self._program.local(outputs)
        self._outputs += local
        self._callbacks.on_predict_batch_end(step, {"outputs": _concatenated(local)})
        return self._model.stop_predicting

    def predictions(self) -> Any:
        """All outputs, concatenated along the batch, on the host."""
        return _concatenated(jax.device_get(self._outputs))


def _concatenated(outputs: list[Any]) -> Any:
    if len(outputs) == 1:
        return outputs[0]
    return tree.map_structure_up_to(outputs[0], lambda *parts: np.concatenate(parts), *outputs)
