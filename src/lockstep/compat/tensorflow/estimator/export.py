"""tf.estimator.export: lockstep.estimator.export itself."""

from __future__ import annotations

from lockstep.compat.tensorflow import _forward

__all__, __getattr__, __dir__ = _forward.make_module(__name__, "lockstep.estimator.export")
