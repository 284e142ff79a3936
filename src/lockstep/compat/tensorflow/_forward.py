"""Names that are those of lockstep's modules: whole modules of them, and functions of lockstep.data for tensors."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import keras
import numpy as np

from lockstep._nest import map_structure
from lockstep._types import PyTree
from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow._tensor import HostTensor, as_tensor
from lockstep.compat.tensorflow._types import Argument
from lockstep.errors import UnsupportedError

_EXAMPLE, _IMAGE = "lockstep.data._example", "lockstep.data._image"
_MESSAGES = ("BytesList", "Example", "Feature", "FeatureList", "FeatureLists", "Features", "FloatList", "Int64List")
_FEATURES = ("FixedLenFeature", "FixedLenSequenceFeature", "RaggedFeature", "VarLenFeature")
_PARSERS = ("parse_example", "parse_single_example", "parse_single_sequence_example")
_DECODERS = ("decode_bmp", "decode_gif", "decode_image", "decode_jpeg", "decode_png")
_HOLD_NO_TENSOR = frozenset((int, float, bool, str, bytes, type(None)))
# Where lockstep.data keeps what TensorFlow has in tf.io, tf.image and tf.train.
_HOMES = {
    **dict.fromkeys((*_MESSAGES, "SequenceExample"), f"{_EXAMPLE}.messages"),
    **dict.fromkeys(_FEATURES, f"{_EXAMPLE}.features"),
    **dict.fromkeys(_PARSERS, f"{_EXAMPLE}.parse"),
    **dict.fromkeys(("parse_tensor", "serialize_tensor"), f"{_EXAMPLE}.tensor"),
    **dict.fromkeys(_DECODERS, f"{_IMAGE}.decode"),
    **dict.fromkeys(("encode_jpeg", "encode_png"), f"{_IMAGE}.encode"),
    **dict.fromkeys(("ResizeMethod", "resize"), f"{_IMAGE}.resize"),
    **dict.fromkeys(("TFRecordOptions", "TFRecordWriter"), "lockstep.data"),
}


def make_module(
    module: str, *homes: str, parts: Mapping[str, str] | None = None, only: Sequence[str] | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__all__`, `__getattr__` and `__dir__` of a module whose names are those of modules of lockstep.

    Args:
        module: The module's `__name__`.
        *homes: Where to look, one after another.
        parts: Names that are modules, imported when they are first used, and what they are called; they go first.
        only: Which names, so that no home is imported to ask for them; default: all public ones.
    """
    parts = parts or {}
    listed = only or [n for home in map(importlib.import_module, homes) for n in home.__all__ if _is_forwarded(home, n)]
    names = list(dict.fromkeys([*parts, *listed]))
    other = _missing.getter(module, parts)

    def __getattr__(name: str) -> Any:
        # Imported when a name is used: programs without Estimators need none of lockstep.estimator.
        for home in map(importlib.import_module, homes if name in names and name not in parts else ()):
            if name in home.__all__ and _is_forwarded(home, name):
                return getattr(home, name)
        return other(name)

    return names, __getattr__, lambda: sorted({*vars(sys.modules[module]), *names})


def _is_forwarded(module: ModuleType, name: str) -> bool:
    # Submodules stand elsewhere in TensorFlow: tf.metrics, not tf.estimator.metrics.
    return not isinstance(getattr(module, name), ModuleType)


# One wrapper for each name, so that tf.io.decode_jpeg is the same object each time.
@functools.cache
def find_in_data(name: str) -> Any:
    """Returns a class of lockstep.data, or a function of it that takes and gives tensors."""
    value = getattr(importlib.import_module(_HOMES[name]), name)
    if isinstance(value, type):
        return value

    parses = name in _PARSERS

    @functools.wraps(value)
    def call(*args: Argument, **kwargs: Argument) -> Any:
        args = tuple(map(_as_argument, args))
        kwargs = {key: _as_argument(value) for key, value in kwargs.items()}
        result = value(*args, **kwargs)
        if not parses:
            return map_structure(as_tensor, result)
        # What has rows of different lengths is TensorFlow's class of it here.
        parsed = map_structure(_to_tensor, result, is_leaf=_is_composite)
        return _list_single(parsed, *args[1:2], **kwargs) if name == "parse_single_example" else parsed

    return call


def _is_composite(value: Any) -> bool:
    # By name: lockstep.data has these classes in a module that only programs with records import.
    return type(value).__name__ in ("RaggedValue", "SparseValue") and isinstance(value, tuple)


def _to_tensor(leaf: Any) -> Any:
    """Returns a value of lockstep.data as a tensor of this package."""
    if not _is_composite(leaf):
        return as_tensor(leaf)
    from lockstep.compat.tensorflow._composite_elements import RaggedTensor, SparseTensor

    if type(leaf).__name__ == "RaggedValue":
        return RaggedTensor.from_row_splits(leaf.values, leaf.row_splits)
    return SparseTensor(leaf.indices, leaf.values, leaf.dense_shape)


def _list_single(parsed: dict[str, Any], features: Mapping[str, Any], *_: object, **__: object) -> dict[str, Any]:
    """Returns a parsed example with values of any number as sparse tensors of one dimension."""
    from lockstep.compat.tensorflow._composite_elements import SparseTensor

    for key, feature in features.items():
        if type(feature).__name__ == "VarLenFeature" and isinstance(parsed[key], np.ndarray):
            count = len(parsed[key])
            parsed[key] = SparseTensor(np.arange(count)[:, None], parsed[key], [count])
    return parsed


def _as_argument(value: Argument) -> Any:
    """Returns an argument of a function of lockstep.data: tensors in it as `_to_numpy`."""
    return value if type(value) in _HOLD_NO_TENSOR else map_structure(_to_numpy, value)


def _to_numpy(leaf: PyTree) -> Any:
    """Tensors as numpy arrays, or as `bytes` where they are one text."""
    if isinstance(leaf, HostTensor):
        value = leaf.view(np.ndarray)
        return value[()] if value.ndim == 0 else value
    if isinstance(leaf, keras.KerasTensor):
        raise UnsupportedError(
            "Files and records are read on the host. Received a symbolic tensor of Keras; use a tf.data.Dataset."
        )
    return leaf
