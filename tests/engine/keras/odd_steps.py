"""What the last worker of a cluster does differently, in tests of steps that all must have alike."""

from __future__ import annotations

from typing import Any

import jax
import keras
import numpy as np

ROWS, BATCH = 16, 4


def _is_odd() -> bool:
    return jax.process_index() == jax.process_count() - 1


def _failure(call: Any, *arguments: Any, **named: Any) -> dict[str, np.ndarray]:
    try:
        call(*arguments, **named)
    except Exception as error:
        return {"type": np.array(type(error).__name__), "text": np.array(str(error))}
    return {"type": np.array("none"), "text": np.array("")}


def _data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(4)
    return random.normal(size=(ROWS, 3)).astype("float32"), random.random((ROWS, 2)).astype("float32")


def _model(strategy: Any, what: str, odd: bool, **compiled: Any) -> keras.Model:
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [
            keras.Input((3,)),
            keras.layers.Dense(5, "tanh" if odd and what == "activation" else "relu", name="hidden"),
            keras.layers.Dropout(0.25 if odd and what == "dropout" else 0.5),
            keras.layers.Dense(2),
        ]
        model = keras.Sequential(layers)
        clipped = 2.0 if odd and what == "clipping" else 1.0
        schedule = keras.optimizers.schedules.ExponentialDecay(0.2 if odd else 0.1, 100, 0.9)
        rate = schedule if what == "schedule" else 0.5 if odd and what == "rate" else 0.1
        optimizer = keras.optimizers.SGD(rate, clipnorm=clipped)
        model.compile(optimizer, "mae" if odd and what == "loss" else "mse", **compiled)
    return model


def odd_model(strategy: Any, what: str, call: str = "fit", **compiled: Any) -> dict[str, np.ndarray]:
    """One worker's model has the same variables and computes something else."""
    model = _model(strategy, what, _is_odd(), **compiled)
    x, y = _data()
    calls: dict[str, Any] = {
        "fit": lambda: model.fit(x, y, BATCH, verbose=0),
        "evaluate": lambda: model.evaluate(x, y, BATCH, verbose=0),
        "predict": lambda: model.predict(x, BATCH, verbose=0),
        "train_on_batch": lambda: model.train_on_batch(x, y),
    }
    return _failure(calls[call])


def rate(strategy: Any) -> dict[str, np.ndarray]:
    """The learning rate is a variable: one worker's other one is replaced by the chief's."""
    model = _model(strategy, "rate", _is_odd())
    model.fit(*_data(), BATCH, verbose=0)
    return {
        "rate": np.asarray(model.optimizer.learning_rate),
        "weights": np.concatenate([w.ravel() for w in model.get_weights()]),
    }


def compiled_by_one(strategy: Any, what: str) -> dict[str, np.ndarray]:
    """One worker compiles its model anew between two trainings."""
    import lockstep as ls

    model = _model(strategy, "", False)
    model.fit(*_data(), BATCH, verbose=0)
    callbacks = [ls.callbacks.NonFinite()] if _is_odd() and what == "callback" else []
    if _is_odd() and what == "compile":
        model.compile(model.optimizer, "mse")
    return _failure(model.fit, *_data(), BATCH, verbose=0, callbacks=callbacks)


def shapes_of_their_own(strategy: Any) -> dict[str, np.ndarray]:
    """A last batch of another size is another program, on all workers."""
    model = _model(strategy, "", False)
    x, y = _data()
    found = _failure(model.fit, x[:14], y[:14], BATCH, epochs=2, verbose=0, validation_data=(x[:6], y[:6]))
    model.name = f"model_{jax.process_index()}"
    return found
