"""tf.compat.v1: names of TensorFlow 1 that have a meaning here; other names are those of tf itself."""

# ruff: noqa: F403, F405

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

import functools as _functools
import importlib as _importlib
import importlib.util as _util
from typing import Any as _Any

from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow.compat.v1 import _collections, _initializers, _scopes, _switches, _variables
from lockstep.compat.tensorflow.compat.v1._collections import *
from lockstep.compat.tensorflow.compat.v1._initializers import *
from lockstep.compat.tensorflow.compat.v1._scopes import *
from lockstep.compat.tensorflow.compat.v1._switches import *
from lockstep.compat.tensorflow.compat.v1._variables import *

_ROOT = "lockstep.compat.tensorflow"
_LAZY = {
    name: f"{__name__}.{name}"
    for name in (
        *("app", "data", "estimator", "feature_column", "layers", "logging", "losses", "metrics", "nn"),
        *("saved_model", "summary", "train"),
    )
}
# Imported late: all of lockstep.estimator comes with them.
_SETTINGS = ("ConfigProto", "GPUOptions")
# TensorFlow 1's names for functions of tf.
_RENAMED = {
    "ceil": "math.ceil",
    "decode_csv": "io.decode_csv",
    "decode_raw": "io.decode_raw",
    "diag": "linalg.diag",
    "div_no_nan": "math.divide_no_nan",
    "erf": "math.erf",
    "FixedLenFeature": "io.FixedLenFeature",
    "gfile": "io.gfile",
    "is_nan": "math.is_nan",
    "lgamma": "math.lgamma",
    "log_sigmoid": "math.log_sigmoid",
    "matrix_inverse": "linalg.inv",
    "parse_example": "io.parse_example",
    "parse_single_example": "io.parse_single_example",
    "py_func": "numpy_function",
    "random_crop": "image.random_crop",
    "random_normal": "random.normal",
    "random_shuffle": "random.shuffle",
    "random_uniform": "random.uniform",
    "read_file": "io.read_file",
    "segment_sum": "math.segment_sum",
    "set_random_seed": "random.set_seed",
    "softplus": "math.softplus",
    "squared_difference": "math.squared_difference",
    "string_join": "strings.join",
    "string_split": "strings.split",
    "string_to_number": "strings.to_number",
    "truncated_normal": "random.truncated_normal",
    "unsorted_segment_sum": "math.unsorted_segment_sum",
    "write_file": "io.write_file",
}

__all__ = ["ConfigProto", "GPUOptions", "app", "data", "layers", "logging", "losses", "metrics", "nn", "saved_model"]
__all__ += ["summary", "train"]
__all__ += _collections.__all__
__all__ += _initializers.__all__
__all__ += _scopes.__all__
__all__ += _switches.__all__
__all__ += _variables.__all__
__all__ += _RENAMED  # pyright: ignore[reportUnsupportedDunderAll]

_missing_name = _missing.getter(__name__, _LAZY)


def __getattr__(name: str) -> _Any:
    # TensorFlow 1's flags are absl's own module.
    if name == "flags" and _util.find_spec("absl"):
        return _importlib.import_module("absl.flags")
    if name in _SETTINGS:
        return getattr(_importlib.import_module("lockstep.estimator._session_config"), name)
    if name in _LAZY or name.startswith("__") or f"tf.compat.v1.{name}" in _missing.ADVICE:
        return _missing_name(name)
    try:
        # All other names of TensorFlow 2 are in compat.v1, too.
        path = _RENAMED.get(name, name).split(".")
        return _functools.reduce(getattr, path, _importlib.import_module(_ROOT))
    except AttributeError:
        if f"tf.{name}" in _missing.ADVICE:
            raise
    return _missing_name(name)


__dir__ = _missing.lister(globals(), {**_LAZY, **_RENAMED, **dict.fromkeys(_SETTINGS, "")})
