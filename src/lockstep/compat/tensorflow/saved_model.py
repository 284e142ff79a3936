"""tf.saved_model: lockstep.saved_model under TensorFlow's names."""

# ruff: noqa: F822

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from lockstep.compat.tensorflow import _forward, _missing

__all__ = ["CLASSIFY_INPUTS", "CLASSIFY_METHOD_NAME", "CLASSIFY_OUTPUT_CLASSES", "CLASSIFY_OUTPUT_SCORES"]
__all__ += ["DEFAULT_SERVING_SIGNATURE_DEF_KEY", "PREDICT_METHOD_NAME", "REGRESS_INPUTS", "REGRESS_METHOD_NAME"]
__all__ += ["REGRESS_OUTPUTS", "SERVING", "TRAINING", "contains_saved_model", "load"]

_plain = _forward.getter(__name__, ("lockstep.saved_model",), __all__)


def __getattr__(name: str) -> _Any:
    if name == "load":
        return getattr(_importlib.import_module("lockstep.compat.tensorflow._signature"), name)
    return _plain(name)


__dir__ = _missing.lister(globals(), dict.fromkeys(__all__, ""))
