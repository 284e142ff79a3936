"""tf.compat.v1.saved_model: tf.saved_model, and the constants that TensorFlow 1 groups."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow._types import Argument as _Argument

_ROOT = "lockstep.compat.tensorflow.saved_model"

__all__ = ["load_v2", "signature_constants", "tag_constants"]


# Modules in TensorFlow; programs only read constants of them.
class signature_constants:
    """Names of signatures, and of their inputs and outputs. Source: tf.compat.v1.saved_model.signature_constants."""

    CLASSIFY_INPUTS = "inputs"
    CLASSIFY_METHOD_NAME = "tensorflow/serving/classify"
    CLASSIFY_OUTPUT_CLASSES = "classes"
    CLASSIFY_OUTPUT_SCORES = "scores"
    DEFAULT_SERVING_SIGNATURE_DEF_KEY = "serving_default"
    PREDICT_INPUTS = "inputs"
    PREDICT_METHOD_NAME = "tensorflow/serving/predict"
    PREDICT_OUTPUTS = "outputs"
    REGRESS_INPUTS = "inputs"
    REGRESS_METHOD_NAME = "tensorflow/serving/regress"
    REGRESS_OUTPUTS = "outputs"


class tag_constants:
    """Names of the parts of an exported model. Source: tf.compat.v1.saved_model.tag_constants."""

    SERVING = "serve"
    TRAINING = "train"


def load_v2(export_dir: str, tags: _Argument = None) -> _Any:
    """Loads an export of an Estimator. Source: tf.compat.v1.saved_model.load_v2."""
    return _importlib.import_module(_ROOT).load(export_dir, tags)


_other = _missing.getter(__name__)


def __getattr__(name: str) -> _Any:
    """Returns a name of tf.saved_model, except `load`, which takes a session in TensorFlow 1."""
    module = _importlib.import_module(_ROOT)
    return getattr(module, name) if name in module.__all__ and name != "load" else _other(name)
