"""`predict` of a model that belongs to a strategy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from keras.src import backend, tree
from keras.src.trainers.data_adapters import data_adapter_utils

from lockstep._engine.keras import agreement, programs, running
from lockstep._engine.keras.callbacks import callback_list
from lockstep._engine.keras.listening import BatchListener
from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.keras.state import PREDICT, ModelState
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.steps_per_execution import Outputs
from lockstep._nest import opened


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
        arguments = {"batch_size": batch_size, "steps_per_epoch": steps, "shuffle": False}
        source = running.source_for(owned, "predict", model, x, **arguments)
        if not all(layer.built for layer in model._flatten_layers()):
            inputs, _, _ = data_adapter_utils.unpack_x_y_sample_weight(opened(source.peek()))
            with backend.StatelessScope():
                model(inputs)
        program = programs.predict_program(model, owned)
        feed = running.feed_of(source, program, owned, steps)
        called = callback_list(callbacks, model, runtime, verbose, epochs=1, steps=feed.num_batches)
        state = ModelState(model, owned, program, PREDICT)
        model.stop_predicting = False
        called.on_predict_begin()
        agreement.begin_run(runtime, "predict", state, {}, feed)
        listener = _PredictListener("predict", model, called, runtime)
        with state.attached():
            running.demand_data(running.drive(feed, program, state, listener))
            listener.end()
        predictions = listener.predictions()
        runtime.release()
        called.on_predict_end()
    return predictions


class _PredictListener(BatchListener):
    """Keras' callbacks for batches of predictions as the loop's listener; collects the outputs."""

    def __init__(self, kind: str, model: Any, callbacks: Any, runtime: Runtime) -> None:
        super().__init__(kind, model, callbacks, runtime)
        self._outputs: list[Any] = []
        self._shown = 0

    def note(self, outputs: Outputs) -> None:
        """Keeps the outputs of all steps."""
        self._outputs += outputs.each()

    def told(self) -> Any:
        """The outputs since the last call."""
        new, self._shown = self._outputs[self._shown :], len(self._outputs)
        return {"outputs": _concatenated(new)}

    def stops(self, step: int) -> bool:
        """Whether predicting ends here."""
        del step
        return self.model.stop_predicting

    def predictions(self) -> Any:
        """All outputs, concatenated along the batch, on the host."""
        return _concatenated(jax.device_get(self._outputs))


def _concatenated(outputs: list[Any]) -> Any:
    found = [opened(one) for one in outputs]
    if len(found) == 1:
        return found[0]
    return tree.map_structure_up_to(found[0], lambda *parts: np.concatenate(parts), *found)
