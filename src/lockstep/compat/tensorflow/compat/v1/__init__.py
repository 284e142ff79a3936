"""tf.compat.v1: names of TensorFlow 1 that have a meaning here; other names are those of tf itself."""

# ruff: noqa: F403, F405

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

import importlib as _importlib
import importlib.util as _util
from typing import Any as _Any

from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow.compat.v1 import (
    _checks,
    _collections,
    _initializers,
    _names,
    _partitioners,
    _scopes,
    _sparse,
    _switches,
    _variables,
)
from lockstep.compat.tensorflow.compat.v1._checks import *
from lockstep.compat.tensorflow.compat.v1._collections import *
from lockstep.compat.tensorflow.compat.v1._initializers import *
from lockstep.compat.tensorflow.compat.v1._partitioners import *
from lockstep.compat.tensorflow.compat.v1._scopes import *
from lockstep.compat.tensorflow.compat.v1._sparse import *
from lockstep.compat.tensorflow.compat.v1._switches import *
from lockstep.compat.tensorflow.compat.v1._variables import *
from lockstep.compat.tensorflow.version import VERSION as __version__  # noqa: F401  # pyright: ignore[reportUnusedImport]

_LAZY = {
    name: f"{__name__}.{name}"
    for name in (
        *("app", "data", "estimator", "feature_column", "gfile", "image", "initializers", "layers", "logging"),
        *("losses", "metrics", "nn", "python_io", "random", "saved_model", "summary", "train"),
    )
}
# Imported late: all of lockstep.estimator comes with them.
_SETTINGS = ("ConfigProto", "GPUOptions")
# Messages of event files, whose library is large.
_MESSAGES = ("Event", "SessionLog", "Summary")

__all__ = ["ConfigProto", "GPUOptions", "app", "data", "image", "initializers", "layers", "logging", "losses"]
__all__ += ["metrics", "nn", "saved_model"]
__all__ += ["summary", "train"]
__all__ += _checks.__all__
__all__ += _collections.__all__
__all__ += _initializers.__all__
__all__ += _partitioners.__all__
__all__ += _scopes.__all__
__all__ += _sparse.__all__
__all__ += _switches.__all__
__all__ += _variables.__all__
# A list of its own, for tools that read this text take names alone.
__all__.extend(_names.RENAMED)  # pyright: ignore[reportUnsupportedDunderAll]

_missing_name = _missing.getter(__name__, _LAZY)


def __getattr__(name: str) -> _Any:
    # TensorFlow 1's flags are absl's own module.
    if name == "flags" and _util.find_spec("absl"):
        return _importlib.import_module("absl.flags")
    if name in _MESSAGES:
        return getattr(_importlib.import_module("lockstep.summary"), name)
    if name in _SETTINGS:
        return getattr(_importlib.import_module("lockstep.estimator._session_config"), name)
    if name in _LAZY or name.startswith("__") or f"tf.compat.v1.{name}" in _missing.ADVICE:
        return _missing_name(name)
    try:
        # All other names of TensorFlow 2 are in compat.v1, too.
        return _names.find(name)
    except AttributeError:
        if f"tf.{name}" in _missing.ADVICE:
            raise
    return _missing_name(name)


__dir__ = _missing.lister(globals(), {**_LAZY, **_names.RENAMED, **dict.fromkeys(_SETTINGS, "")})
