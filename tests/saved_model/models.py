"""Functions to export."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from lockstep.data import TensorSpec
from lockstep.saved_model import SignatureFunction


def spec(*shape: int | None, dtype: Any = np.float32) -> TensorSpec:
    """What an input looks like."""
    return TensorSpec(shape, dtype)


def mlp_variables(seed: int = 0) -> dict[str, np.ndarray]:
    """Weights of `mlp`."""
    random = np.random.default_rng(seed)
    sizes = {"dense/kernel": (4, 8), "dense/bias": (8,), "head/kernel": (8, 3)}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in sizes.items()}


def mlp(variables: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """Two layers."""
    hidden = jnp.tanh(inputs["x"] @ variables["dense/kernel"] + variables["dense/bias"])
    logits = hidden @ variables["head/kernel"]
    return {"probabilities": jax.nn.softmax(logits), "class": jnp.argmax(logits, -1)}


MLP = SignatureFunction(mlp, {"x": spec(None, 4)})


def mlp_inputs(count: int) -> np.ndarray:
    """Examples for `mlp`."""
    return np.random.default_rng(count).normal(size=(count, 4)).astype(np.float32)


def of_keras(model: keras.Model) -> tuple[SignatureFunction, dict[str, np.ndarray]]:
    """A model of Keras with one input as a function of its variables."""
    variables = {v.path: np.asarray(v.value) for v in model.variables}

    def function(values: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
        mapping = [(v, values[v.path]) for v in model.variables]
        with keras.StatelessScope(state_mapping=mapping):
            return {"output": model(inputs["x"], training=False)}

    given = model.inputs[0]
    return SignatureFunction(function, {"x": spec(*given.shape, dtype=given.dtype)}), variables
