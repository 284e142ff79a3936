"""Checks of a head's logits, labels and weights, which bring them to one shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lockstep._types import PyTree
from lockstep.errors import ArgumentError, InputError, UnsupportedError
from lockstep.estimator._model_fn.scope import current
from lockstep.estimator.feature_column._features import Features, is_text, text_codes
from lockstep.estimator.feature_column._numeric import NumericColumn

WeightColumn = str | NumericColumn | None


def check_logits(logits: PyTree, dimension: int) -> jax.Array:
    """Checks logits; returns float32 (..., dimension)."""
    # float32 in any case: losses of half precision lose what a mean over a batch needs, and TensorFlow casts, too.
    array = jnp.asarray(logits).astype(jnp.float32)
    if array.ndim < 2 or array.shape[-1] != dimension:
        raise ArgumentError(
            f"logits must have the shape (batch, {dimension}), or more dimensions before the last. Received: "
            f"{array.shape}. The last layer needs head.logits_dimension units."
        )
    return array


def check_labels(labels: PyTree, logits: jax.Array, dimension: int, encode: Callable[[Any], jax.Array]) -> jax.Array:
    """Brings labels to shape (..., dimension) for logits (..., n), as the numbers that `encode` makes of them.

    A last dimension of 1 may be missing.
    """
    if labels is None:
        raise ArgumentError(
            "You must provide labels. Received: None. Return (features, labels) from the input_fn, and check that the "
            "data has the label."
        )
    if isinstance(labels, dict):
        raise ArgumentError(f"labels of one head are an array. Received: a dict of {sorted(labels)}. Use MultiHead.")
    # TensorFlow's MultiLabelHead takes sparse ones; a step has static shapes.
    if hasattr(labels, "dense_shape"):
        raise UnsupportedError(
            f"Labels are dense. Received: a {type(labels).__name__}. Make one of 0 and 1 for each class in the "
            "input_fn, or of text a dense array of words, filled up with ''."
        )
    array = encode(labels)
    # TensorFlow's `check_dense_labels_match_logits_and_reshape` adds the dimension, too; nothing else is broadcast.
    if array.ndim == logits.ndim - 1 and dimension == 1:
        array = array[..., None]
    expected = (*logits.shape[:-1], dimension)
    if array.shape != expected:
        raise ArgumentError(
            f"labels must have the shape {expected}. Received: {array.shape}. Check n_classes or label_dimension, and "
            "whether labels are class numbers (one for each example) or one of 0 and 1 for each class."
        )
    return array


def numbers(labels: PyTree) -> jax.Array:
    """Checks numeric labels."""
    if is_text(labels):
        raise ArgumentError(
            "Labels must be numbers if there is no label_vocabulary. Received: text. Pass the words as "
            "label_vocabulary."
        )
    return jnp.asarray(labels)


def words(labels: PyTree, vocabulary: Sequence[str | bytes], missing: int | None = None) -> jax.Array:
    """Returns the numbers of words; `missing` is the value of "", or `None` if it is a word like any other."""
    if not is_text(labels):
        raise ArgumentError(
            f"Labels must be text if there is a label_vocabulary. Received: {jnp.asarray(labels).dtype.name}. Leave "
            "the label_vocabulary out, or give the words."
        )
    known = {word.encode() if isinstance(word, str) else bytes(word): n for n, word in enumerate(vocabulary)}
    if missing is not None:
        known[b""] = missing

    def look_up(texts: np.ndarray) -> np.ndarray:
        # On the host, ahead of the step, so that an unknown word raises; an unknown number can only become NaN.
        unknown = next((text for text in texts.ravel() if text not in known), None)
        if unknown is not None:
            raise InputError(
                f"Labels must be in the label_vocabulary. Received: {unknown!r}; it holds "
                f"{', '.join(map(repr, known))}."
            )
        return np.array([known[text] for text in texts.ravel()], np.int32).reshape(texts.shape)

    return text_codes(labels, look_up)


def check_vocabulary(vocabulary: object, count: int) -> tuple[Any, ...] | None:
    """Checks a vocabulary of labels."""
    if vocabulary is None:
        return None
    if not isinstance(vocabulary, (list, tuple)):
        raise ArgumentError(f"label_vocabulary must be a list or tuple of words. Received: {vocabulary!r}.")
    if len(set(vocabulary)) != count or len(vocabulary) != count:
        raise ArgumentError(
            f"label_vocabulary must hold one word for each of the {count} classes. Received: {vocabulary!r}."
        )
    return tuple(vocabulary)


def check_weight_column(column: object) -> Any:
    """Checks the source of weights: a feature's name, a numeric column or `None`."""
    if column is None or isinstance(column, (str, NumericColumn)):
        return column
    raise ArgumentError(f"weight_column must be the name of a feature or a numeric_column. Received: {column!r}.")


def weights_of(features: PyTree, column: WeightColumn, logits: jax.Array, per_logit: bool = False) -> jax.Array | None:
    """Returns the weights of examples: float32 (..., 1), or of each logit; `None` for 1."""
    if column is None:
        return None
    key = column if isinstance(column, str) else column.key
    weights = Features(features).numbers(key)
    # Not the column's `numbers`: weights keep the rank of the logits, which may be more than two.
    if isinstance(column, NumericColumn) and column.normalizer_fn is not None:
        weights = jnp.asarray(column.normalizer_fn(weights))
    weights = weights.astype(jnp.float32)
    if weights.shape == logits.shape[:-1]:
        return weights[..., None]
    if weights.shape == (*logits.shape[:-1], 1) or (per_logit and weights.shape == logits.shape):
        return weights
    raise ArgumentError(
        f"Weights must have a number for each example, {(*logits.shape[:-1], 1)}"
        f"{f', or for each logit, {logits.shape}' if per_logit else ''}. Received for {key!r}: {weights.shape}."
    )


def or_nan(values: jax.Array, is_right: jax.Array, rule: str) -> jax.Array:
    """Returns values, NaN where they are wrong; `rule` says, in the error, what they must be.

    Raises:
        ArgumentError: Outside of compiled code, at once.
    """
    message = f"{rule} Received: labels out of range. Check n_classes, and what the input_fn makes of the labels."
    # TensorFlow asserts; a compiled step cannot raise, but the host looks at the step's checks.
    scope = current()
    if scope is not None:
        scope.add_check(message, is_right)
    elif not isinstance(is_right, Tracer) and not is_right.all():
        raise ArgumentError(message)
    return jnp.where(is_right, values, jnp.nan)
