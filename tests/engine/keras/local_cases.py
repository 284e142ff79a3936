"""Trainings in rounds of local steps, run on any layout; and what they must come to, replica by replica."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import layers

import lockstep as ls
from lockstep.distribute import LocalSteps, Strategy
from tests.engine.keras import resuming
from tests.engine.keras.cases import precision

BATCH, EPOCHS, REPLICAS = 12, 3, 4
# Six batches that four replicas can divide; and as many, of which the last has 5 rows, which they cannot.
EVEN_ROWS, UNEVEN_ROWS = 72, 65


def local(strategy: Any, **steps: Any) -> Strategy:
    """The same replicas, which train by themselves in between."""
    replicas = strategy._demanded_replicas()
    rounds = LocalSteps(**steps).rounds()
    found = dataclasses.replace(replicas, batch_statistics="replica", local_sgd=rounds)
    return Strategy(found, strategy.cluster_resolver)


def optimizer(name: str) -> Any:
    if name == "adam":
        return keras.optimizers.Adam(1e-2)
    if name == "averages":
        return keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9)
    return keras.optimizers.SGD(0.1, momentum=0.9 if name == "momentum" else 0.0)


def model_of(scope: Any, inner: str, middle: Sequence[Any] = ()) -> keras.Model:
    """A small model with something of each kind."""
    keras.utils.set_random_seed(1)
    keras.backend.clear_session()
    with scope:
        model = keras.Sequential([keras.Input((6,)), layers.Dense(9, activation="tanh"), *middle, layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer(inner), loss, metrics=["accuracy"])
    return model


def data(rows: int, floatx: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, 6)).astype(floatx), rng.integers(0, 3, rows, dtype="int32")


def run(
    strategy: Any, rows: int = EVEN_ROWS, inner: str = "adam", normalises: bool = True, **steps: Any
) -> dict[str, np.ndarray]:
    """Trains in float64; returns what must agree."""
    with precision("float64"):
        scope = (local(strategy, **steps) if steps else strategy).scope()
        model = model_of(scope, inner, [layers.BatchNormalization()] if normalises else [])
        x, y = data(rows, "float64")
        found = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0, validation_data=(x, y))
        return results(model, found.history)


def results(model: Any, history: Any) -> dict[str, np.ndarray]:
    found = {f"weight {i} {v.path}": np.asarray(v) for i, v in enumerate(model.variables)}
    found["iterations"] = np.asarray(model.optimizer.iterations)
    return found | {f"history {k}": np.asarray(v) for k, v in history.items()}


def simulated(
    replicas: int, inner: str, every: int, outer_learning_rate: float, outer_momentum: float, nesterov: bool
) -> dict[str, np.ndarray]:
    """What `run` must come to: plain Keras trains one model for each replica, numpy does the rest."""
    with precision("float64"):
        models = [model_of(_nothing(), inner, [layers.BatchNormalization()]) for _ in range(replicas)]
        seen = [np.asarray(w) for w in models[0].get_weights()]
        is_trained = [any(w is v for v in models[0].trainable_variables) for w in models[0].weights]
        momentum = [np.zeros_like(w) for w in seen]
        x, y = data(EVEN_ROWS, "float64")
        history: dict[str, list[Any]] = {name: [] for name in ("accuracy", "loss", "val_accuracy", "val_loss")}
        steps = EPOCHS * EVEN_ROWS // BATCH
        number = 0
        for _ in range(EPOCHS):
            logs: list[Any] = []
            for start in range(0, EVEN_ROWS, BATCH):
                number += 1
                for i, model in enumerate(models):
                    share = slice(start + i * BATCH // replicas, start + (i + 1) * BATCH // replicas)
                    logs.append(model.train_on_batch(x[share], y[share], return_dict=True))
                if number % every and number < steps:
                    continue
                means = [np.mean(ws, 0) for ws in zip(*(m.get_weights() for m in models), strict=True)]
                for k, mean in enumerate(means):
                    if not is_trained[k]:
                        seen[k] = mean
                        continue
                    change = mean - seen[k]
                    momentum[k] = outer_momentum * momentum[k] + change
                    step = change + outer_momentum * momentum[k] if nesterov else momentum[k]
                    seen[k] = seen[k] + outer_learning_rate * step
                for model in models:
                    model.set_weights(seen)
            mine = models[0].get_weights()
            models[0].set_weights(seen)
            scores = models[0].evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)
            models[0].set_weights(mine)
            for name in ("accuracy", "loss"):
                history[name].append(np.mean([log[name] for log in logs]))
                history[f"val_{name}"].append(scores[name])
        found = results(models[0], history)
        found["iterations"] = np.asarray(models[0].optimizer.iterations)
        return found


def _nothing() -> Any:
    return ls.distribute.get_strategy().scope()


def resumed(strategy: Any, directory: str, every: int, **arguments: Any) -> dict[str, np.ndarray]:
    """`resuming.train`, in rounds."""
    return resuming.train(local(strategy, every=every), directory, **arguments)
