"""Classes as predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._text import words
from lockstep._types import PyTree
from lockstep.estimator._heads import _keys


def names_of(count: int, vocabulary: Sequence[Any] | None) -> list[Any]:
    """Returns the names of classes: words, or their numbers as text."""
    return list(vocabulary) if vocabulary is not None else [str(number) for number in range(count)]


def all_class_ids(logits: jax.Array, count: int) -> jax.Array:
    """Returns the numbers of all classes, for each example: int32 (batch, count)."""
    return jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32), (logits.shape[0], count))


def predict_classes(logits: jax.Array, names: Sequence[Any]) -> dict[str, Any]:
    """Returns the most likely class of each example, and all classes.

    Args:
        logits: (..., classes).
        names: The classes' names.
    """
    class_ids = jnp.argmax(logits, axis=-1, keepdims=True)
    every = all_class_ids(logits, len(names))
    return {
        _keys.PROBABILITIES: jax.nn.softmax(logits),
        _keys.CLASS_IDS: class_ids,
        _keys.CLASSES: words(class_ids, names),
        _keys.ALL_CLASS_IDS: every,
        _keys.ALL_CLASSES: words(every, names),
    }


def classification_outputs(predictions: PyTree, names: Sequence[Any]) -> dict[str, Any]:
    """Returns the outputs of a saved classifier by the names of their signatures."""
    from lockstep.estimator._export.outputs import ClassificationOutput, PredictOutput

    scores = predictions[_keys.PROBABILITIES]
    output = ClassificationOutput(scores=scores, classes=words(all_class_ids(scores, len(names)), names))
    return {
        _keys.DEFAULT_SIGNATURE: output,
        _keys.CLASSIFY_SIGNATURE: output,
        _keys.PREDICT_SIGNATURE: PredictOutput(predictions),
    }
