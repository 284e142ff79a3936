"""tf.saved_model: what lockstep.saved_model has under TensorFlow's names."""

# ruff: noqa: F822

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from lockstep.compat.tensorflow import _forward, _missing

__all__ = [
    "CLASSIFY_INPUTS",
    "CLASSIFY_METHOD_NAME",
    "CLASSIFY_OUTPUT_CLASSES",
    "CLASSIFY_OUTPUT_SCORES",
    "DEFAULT_SERVING_SIGNATURE_DEF_KEY",
    "PREDICT_METHOD_NAME",
    "REGRESS_INPUTS",
    "REGRESS_METHOD_NAME",
    "REGRESS_OUTPUTS",
    "SERVING",
    "TRAINING",
    "contains_saved_model",
    "load",
]

__getattr__ = _forward.getter(__name__, ("lockstep.saved_model",), __all__)
__dir__ = _missing.lister(globals(), dict.fromkeys(__all__, ""))
