"""What heads are given: logits, labels, weights; checked, and in one shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep.errors import ArgumentError, InputError
from lockstep.feature_column._features import Features, is_text, text_codes
from lockstep.feature_column._numeric import NumericColumn


def checked_logits(logits: Any, dimension: int) -> jax.Array:
    """Returns logits as float32 (..., dimension).

    Raises:
        ArgumentError: If they have another shape.
    """
    found = jnp.asarray(logits).astype(jnp.float32)
    if found.ndim < 2 or found.shape[-1] != dimension:
        raise ArgumentError(
            f"logits must have the shape (batch, {dimension}), or more dimensions before the last. Received: "
            f"{found.shape}. The last layer needs head.logits_dimension units."
        )
    return found


def checked_labels(labels: Any, logits: jax.Array, dimension: int, encode: Callable[[Any], jax.Array]) -> jax.Array:
    """Returns labels in the shape of the logits, but for the last dimension.

    Args:
        labels: As an input_fn gives them.
        logits: (..., n).
        dimension: What the labels' last dimension must be; with 1 it may be missing.
        encode: Turns them into numbers.

    Raises:
        ArgumentError: If they are missing or have another shape.
    """
    if labels is None:
        raise ArgumentError(
            "You must provide labels. Received: None. Return (features, labels) from the input_fn, and check that the "
            "data has the label."
        )
    if isinstance(labels, dict):
        raise ArgumentError(f"labels of one head are an array. Received: a dict of {sorted(labels)}. Use MultiHead.")
    found = encode(labels)
    if found.ndim == logits.ndim - 1 and dimension == 1:
        found = found[..., None]
    expected = (*logits.shape[:-1], dimension)
    if found.shape != expected:
        raise ArgumentError(
            f"labels must have the shape {expected}. Received: {found.shape}. Check n_classes or label_dimension, and "
            "whether labels are class numbers (one for each example) or one of 0 and 1 for each class."
        )
    return found


def numbers(labels: Any) -> jax.Array:
    """Returns labels that are numbers.

    Raises:
        ArgumentError: If they are text.
    """
    if is_text(labels):
        raise ArgumentError(
            "Labels must be numbers if there is no label_vocabulary. Received: text. Pass the words as "
            "label_vocabulary."
        )
    return jnp.asarray(labels)


def words(labels: Any, vocabulary: Sequence[str | bytes], missing: int | None = None) -> jax.Array:
    """Returns the numbers of words.

    Args:
        labels: Text.
        vocabulary: The words.
        missing: What "" is; `None` if it is a word like any other.

    Raises:
        ArgumentError: If the labels are no text.
    """
    if not is_text(labels):
        raise ArgumentError(
            f"Labels must be text if there is a label_vocabulary. Received: {jnp.asarray(labels).dtype.name}. Leave "
            "the label_vocabulary out, or give the words."
        )
    known = {word: number for number, word in enumerate(as_bytes(vocabulary))}
    if missing is not None:
        known[b""] = missing
    return text_codes(labels, lambda texts: _found(texts, known))


def _found(texts: np.ndarray, known: dict[bytes, int]) -> np.ndarray:
    unknown = next((text for text in texts.ravel() if text not in known), None)
    if unknown is not None:
        raise InputError(
            f"Labels must be in the label_vocabulary. Received: {unknown!r}; it holds {', '.join(map(repr, known))}."
        )
    return np.array([known[text] for text in texts.ravel()], np.int32).reshape(texts.shape)


def as_bytes(vocabulary: Sequence[str | bytes]) -> list[bytes]:
    """Returns words as bytes."""
    return [word.encode() if isinstance(word, str) else bytes(word) for word in vocabulary]


def checked_vocabulary(vocabulary: Any, count: int) -> tuple[Any, ...] | None:
    """Returns the words of labels.

    Raises:
        ArgumentError: If they are no list of as many different words as there are classes.
    """
    if vocabulary is None:
        return None
    if not isinstance(vocabulary, (list, tuple)):
        raise ArgumentError(f"label_vocabulary must be a list or tuple of words. Received: {vocabulary!r}.")
    if len(set(vocabulary)) != count or len(vocabulary) != count:
        raise ArgumentError(
            f"label_vocabulary must hold one word for each of the {count} classes. Received: {vocabulary!r}."
        )
    return tuple(vocabulary)


def checked_weight_column(column: Any) -> Any:
    """Returns where weights come from: the name of a feature, a numeric column or `None`.

    Raises:
        ArgumentError: If it is something else.
    """
    if column is None or isinstance(column, (str, NumericColumn)):
        return column
    raise ArgumentError(f"weight_column must be the name of a feature or a numeric_column. Received: {column!r}.")


def weights_of(features: Any, column: Any, logits: jax.Array, per_logit: bool = False) -> jax.Array | None:
    """Returns the weights of examples: float32 (..., 1), or of each logit; `None` for 1.

    Raises:
        ArgumentError: If they are missing or have another shape.
    """
    if column is None:
        return None
    key = column if isinstance(column, str) else column.key
    found = Features(features).numbers(key)
    if isinstance(column, NumericColumn) and column.normalizer_fn is not None:
        found = jnp.asarray(column.normalizer_fn(found))
    found = found.astype(jnp.float32)
    if found.shape == logits.shape[:-1]:
        return found[..., None]
    if found.shape == (*logits.shape[:-1], 1) or (per_logit and found.shape == logits.shape):
        return found
    raise ArgumentError(
        f"Weights must have a number for each example, {(*logits.shape[:-1], 1)}"
        f"{f', or for each logit, {logits.shape}' if per_logit else ''}. Received for {key!r}: {found.shape}."
    )


def or_nan(values: jax.Array, is_right: jax.Array) -> jax.Array:
    """Returns values, NaN where they are wrong: a compiled step cannot raise, but a loss that is NaN ends training."""
    return jnp.where(is_right, values, jnp.nan)
