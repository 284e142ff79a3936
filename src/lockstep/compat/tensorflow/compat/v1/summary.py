"""tf.compat.v1.summary: lockstep.summary under TensorFlow's names."""

# ruff: noqa: F822

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from lockstep.compat.tensorflow import _forward, _missing

__all__ = ["Event", "FileWriter", "FileWriterCache", "SessionLog", "Summary", "audio", "histogram", "image", "merge"]
__all__ += ["merge_all", "scalar", "text"]

__getattr__ = _forward.getter(__name__, ("lockstep.summary", "lockstep.estimator.summary"), __all__)
__dir__ = _missing.lister(globals(), dict.fromkeys(__all__, ""))
