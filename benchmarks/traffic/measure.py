"""Measures choices on four devices of a process, and compressions on two workers."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.harness.processes import gang, tf_configs
from benchmarks.traffic import programs
from benchmarks.traffic.hlo import counted, traffic

Json = dict[str, Any]
_BATCH = 128
_WORKERS, _DEVICES = 2, 4


def choices(options: Mapping[str, Any]) -> Json:
    """Each way to add gradients up: its collectives, bytes, steps/s, and how far its weights are from AUTO's."""
    import lockstep as ls  # isort: split

    ls.config.set_logical_cpu_devices(_DEVICES)
    (x, y), _, _ = programs.digits(options["steps"] * _BATCH)
    found: Json = {}
    first: list[np.ndarray] = []
    for name in programs.CHOICES:
        model, seconds = _chosen(name, x, y)
        first = first or model.get_weights()
        text = programs.compiled_text(model, (x[:_BATCH], y[:_BATCH]))
        apart = max(float(np.abs(a - b).max()) for a, b in zip(model.get_weights(), first, strict=True))
        sent = traffic(text, _DEVICES)
        steps = len(x) // _BATCH
        found[name] = {"collectives": counted(text), "bytes": sent, "steps/s": steps / seconds, "apart": apart}
    return found


def _chosen(name: str, x: np.ndarray, y: np.ndarray) -> tuple[Any, float]:
    """A model trained for two epochs with SGD, and the seconds of the second."""
    import keras

    import lockstep as ls

    kind, arguments, options = programs.CHOICES[name]
    ops = getattr(ls.distribute, kind)(**arguments) if kind else None
    strategy = ls.distribute.MirroredStrategy(
        cross_device_ops=ops, communication_options=ls.distribute.CommunicationOptions(**options)
    )
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = programs.model_for(keras, x.shape[1:], 10)
        model.compile(keras.optimizers.SGD(0.05), model.loss)
    return model, [_timed(model, x, y) for _ in range(2)][-1]


def _timed(model: Any, x: np.ndarray, y: np.ndarray) -> float:
    began = time.perf_counter()
    model.fit(x, y, batch_size=_BATCH, epochs=1, shuffle=False, verbose=0)
    return time.perf_counter() - began


def compression(options: Mapping[str, Any]) -> Json:
    """Trains with one compression on two workers, which talk over the loopback interface."""
    environments = [{**os.environ, "LOCKSTEP_SHARED_MEMORY": "0", **own} for own in tf_configs(_WORKERS)]
    found = gang("benchmarks.traffic.measure", "worker", options, environments, options["limit"])
    return {**found[0], "alike": all(f["weights"] == found[0]["weights"] for f in found)}


def worker(options: Mapping[str, Any]) -> Json:
    """One worker: accuracy for each seed, bytes of a step, steps/s."""
    import lockstep as ls  # isort: split
    import keras

    strategy = programs.strategy_of(ls.distribute, options["compression"])
    (x, y), (test_x, test_y), _ = programs.DATA[options["data_set"]](options["count"])
    steps = len(x) // _BATCH
    accuracies: list[float] = []
    seconds: list[float] = []
    sent: list[int] = []
    for seed in range(options["seeds"]):
        keras.utils.set_random_seed(seed)
        with strategy.scope():
            model = programs.model_for(keras, x.shape[1:], int(y.max()) + 1)
        # One call: its end would end a round of local steps.
        noted = programs.noted(keras, seconds, sent)
        train = x[: steps * _BATCH], y[: steps * _BATCH]
        model.fit(*train, batch_size=_BATCH, epochs=options["epochs"], verbose=0, callbacks=[noted])
        accuracies.append(float(model.evaluate(test_x, test_y, batch_size=500, verbose=0)[1]))
    text = programs.compiled_text(model, (x[:_BATCH], y[:_BATCH]))
    every = programs.COMPRESSIONS[options["compression"]].get("every")
    return {
        "accuracies": accuracies,
        # The first epoch compiles.
        "steps/s": steps / float(np.median(seconds[1:] or seconds)),
        # Gradients travel whole at first, later they do not: the branch of a condition that sends least. With local
        # steps there is only what a round ends with.
        "bytes": traffic(text, _WORKERS) + (traffic(programs.text_of_end(model), _WORKERS) / every if every else 0),
        "collectives": counted(text),
        # What both workers send goes through the one interface; others may use it, too.
        "measured": float(np.median(sent[1:] or sent)) / steps / _WORKERS,
        "weights": [float(w.astype(float).sum()) for w in model.get_weights()],
    }
