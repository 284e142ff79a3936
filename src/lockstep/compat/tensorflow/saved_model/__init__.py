"""tf.saved_model: lockstep.saved_model under TensorFlow's names."""

from __future__ import annotations

from lockstep.compat.tensorflow import _forward

# `load` and `save` are this package's, whose signatures take and return tensors.
_HOMES = (
    "lockstep.compat.tensorflow._signature",
    "lockstep.compat.tensorflow._saved_options",
    "lockstep.saved_model",
)
_NAMES = (
    *("CLASSIFY_INPUTS", "CLASSIFY_METHOD_NAME", "CLASSIFY_OUTPUT_CLASSES", "CLASSIFY_OUTPUT_SCORES"),
    *("DEFAULT_SERVING_SIGNATURE_DEF_KEY", "PREDICT_METHOD_NAME", "REGRESS_INPUTS", "REGRESS_METHOD_NAME"),
    *("LoadOptions", "REGRESS_OUTPUTS", "SaveOptions", "SERVING", "TRAINING", "contains_saved_model", "load", "save"),
)

_PARTS = {"experimental": "lockstep.compat.tensorflow.saved_model.experimental"}

__all__, __getattr__, __dir__ = _forward.make_module(__name__, *_HOMES, parts=_PARTS, only=_NAMES)
