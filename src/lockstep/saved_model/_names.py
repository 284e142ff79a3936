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
SERVING = "serve"
TRAINING = "train"
EVAL = "eval"

PREDICT_METHOD_NAME = "tensorflow/serving/predict"
CLASSIFY_METHOD_NAME = "tensorflow/serving/classify"
CLASSIFY_INPUTS = "inputs"
CLASSIFY_OUTPUT_CLASSES = "classes"
CLASSIFY_OUTPUT_SCORES = "scores"
REGRESS_METHOD_NAME = "tensorflow/serving/regress"
REGRESS_INPUTS = "inputs"
REGRESS_OUTPUTS = "outputs"
