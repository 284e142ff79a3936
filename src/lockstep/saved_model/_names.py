"""Names in an export directory, and TensorFlow's constants.

Source: tf.saved_model.
"""

from __future__ import annotations

FORMAT = "lockstep saved model"
VERSION = 1

DESCRIPTION_FILE = "saved_model.json"
VARIABLES_FILE = "variables.npz"
PROGRAMS_DIRECTORY = "programs"
PROGRAM_SUFFIX = ".jax"
TEXT_SUFFIX = ".mlir"
ASSETS_DIRECTORY = "assets.extra"

DEFAULT_SERVING_SIGNATURE_DEF_KEY = "serving_default"
"""Name of the signature that a server calls when a request names none."""
SERVING = "serve"
"""Tag of programs that serve."""
TRAINING = "train"
"""Tag of programs that train."""
EVAL = "eval"
"""Tag of programs that evaluate."""

PREDICT_METHOD_NAME = "tensorflow/serving/predict"
"""Method of a signature with any inputs and outputs."""
CLASSIFY_METHOD_NAME = "tensorflow/serving/classify"
"""Method of a signature that classifies."""
CLASSIFY_INPUTS = "inputs"
"""Name of the input of a signature that classifies."""
CLASSIFY_OUTPUT_CLASSES = "classes"
"""Name of the output with classes, as text."""
CLASSIFY_OUTPUT_SCORES = "scores"
"""Name of the output with a score for each class."""
REGRESS_METHOD_NAME = "tensorflow/serving/regress"
"""Method of a signature that predicts a number."""
REGRESS_INPUTS = "inputs"
"""Name of the input of a signature that predicts a number."""
REGRESS_OUTPUTS = "outputs"
"""Name of the output with the number."""
