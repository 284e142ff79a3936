"""Parsing serialised examples.

Source: tf.io.parse_single_example, parse_example, parse_single_sequence_example.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._example import features as kinds
from lockstep.data._files.stream import to_text_array
from lockstep.errors import ArgumentError, InputError

_Array = np.ndarray[Any, np.dtype[Any]]
_Find = Callable[[str], Any]  # name to Feature or None
_LISTS = {np.dtype(np.float32): "float_list", np.dtype(np.int64): "int64_list", kinds.TEXT: "bytes_list"}
_NAMES = {"float_list": "float32", "int64_list": "int64", "bytes_list": "text"}


def parse_single_example(serialized: ArrayLike, features: Mapping[str, kinds.Description]) -> dict[str, Any]:
    """Parses one serialised `Example`.

    Args:
        serialized: `bytes`.
        features: What it holds, by name.

    Returns:
        By name: for a `FixedLenFeature` an array of its shape (scalar text: `bytes`), for a `VarLenFeature` or
        `RaggedFeature` an array (n,), for a `FixedLenSequenceFeature` an array (n, *shape). Text is an object array.

    Raises:
        InputError: If it is no example, or does not hold what is described.
        ArgumentError: If an argument is wrong.

    Source: tf.io.parse_single_example.
    """
    _check_descriptions(features)
    find = _decode_message("Example", serialized_bytes(serialized), 0).features.feature.get
    return {name: _single(find, name, feature, "the example") for name, feature in features.items()}


def parse_example(serialized: ArrayLike, features: Mapping[str, kinds.Description]) -> dict[str, Any]:
    """Parses a batch of serialised `Example`s.

    Args:
        serialized: An object array (batch,) of `bytes`, or a list.
        features: What they hold, by name.

    Returns:
        By name: for a `FixedLenFeature` an array (batch, *shape), for a `FixedLenSequenceFeature` an array
        (batch, longest, *shape), padded, for a `VarLenFeature` a `SparseValue`, for a `RaggedFeature` a `RaggedValue`;
        both of the latter have `to_dense()`.

    Raises:
        InputError: If one is no example, or does not hold what is described.
        ArgumentError: If an argument is wrong.

    Source: tf.io.parse_example.
    """
    # In a serving_input_receiver_fn the same call describes the model's input.
    if hasattr(serialized, "parse_example"):  # A placeholder of a serving_input_receiver_fn.
        return serialized.parse_example(features)
    _check_descriptions(features)
    if isinstance(serialized, (bytes, bytearray, str)) or np.ndim(serialized) != 1:
        raise ArgumentError("parse_example takes a batch of serialised examples; for one use parse_single_example.")
    messages = [_decode_message("Example", serialized_bytes(one), index) for index, one in enumerate(serialized)]
    finders = [message.features.feature.get for message in messages]
    return {name: _parse_batch(finders, name, feature) for name, feature in features.items()}


def parse_single_sequence_example(
    serialized: ArrayLike,
    context_features: Mapping[str, kinds.Description] | None = None,
    sequence_features: Mapping[str, kinds.Description] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parses one serialised `SequenceExample`.

    Args:
        serialized: `bytes`.
        context_features: What its context holds, by name; described and returned as in `parse_single_example`.
        sequence_features: What its lists hold, by name. A `FixedLenSequenceFeature` gives an array (steps, *shape), a
            `VarLenFeature` a `SparseValue` and a `RaggedFeature` a `RaggedValue` with a row per step.

    Returns:
        Context and lists.

    Raises:
        InputError: If it is no sequence example, or does not hold what is described.
        ArgumentError: If an argument is wrong.

    Source: tf.io.parse_single_sequence_example.
    """
    _check_descriptions(context_features or {})
    message = _decode_message("SequenceExample", serialized_bytes(serialized), 0)
    context, lists = message.context.feature, message.feature_lists.feature_list
    parsed = {
        name: _single(context.get, name, feature, "the context") for name, feature in (context_features or {}).items()
    }
    return parsed, {name: _steps(lists, name, feature) for name, feature in (sequence_features or {}).items()}


