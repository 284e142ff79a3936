"""Row 3: MobileNetV2, an LSTM and a small transformer in Keras' `fit`. On a GPU (`gpu.py`) ResNet-50 too."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.case import KERAS, LOOP, OURS, TENSORFLOW, TORCH, Bar, Case, Side

_MODULE, _RATE = "benchmarks.rows.networks", "examples/s"
_TEXT_STEPS = 32
_PICTURES = ("mobilenet", "resnet")


def lockstep(options: Mapping[str, Any]) -> dict[str, float]:
    """Keras' `fit` under MirroredStrategy."""
    import lockstep as ls  # isort: split
    import keras

    _policy(keras, options)
    with ls.distribute.MirroredStrategy().scope():
        model = _model(keras, options)
    return _fit(keras, model, options)


def keras_on_jax(options: Mapping[str, Any]) -> dict[str, float]:
    """Plain Keras' `fit`."""
    import keras

    _policy(keras, options)
    return _fit(keras, _model(keras, options), options)


def tensorflow(options: Mapping[str, Any]) -> dict[str, float]:
    """TensorFlow's Keras."""
    import tensorflow as tf

    return _fit(tf.keras, _model(tf.keras, options), options)


def jax_loop(options: Mapping[str, Any]) -> dict[str, float]:
    """A jitted step around the Keras model, over batches that lie on the device."""
    import jax
    import keras

    from benchmarks.programs import jax_loops, keras_step

    _policy(keras, options)
    x, y = _examples(options)
    batch = options["batch"]
    placed = [jax.device_put((x[i : i + batch], y[i : i + batch])) for i in range(0, len(x), batch)]
    state, step = keras_step.bare(_model(keras, options))
    how = (options["seconds"], options["warm_up"], options["every"])
    rate = jax_loops.loop(state, step, itertools.cycle(placed), *how)
    return {_RATE: batch * rate}


def pytorch(options: Mapping[str, Any]) -> dict[str, float]:
    """A loop over tensors that lie on the device, channels last; on a GPU TensorFloat-32 where it is float32."""
    import torch

    from benchmarks.programs import torch_loop, torch_models

    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    device = options.get("device", "cpu")
    model = torch_models.MODELS[options["model"]]().to(device)
    if options["model"] in _PICTURES:
        model = model.to(memory_format=torch.channels_last)
    optimizer = (torch_loop.momentum if options["model"] == "resnet" else torch_loop.adam)(model)
    run = torch.compile(model) if options.get("compiled") else model
    data, batch = torch_loop.as_tensors(*_examples(options)), options["batch"]
    settings = (device, options.get("bfloat16", False), options["warm_up"])
    rate = torch_loop.rate(run, optimizer, data, batch, options["seconds"], *settings)
    return {_RATE: batch * rate}


def _policy(keras: Any, options: Mapping[str, Any]) -> None:
    if options.get("bfloat16"):
        keras.mixed_precision.set_global_policy("mixed_bfloat16")


def _model(keras: Any, options: Mapping[str, Any]) -> Any:
    from benchmarks.programs import keras_models

    size = {"side": options["side"]} if options["model"] in _PICTURES else {}
    return getattr(keras_models, options["model"])(keras, **size)


def _examples(options: Mapping[str, Any]) -> Any:
    from benchmarks.programs import examples

    count = options["batch"] * options["steps"]
    if options["model"] in _PICTURES:
        return examples.photographs(count, options["side"], 1000 if options["model"] == "resnet" else 2)
    return examples.texts(count, 80 if options["model"] == "lstm" else 128)


def _fit(keras: Any, model: Any, options: Mapping[str, Any]) -> dict[str, float]:
    from benchmarks.programs.fit import timed_fit

    x, y = _examples(options)
    data = {"x": x, "y": y, "batch_size": options["batch"], "shuffle": False, "least": options["least"]}
    return {_RATE: options["batch"] * timed_fit(keras, model, options["steps"], options["seconds"], **data)}


def _case(name: str, title: str, model: str, batch: int, steps: int, bars: list[Bar]) -> Case:
    large = model in _PICTURES
    # A step of MobileNetV2 takes seconds on plain Keras.
    own = {"model": model, "side": 224, "batch": batch, "steps": steps}
    own |= {"least": 1, "warm_up": 2, "every": 1} if large else {"least": 2, "warm_up": 10, "every": 8}
    return Case(
        row=3,
        name=name,
        title=title,
        module=_MODULE,
        metrics={_RATE: f"whole epochs of {steps} steps after the first one"},
        sides=[
            Side(OURS, "lockstep", "lockstep", "ours", own),
            Side(TENSORFLOW, "tensorflow", "tensorflow", options=own),
            Side(KERAS, "keras_on_jax", "jax", options=own),
            Side(TORCH, "pytorch", "torch", options=own, quick=False),
            Side(LOOP, "jax_loop", "jax", "ceiling", own, quick=False),
        ],
        bars=bars,
    )


def _never_slower() -> Bar:
    return Bar("x Keras on JAX", (OURS, _RATE), [(KERAS, _RATE)], 1.0)


CASES = [
    _case(
        "MobileNetV2",
        "MobileNetV2 224x224, batch 16, Adam, `fit`",
        "mobilenet",
        16,
        6,
        [
            Bar("x Keras on JAX", (OURS, _RATE), [(KERAS, _RATE)], 6.0),
            Bar("x TensorFlow 2.15", (OURS, _RATE), [(TENSORFLOW, _RATE)], None, 1.2),
        ],
    ),
    _case("LSTM", "LSTM of 128 over 80 tokens, batch 32, Adam, `fit`", "lstm", 32, _TEXT_STEPS, [_never_slower()]),
    _case(
        "Transformer",
        "Two encoder blocks of width 128 over 128 tokens, batch 32, Adam, `fit`",
        "transformer",
        32,
        _TEXT_STEPS,
        [_never_slower()],
    ),
]
