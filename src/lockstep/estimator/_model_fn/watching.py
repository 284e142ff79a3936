"""Traces of a model_fn whose lookups are watched: also those of Keras' `Embedding`, which reads its table whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import jax.numpy as jnp
from keras import layers, ops

from lockstep._engine.keras.replica_step import replace_method
from lockstep.estimator._model_fn.lookups import Watch, active
from lockstep.estimator._model_fn.scope import current


@contextlib.contextmanager
def watching(watch: Watch) -> Generator[None]:
    """Has lookups and reads of model_fns that are traced on this thread go to `watch`."""
    with active(watch), replace_method(layers.Embedding, "call", _by_lookup):
        yield


def _by_lookup(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `Embedding.call` by a lookup, where that is all it does."""

    def call(self: Any, inputs: Any) -> Any:
        table, scope = vars(self).get("_embeddings"), current()
        if scope is None or table is None or self.lora_enabled or self.quantization_mode:
            return theirs(self, inputs)
        if inputs.dtype not in ("int32", "int64"):
            inputs = ops.cast(inputs, "int32")
        rows = scope.lookup(table, jnp.asarray(inputs), lambda value, ids: ops.take(value, ids, axis=0))
        return ops.cast(rows, dtype=self.compute_dtype)

    return call
