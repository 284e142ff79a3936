"""Names of TensorFlow's module model_fn that its tests of the Estimator read."""

from __future__ import annotations

from lockstep.compat.tensorflow.estimator import EstimatorSpec as EstimatorSpec
from lockstep.compat.tensorflow.estimator import ModeKeys as ModeKeys
from lockstep.compat.tensorflow.estimator.experimental import call_logit_fn as call_logit_fn

LOSS_METRIC_KEY = "loss"
AVERAGE_LOSS_METRIC_KEY = "average_loss"
