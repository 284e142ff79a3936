"""Summaries of a model_fn for TensorBoard, and their tags."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src.backend.common.name_scope import current_path

from lockstep._text import Text, Words, is_text, words
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._model_fn import scope as scopes
from lockstep.estimator._model_fn.records import SummaryKind, SummaryOp

_log = logging.getLogger("lockstep")
_SUMMARIES = "summaries"
_NOT_IN_TAGS = re.compile(r"[^-/\w.]")
_CHANNELS = (1, 3, 4)


def scalar(name: str, tensor: Any, collections: Sequence[str] | None = None, family: str | None = None) -> SummaryOp:
    """Shows a number in TensorBoard, every `RunConfig.save_summary_steps` steps.

    Args:
        name: Its tag, in Keras' name scope; `_1` and so on is appended if there is one already.
        tensor: An integer or float without dimensions.
        collections: Where to collect it; default: `["summaries"]`, what the Estimator writes.
        family: Put before the tag: the tab of TensorBoard in which it appears.

    Source: tf.compat.v1.summary.scalar.

    Raises:
        StartupOrderError: Outside of a model_fn.
        ArgumentError: If `tensor` is something else.
    """
    value = _check_numbers("scalar", tensor)
    if value.ndim:
        raise ArgumentError(
            f"summary.scalar shows one number: received {name!r} of shape {value.shape}. Reduce it, for example by "
            "keras.ops.mean, or use summary.histogram."
        )
    return _add("scalar", name, value, collections, family)


def histogram(name: str, values: Any, collections: Sequence[str] | None = None, family: str | None = None) -> SummaryOp:
    """Shows in TensorBoard how values are distributed; those that are not finite are left out.

    Args:
        name: As for `scalar`.
        values: Integers or floats, of any shape.
        collections: As for `scalar`.
        family: As for `scalar`.

    Source: tf.compat.v1.summary.histogram.

    Raises:
        StartupOrderError: Outside of a model_fn.
        ArgumentError: If `values` are something else.
    """
    return _add("histogram", name, _check_numbers("histogram", values), collections, family)


def image(
    name: str,
    tensor: Any,
    max_outputs: int = 3,
    collections: Sequence[str] | None = None,
    family: str | None = None,
) -> SummaryOp:
    """Shows the first images of a batch in TensorBoard, as `<tag>/image/0` and so on; one alone as `<tag>/image`.

    Args:
        name: As for `scalar`.
        tensor: (batch, height, width, 1, 3 or 4); uint8, or floats, which are scaled for each image: the largest value
            becomes 255; with negative values, zero becomes 128.
        max_outputs: How many.
        collections: As for `scalar`.
        family: As for `scalar`.

    Source: tf.compat.v1.summary.image.

    Raises:
        StartupOrderError: Outside of a model_fn.
        ArgumentError: If an argument is something else.
    """
    if isinstance(max_outputs, bool) or not isinstance(max_outputs, int) or max_outputs < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"max_outputs is a whole number, at least 1: received {max_outputs!r}.")
    images = _check_numbers("image", tensor)
    is_image_dtype = images.dtype == jnp.uint8 or jnp.issubdtype(images.dtype, jnp.floating)
    if images.ndim != 4 or images.shape[-1] not in _CHANNELS or not is_image_dtype:
        raise ArgumentError(
            "summary.image shows uint8 or floats of shape (batch, height, width, channels) with 1, 3 or 4 channels: "
            f"received {name!r}, {images.dtype} of shape {images.shape}. Convert it by keras.ops.cast or reshape it."
        )
    return _add("image", name, images[:max_outputs], collections, family, max_outputs)


def text(name: str, tensor: Any, collections: Sequence[str] | None = None) -> SummaryOp:
    """Shows text in TensorBoard, which renders Markdown and puts arrays of text into tables.

    Args:
        name: As for `scalar`.
        tensor: Text that is fixed when the model_fn is traced: `str`, `bytes`, or nested lists or an array of them.
        collections: As for `scalar`.

    Source: tf.compat.v1.summary.text.

    Raises:
        StartupOrderError: Outside of a model_fn.
        ArgumentError: If `tensor` is something else.
    """
    if isinstance(tensor, Words):
        return _add("text", name, tensor, collections, None)
    if isinstance(tensor, Text):
        raise ArgumentError(
            "summary.text shows text that is fixed when the model_fn is traced: received text of the features, which "
            "never reaches the step. Show numbers computed from it."
        )
    texts = np.asarray(tensor, object)
    if not all(isinstance(value, (str, bytes)) for value in texts.flat):
        raise ArgumentError(f"summary.text shows str or bytes, or lists of them: received {tensor!r}.")
    # Integers in the step, and the vocabulary beside it: XLA has no strings.
    ids = words(jnp.arange(texts.size).reshape(texts.shape), list(texts.flat))
    return _add("text", name, ids, collections, None)


def audio(name: str, *args: Any, **kwargs: Any) -> SummaryOp:
    """Refuses: sound is not written.

    Raises:
        UnsupportedError: Always.
    """
    raise UnsupportedError(
        f"summary.audio({name!r}) was called: nothing here encodes sound. Show its spectrogram by summary.image."
    )


def merge(inputs: Any, collections: Sequence[str] | None = None) -> list[SummaryOp]:
    """Returns several summaries as one list, which `SummarySaverHook` takes.

    Args:
        inputs: Summaries, or lists of them.
        collections: Where to collect them too; default: nowhere.

    Source: tf.compat.v1.summary.merge.

    Raises:
        ArgumentError: If something else is among them.
    """
    merged = _flatten(inputs)
    for op in merged if collections else []:
        _collect(op, collections or [])
    return merged


def merge_all(key: str = _SUMMARIES, scope: str | None = None) -> list[SummaryOp] | None:
    """Returns all summaries that the model_fn has made so far, or None if there are none.

    Args:
        key: In which collection.
        scope: A regular expression that the beginning of the tag must match.

    Source: tf.compat.v1.summary.merge_all.

    Raises:
        StartupOrderError: Outside of a model_fn.
    """
    running = scopes.demand("summary.merge_all()")
    collected = running.recorded.summaries if key == _SUMMARIES else running.collections.get(key, [])
    return [op for op in collected if scope is None or re.match(scope, op.tag)] or None


def _add(
    kind: SummaryKind,
    name: str,
    value: Any,
    collections: Sequence[str] | None,
    family: str | None,
    max_outputs: int = 3,
) -> SummaryOp:
    scope = scopes.demand(f"summary.{kind}({name!r})")
    op = SummaryOp(kind, _tag_of(scope, name, family), value, max_outputs)
    _collect(op, [_SUMMARIES] if collections is None else collections)
    return op


def _collect(op: SummaryOp, collections: Sequence[str]) -> None:
    scope = scopes.demand(f"summary {op.tag!r}")
    for key in collections:
        if key == _SUMMARIES:
            scope.add_summary(op)
        else:
            scope.collections.setdefault(key, []).append(op)


def _flatten(given: Any) -> list[SummaryOp]:
    if isinstance(given, SummaryOp):
        return [given]
    if isinstance(given, (list, tuple)):
        return [op for element in given for op in _flatten(element)]
    raise ArgumentError(
        f"summary.merge takes what summary.scalar and its like return, or lists of it: received {given!r}."
    )


def _check_numbers(kind: str, given: Any) -> Any:
    if any(isinstance(leaf, (str, bytes)) or is_text(leaf) for leaf in jax.tree.leaves(given)):
        raise ArgumentError(f"summary.{kind} shows numbers: received {given!r}. For text, use summary.text.")
    value: Any = keras.ops.convert_to_tensor(given)
    if not (jnp.issubdtype(value.dtype, jnp.integer) or jnp.issubdtype(value.dtype, jnp.floating)):
        raise ArgumentError(
            f"summary.{kind} shows integers and floats: received {value.dtype} of shape {value.shape}. Convert it by "
            'keras.ops.cast(value, "float32").'
        )
    return value


def _tag_of(scope: scopes.ModelScope, name: str, family: str | None) -> str:
    """Returns the tag of a new summary: in Keras' name scope, and unlike those that the call has made."""
    name, family = _clean_name(name), _clean_name(family) if family is not None else None
    # TensorFlow has the family twice: before the tag, for the tab of TensorBoard, and before the name in its scope.
    tag = unique = "/".join(part for part in (family, current_path(), family, name) if part)
    collected: Any = itertools.chain(scope.recorded.summaries, *scope.collections.values())
    taken, number = {op.tag.lower() for op in collected if isinstance(op, SummaryOp)}, 0
    # As in TensorFlow, names that differ in case alone are the same.
    while unique.lower() in taken:
        number += 1
        unique = f"{tag}_{number}"
    return unique


def _clean_name(name: str) -> str:
    """Replaces characters that TensorFlow's names may not have."""
    cleaned = _NOT_IN_TAGS.sub("_", name).lstrip("/")
    if cleaned != name:
        _log.info("Summary name %s is illegal; using %s instead.", name, cleaned)
    return cleaned