def _decode_message(name: str, serialized: bytes, index: int) -> Any:
    try:
        return _message_classes(name).FromString(serialized)
    except _decode_error() as error:
        raise InputError(
            f"example {index} is no serialised {name}: its {len(serialized)} bytes begin with {serialized[:16]!r}. "
            f"Check what the file holds, and whether it is compressed."
        ) from error


def _single(find: _Find, name: str, feature: kinds.Description, where: str) -> Any:
    key, count = _key(name, feature), value_count(feature)
    values = values_of(find(key), key, feature.dtype, where)
    if isinstance(feature, kinds.FixedLenFeature):
        return _fixed_value(values, key, feature, count, where)
    if values is None:
        values = np.empty(0, feature.dtype)
    if isinstance(feature, kinds.FixedLenSequenceFeature):
        return to_shape(values, key, feature.shape, count, where)
    return values


def _fixed_value(values: _Array | None, key: str, feature: kinds.FixedLenFeature, count: int, where: str) -> Any:
    if values is None:
        if feature.default_value is None:
            raise missing_feature(key, where)
        return _unwrap_text(_default(feature))
    if len(values) != count:
        raise InputError(
            f"feature {key!r} of {where} holds {len(values)} values; {count} are described by shape "
            f"{list(feature.shape)}. Correct the description, or use a VarLenFeature."
        )
    return _unwrap_text(values.reshape(tuple(feature.shape)))


def _unwrap_text(values: _Array) -> Any:
    """Returns an array, or the `bytes` that an array of no dimensions holds."""
    return values.item() if values.ndim == 0 and values.dtype == kinds.TEXT else values


def _default(feature: kinds.FixedLenFeature) -> _Array:
    default = np.asarray(feature.default_value)
    if feature.dtype == kinds.TEXT:
        default = np.array([kinds.fill_value(kinds.TEXT, one) for one in default.reshape(-1).tolist()], object)
        default = default.reshape(np.shape(feature.default_value))
    try:
        # One value stands for the whole shape, as in TensorFlow.
        fitting = default.reshape(tuple(feature.shape)) if default.size != 1 else default.reshape(())
        return np.broadcast_to(fitting, tuple(feature.shape)).astype(feature.dtype)
    except (ValueError, TypeError) as error:
        raise ArgumentError(
            f"default_value {feature.default_value!r} does not fit the shape {list(feature.shape)} and the dtype "
            f"{feature.dtype}."
        ) from error


def _parse_batch(finders: Sequence[_Find], name: str, feature: kinds.Description) -> Any:
    rows = [_single(find, name, feature, f"example {index}") for index, find in enumerate(finders)]
    if isinstance(feature, kinds.FixedLenFeature):
        return np.array(rows, feature.dtype).reshape(len(rows), *feature.shape)
    if isinstance(feature, kinds.FixedLenSequenceFeature):
        # Of this batch, as in TensorFlow: another batch may have another length.
        longest = max((len(row) for row in rows), default=0)
        blank = kinds.fill_value(feature.dtype, feature.default_value)
        batch = np.full((len(rows), longest, *feature.shape), blank, feature.dtype)
        for target, row in zip(batch, rows, strict=True):
            target[: len(row)] = row
        return batch
    return _concatenate_rows(rows, feature)


def _concatenate_rows(rows: Sequence[_Array], feature: kinds.Description) -> kinds.SparseValue | kinds.RaggedValue:
    # The empty array gives the dtype where there are no rows.
    values = np.concatenate([np.empty(0, feature.dtype), *rows])
    lengths = np.array([len(row) for row in rows], np.int64)
    return (kinds.to_ragged if isinstance(feature, kinds.RaggedFeature) else kinds.to_sparse)(values, lengths)


def _steps(lists: Any, name: str, feature: kinds.Description) -> Any:
    if isinstance(feature, kinds.FixedLenFeature):
        # TensorFlow refuses it, too: steps have no fixed number.
        raise ArgumentError(f"a list holds any number of steps: describe {name!r} by a FixedLenSequenceFeature.")
    key = _key(name, feature)
    if key not in lists and isinstance(feature, kinds.FixedLenSequenceFeature) and not feature.allow_missing:
        raise missing_feature(key, "the sequence example")
    steps = lists[key].feature if key in lists else ()
    rows = [_step(step, key, feature, index) for index, step in enumerate(steps)]
    if isinstance(feature, kinds.FixedLenSequenceFeature):
        return np.array(rows, feature.dtype).reshape(len(rows), *feature.shape)
    return _concatenate_rows(rows, feature)


