"""Row 2: an MLP in Keras' `fit`, where a step is so short that what surrounds it counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.harness.case import KERAS, LIMIT, LOOP, OURS, PRODUCTS, SCAN, TENSORFLOW, TORCH, Bar, Case, Side

_BATCH, _MODULE, _RATE = 32, "benchmarks.rows.mlp", "steps/s"


def lockstep(options: Mapping[str, Any]) -> dict[str, float]:
    """Keras Distribution guide's program: a dataset of batches, under MirroredStrategy."""
    import lockstep as ls  # isort: split
    import keras

    from benchmarks.programs import keras_models

    x, y = _examples(options)
    strategy = ls.distribute.MirroredStrategy()
    with strategy.scope():
        model = keras_models.mlp(keras)
    if options.get("arrays"):
        return _fit(keras, model, options, x=x, y=y, batch_size=_BATCH)
    return _fit(keras, model, options, x=ls.data.Dataset.from_tensor_slices((x, y)).batch(_BATCH))


def keras_on_jax(options: Mapping[str, Any]) -> dict[str, float]:
    """Plain Keras 3."""
    import keras

    from benchmarks.programs import keras_models

    x, y = _examples(options)
    return _fit(keras, keras_models.mlp(keras), options, x=x, y=y, batch_size=_BATCH)


def tensorflow(options: Mapping[str, Any]) -> dict[str, float]:
    """TensorFlow's Keras."""
    import tensorflow as tf

    from benchmarks.programs import keras_models

    x, y = _examples(options)
    settings = {"steps_per_execution": options.get("steps_per_execution", 1)}
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(_BATCH)
    return _fit(tf.keras, keras_models.mlp(tf.keras, **settings), options, x=dataset)


def _examples(options: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    from benchmarks.programs.examples import flat_digits

    return flat_digits(options["data"], options.get("count", 50_000))


def _fit(keras: Any, model: Any, options: Mapping[str, Any], **arguments: Any) -> dict[str, float]:
    from benchmarks.programs.fit import timed_fit

    shown = {"verbose": 1} if options.get("bar") else {}
    return {
        _RATE: timed_fit(
            keras, model, -(-options.get("count", 50_000) // _BATCH), options["seconds"], **arguments, **shown
        )
    }


def pytorch(options: Mapping[str, Any]) -> dict[str, float]:
    """An eager loop."""
    from benchmarks.programs import torch_loop, torch_models

    device = options.get("device", "cpu")
    model = torch_models.mlp().to(device)
    data = torch_loop.as_tensors(*_examples(options))
    return {_RATE: torch_loop.rate(model, torch_loop.adam(model), data, _BATCH, options["seconds"], device)}


def jax_loop(options: Mapping[str, Any]) -> dict[str, float]:
    """A jitted step, called for each batch."""
    from benchmarks.programs import jax_loops

    x, y = _examples(options)
    state, step = jax_loops.mlp(np.random.default_rng(0))
    return {_RATE: jax_loops.loop(state, step, jax_loops.endless(x, y, _BATCH), options["seconds"])}


def jax_scan(options: Mapping[str, Any]) -> dict[str, float]:
    """The same under `lax.scan`, over data that are there."""
    from benchmarks.programs import jax_loops

    batches = jax_loops.stacked(*_examples(options), _BATCH)
    state, step = jax_loops.mlp(np.random.default_rng(0))
    return {_RATE: jax_loops.scan(state, step, batches, options["seconds"])}


def jax_products(options: Mapping[str, Any]) -> dict[str, float]:
    """Of that step the products of matrices and Adam alone."""
    from benchmarks.programs import jax_loops

    batches = jax_loops.stacked(*_examples(options), _BATCH)
    state, step = jax_loops.mlp_products(np.random.default_rng(0))
    return {_RATE: jax_loops.scan(state, step, batches, options["seconds"])}


def jax_limit(options: Mapping[str, Any]) -> dict[str, float]:
    """The same two if the products were as fast as one of large matrices: what this machine's cores can do."""
    from benchmarks.programs import jax_loops

    seconds = options["seconds"] / 2
    batches = jax_loops.stacked(*_examples(options), _BATCH)
    state, step = jax_loops.mlp_adam(np.random.default_rng(0))
    adam = 1 / jax_loops.scan(state, step, batches, seconds)
    products = jax_loops.mlp_multiplications(_BATCH) / jax_loops.operations_per_second(seconds)
    return {_RATE: 1 / (products + adam), "us of products": products * 1e6, "us of Adam": adam * 1e6}


CASES = [
    Case(
        row=2,
        name="MLP",
        title="MLP 784-256-256-10, batch 32, Adam, `fit`",
        module=_MODULE,
        metrics={_RATE: "whole epochs of 1,563 steps after the first one"},
        needs=["digits"],
        sides=[
            Side(OURS, "lockstep", "lockstep", "ours"),
            Side("lockstep, arrays", "lockstep", "lockstep", "ours", {"arrays": True}),
            Side("lockstep, progress bar", "lockstep", "lockstep", "ours", {"bar": True}, quick=False),
            Side(TENSORFLOW, "tensorflow", "tensorflow"),
            Side(
                f"{TENSORFLOW}, 32 steps per execution",
                "tensorflow",
                "tensorflow",
                options={"steps_per_execution": 32},
                quick=False,
            ),
            Side(f"{TENSORFLOW}, progress bar", "tensorflow", "tensorflow", options={"bar": True}, quick=False),
            Side(KERAS, "keras_on_jax", "jax"),
            Side(f"{KERAS}, progress bar", "keras_on_jax", "jax", options={"bar": True}, quick=False),
            Side(TORCH, "pytorch", "torch", quick=False),
            Side(LOOP, "jax_loop", "jax", "ceiling"),
            Side(SCAN, "jax_scan", "jax", "ceiling"),
            Side(PRODUCTS, "jax_products", "jax", "ceiling"),
            Side(LIMIT, "jax_limit", "jax", "ceiling"),
        ],
        bars=[
            Bar(
                "x the faster of TensorFlow 2.15 and Keras on JAX",
                (OURS, _RATE),
                [(TENSORFLOW, _RATE), (KERAS, _RATE)],
                2.0,
            ),
            Bar("x the bare lax.scan", (OURS, _RATE), [(SCAN, _RATE)], 0.9, 0.97),
        ],
    )
]
