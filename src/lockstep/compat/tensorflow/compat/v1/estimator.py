"""tf.compat.v1.estimator: lockstep.estimator, with TensorFlow 1's canned estimators."""

from __future__ import annotations

from lockstep.compat.tensorflow import _forward

# TensorFlow 1's forms go first: their losses are sums, TensorFlow 2's are means.
_HOMES = ("lockstep.estimator._canned._v1", "lockstep.estimator")
_PARTS = {name: f"lockstep.compat.tensorflow.estimator.{name}" for name in ("experimental", "export", "inputs")}

__all__, __getattr__, __dir__ = _forward.make_module(__name__, *_HOMES, parts=_PARTS)