def _step(step: Any, key: str, feature: kinds.Description, index: int) -> _Array:
    where = f"step {index} of the sequence example"
    values = values_of(step, key, feature.dtype, where)
    values = np.empty(0, feature.dtype) if values is None else values
    if isinstance(feature, kinds.FixedLenSequenceFeature) and len(values) != value_count(feature):
        raise InputError(
            f"feature {key!r} of {where} holds {len(values)} values; {value_count(feature)} are described by shape "
            f"{list(feature.shape)}. Correct the description, or use a VarLenFeature."
        )
    return values


def _key(name: str, feature: kinds.Description) -> str:
    return feature.value_key or name if isinstance(feature, kinds.RaggedFeature) else name


def _check_descriptions(features: Mapping[str, Any]) -> None:
    for name, feature in features.items():
        if not isinstance(feature, kinds.Description):
            raise ArgumentError(
                f"feature {name!r} is described by a FixedLenFeature, VarLenFeature, FixedLenSequenceFeature or "
                f"RaggedFeature, not {feature!r}."
            )
        if isinstance(feature, kinds.FixedLenSequenceFeature) and not feature.allow_missing:
            raise ArgumentError(f"feature {name!r}: a FixedLenSequenceFeature of an example needs allow_missing=True.")


@cache
def _message_classes(name: str) -> Any:
    # protobuf is imported with the first example: most programs have none.
    return getattr(importlib.import_module("lockstep.data._example.messages"), name)


@cache
def _decode_error() -> type[Exception]:
    # Named here, so that only a program that parses needs protobuf.
    return importlib.import_module("google.protobuf.message").DecodeError


def serialized_bytes(serialized: ArrayLike) -> bytes:
    """Returns a serialised message; text arrays of shape () hold one too."""
    if isinstance(serialized, np.ndarray) and serialized.ndim == 0:
        serialized = serialized.item()
    if isinstance(serialized, (bytes, bytearray)):
        return bytes(serialized)
    raise ArgumentError(
        f"a serialised message is bytes, not {type(serialized).__name__}. For a batch of examples use parse_example."
    )


def values_of(feature: Any, key: str, dtype: np.dtype[Any], where: str) -> _Array | None:
    """Returns a feature's values, (n,), or `None` if it is missing."""
    # A Feature without any list is a missing value, as in TensorFlow.
    kind = None if feature is None else feature.WhichOneof("kind")
    if kind is None:
        return None
    values = getattr(feature, kind).value
    # TensorFlow does not convert between lists either: a wrong dtype is a wrong description.
    if kind != _LISTS[dtype]:
        raise InputError(
            f"feature {key!r} of {where} holds {len(values)} values of {_NAMES[kind]}; {_NAMES[_LISTS[dtype]]} is "
            f"described. Correct the description."
        )
    return to_text_array(values) if dtype == kinds.TEXT else np.array(values, dtype)


def to_shape(values: _Array, key: str, shape: Sequence[int], count: int, where: str) -> _Array:
    """Returns values as (n, *shape), where `count` values make one array of that shape."""
    # A shape with a 0 in it holds no value, whatever the number of arrays.
    if count == 0 or len(values) % count:
        raise InputError(
            f"feature {key!r} of {where} holds {len(values)} values, which is no whole number of arrays of shape "
            f"{list(shape)}. Correct the description, or use a VarLenFeature."
        )
    return values.reshape(-1, *shape)


def value_count(feature: kinds.Description) -> int:
    """Returns how many values one array of the feature's shape takes."""
    return (
        math.prod(feature.shape) if isinstance(feature, (kinds.FixedLenFeature, kinds.FixedLenSequenceFeature)) else 1
    )


def missing_feature(key: str, where: str) -> InputError:
    """Returns the error for a feature that is not there."""
    return InputError(
        f"feature {key!r} is missing from {where}. Give it a default_value, or check the name and the file."
    )
