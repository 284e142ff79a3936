"""tf.estimator: lockstep.estimator itself."""

from __future__ import annotations

from lockstep.compat.tensorflow import _forward

# Of TensorFlow 2, and those of TensorFlow 1 as well.
_PARTS = {name: f"{__name__}.{name}" for name in ("experimental", "export", "inputs")}

__all__, __getattr__, __dir__ = _forward.make_module(__name__, "lockstep.estimator", parts=_PARTS)
