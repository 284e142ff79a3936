"""Inputs that are serialised examples: their features as arrays, and their descriptions as JSON.

Examples are parsed on the host, by lockstep.data, which is imported for signatures that need it only. What is of
different length in each example reaches a program as one array, as the columns of lockstep.estimator.feature_column
take it: behind shorter rows stand "" (text), -1 (integers) or 0.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from lockstep._types import JSON, ArrayLike, DType
from lockstep.errors import ArgumentError
from lockstep.saved_model._description import TEXT, TensorInfo

_Array = np.ndarray[Any, np.dtype[Any]]
# Only these are made again from JSON: nothing that it says is looked up elsewhere.
_KINDS = ("FixedLenFeature", "FixedLenSequenceFeature", "VarLenFeature", "RaggedFeature")
_NO_VALUE = {TEXT: b"", "int64": -1, "float32": 0.0}


def kinds() -> Any:
    """Returns the module of descriptions of features."""
    # By name, so that lockstep.data is imported for signatures that need it only.
    return importlib.import_module("lockstep.data._example.features")


def looks(spec: Mapping[str, Any]) -> dict[str, TensorInfo]:
    """Returns shapes and types of parsed examples, by name."""
    # Besides the number of examples, what has different lengths has an open size of its own.
    longest = {name: () if type(f).__name__ == "FixedLenFeature" else (None,) for name, f in spec.items()}
    return {
        name: TensorInfo((None, *longest[name], *getattr(feature, "shape", ())), dtype_name(feature.dtype))
        for name, feature in spec.items()
    }


def parse(serialized: Any, spec: Mapping[str, Any]) -> dict[str, _Array]:
    """Parses a batch of serialised examples; raises `InputError` if one is none, or lacks what is described."""
    features = importlib.import_module("lockstep.data._example.parse").parse_example(serialized, spec)
    return {name: _dense(value, spec[name]) for name, value in features.items()}


def _dense(value: ArrayLike, feature: Any) -> _Array:
    if type(feature).__name__ == "FixedLenFeature":
        return value
    is_padded = type(feature).__name__ == "FixedLenSequenceFeature"
    no_value = (
        kinds().fill_value(feature.dtype, feature.default_value) if is_padded else _NO_VALUE[dtype_name(feature.dtype)]
    )
    dense = value if is_padded else value.to_dense(no_value)
    # A program takes one column at least: a symbol of jax.export stands for 1 or more.
    return dense if dense.shape[1] else np.full((len(dense), 1, *dense.shape[2:]), no_value, dense.dtype)


def dtype_name(dtype: DType) -> str:
    """Returns the name of a type; of text, "string"."""
    return TEXT if np.dtype(dtype) == object else np.dtype(dtype).name


def as_json(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the description of examples as JSON; raises `ArgumentError` for what is no description."""
    return {str(name): _feature_json(name, feature) for name, feature in spec.items()}


def _feature_json(name: str, feature: Any) -> dict[str, Any]:
    kind = type(feature).__name__
    if not isinstance(feature, kinds().Description):
        raise ArgumentError(
            "What examples hold is described by FixedLenFeature, FixedLenSequenceFeature, VarLenFeature and "
            f"RaggedFeature. Received for {name!r}: {feature!r}."
        )
    # Fields by what a feature has, as its constructor takes them: `from_json` calls that.
    document: dict[str, Any] = {"kind": kind, "dtype": dtype_name(feature.dtype)}
    if hasattr(feature, "shape"):
        document |= {"shape": list(feature.shape), "default_value": _plain(feature.default_value)}
    if hasattr(feature, "allow_missing"):
        document["allow_missing"] = bool(feature.allow_missing)
    if hasattr(feature, "value_key"):
        document["value_key"] = feature.value_key
    return document


def _plain(default: JSON) -> Any:
    """Returns a default value as JSON; bytes that are no UTF-8 become lone surrogates."""
    if isinstance(default, bytes):
        return default.decode("utf-8", "surrogateescape")
    if isinstance(default, (list, tuple)):
        return [_plain(one) for one in default]
    return _plain(default.tolist()) if hasattr(default, "tolist") else default


def from_json(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the description of examples that some JSON holds; raises `ArgumentError` if it holds none."""
    try:
        return {name: _feature(dict(feature)) for name, feature in document.items()}
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise ArgumentError(f"The description of serialised examples is not understood: {error}") from error


def _feature(document: dict[str, Any]) -> Any:
    kind = document.pop("kind")
    if kind not in _KINDS:
        raise ValueError(f"there is no kind {kind!r:.60}")
    if "default_value" in document:
        document["default_value"] = _unplain(document["default_value"])
    return getattr(kinds(), kind)(**document)


def _unplain(default: JSON) -> Any:
    if isinstance(default, list):
        return [_unplain(one) for one in default]
    return default.encode("utf-8", "surrogateescape") if isinstance(default, str) else default
