"""Measures choices on four devices of a process, and compressions on two workers."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.harness.processes import Failed, gang, tf_configs
from benchmarks.traffic import programs
from benchmarks.traffic.hlo import counted, traffic

Json = dict[str, Any]
_BATCH = 128
_WORKERS, _DEVICES = 2, 4


def choices(options: Mapping[str, Any]) -> Json:
    """Each way to add gradients up: its collectives, bytes, steps/s, and how far its weights are from AUTO's."""
    import lockstep as ls  # isort: split

    ls.config.set_logical_cpu_devices(_DEVICES)
    # The last batch is one that the replicas cannot divide evenly.
    (x, y), _, _ = programs.digits(options["steps"] * _BATCH - 3)
    found: Json = {}
    first: list[np.ndarray] = []
    for name in programs.CHOICES:
        model, seconds = _chosen(name, x, y)
        first = first or model.get_weights()
        text = programs.compiled_text(model, (x[:_BATCH], y[:_BATCH]))
        found[name] = {
            "collectives": counted(text),
            "bytes": traffic(text, _DEVICES),
            "steps/s": options["steps"] / seconds,
            "apart": programs.apart(model.get_weights(), first),
        }
    return found


def _chosen(name: str, x: np.ndarray, y: np.ndarray) -> tuple[Any, float]:
    """A model trained for two epochs with SGD, and the seconds of the second."""
    import keras

    import lockstep as ls

    keras.utils.set_random_seed(0)
    with programs.choice_of(ls.distribute, name).scope():
        model = programs.smooth_model_for(keras, x.shape[1:], 10)
    return model, [_timed(model, x, y) for _ in range(2)][-1]


def _timed(model: Any, x: np.ndarray, y: np.ndarray) -> float:
    began = time.perf_counter()
    model.fit(x, y, batch_size=_BATCH, epochs=1, shuffle=False, verbose=0)
    return time.perf_counter() - began


def accuracy(options: Mapping[str, Any]) -> Json:
    """Trains with one compression and one seed; what is then recognised of the test data."""
    return _on_workers("trained", options)


def sent(options: Mapping[str, Any]) -> Json:
    """The bytes of a step with one compression, and steps/s."""
    return _on_workers("watched", options)


def _on_workers(function: str, options: Mapping[str, Any]) -> Json:
    """Runs a function on two workers, which talk over the loopback interface."""
    environments = [{**os.environ, "LOCKSTEP_SHARED_MEMORY": "0", **own} for own in tf_configs(_WORKERS)]
    found = gang("benchmarks.traffic.measure", function, options, environments, options["limit"])
    if any(worker["weights"] != found[0]["weights"] for worker in found):
        raise Failed(f"the workers' weights differ: {[worker['weights'] for worker in found]}")
    return dict(found[0])


def trained(options: Mapping[str, Any]) -> Json:
    """One worker of `accuracy`."""
    (x, y), test, _ = programs.DATA[options["data_set"]](options["count"])
    model = _model(options, x, y, options["seed"], len(x) // _BATCH * options["epochs"])
    # One call: its end would end a round of local steps.
    _fit(model, x, y, options["epochs"], [])
    found = model.evaluate(*test, batch_size=500, verbose=0)
    return {"accuracy": float(found[1]), "weights": _checked(model)}


def watched(options: Mapping[str, Any]) -> Json:
    """One worker of `sent`."""
    count = options["steps"] * _BATCH
    (x, y), _, _ = programs.DATA[options["data_set"]](count)
    seconds: list[float] = []
    carried: list[int] = []
    model = _model(options, x, y, 0, 10 * options["steps"])
    _fit(model, x, y, options["epochs"], [programs.noted(seconds, carried)])
    text = programs.compiled_text(model, (x[:_BATCH], y[:_BATCH]))
    every = programs.COMPRESSIONS[options["compression"]].get("every")
    return {
        # The first epoch compiles, and holds the steps in which gradients travel whole.
        "steps/s": options["steps"] / statistics.median(seconds[1:]),
        # Later they do not: the branch of a condition that sends least. With local steps there is only what a round
        # ends with.
        "bytes": traffic(text, _WORKERS) + (traffic(programs.text_of_end(model), _WORKERS) / every if every else 0),
        "collectives": counted(text),
        # What both workers send goes through the one interface; others may use it, too.
        "measured": statistics.median(carried[1:]) / options["steps"] / _WORKERS,
        "weights": _checked(model),
    }


def _model(options: Mapping[str, Any], x: np.ndarray, y: np.ndarray, seed: int, steps: int) -> Any:
    import lockstep as ls  # isort: split
    import keras

    strategy = programs.strategy_of(ls.distribute, options["compression"])
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        return programs.model_for(keras, x.shape[1:], int(y.max()) + 1, steps)


def _fit(model: Any, x: np.ndarray, y: np.ndarray, epochs: int, callbacks: list[Any]) -> None:
    whole = len(x) // _BATCH * _BATCH
    model.fit(x[:whole], y[:whole], batch_size=_BATCH, epochs=epochs, verbose=0, callbacks=callbacks)


def _checked(model: Any) -> list[float]:
    return [float(w.astype(float).sum()) for w in model.get_weights()]
