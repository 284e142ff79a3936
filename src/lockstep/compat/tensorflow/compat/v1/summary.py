"""tf.compat.v1.summary: lockstep.summary under TensorFlow's names."""

from __future__ import annotations

from lockstep.compat.tensorflow import _forward

_NAMES = (
    *("Event", "FileWriter", "FileWriterCache", "SessionLog", "Summary", "audio", "histogram", "image", "merge"),
    *("merge_all", "scalar", "text"),
)

__all__, __getattr__, __dir__ = _forward.make_module(
    __name__, "lockstep.summary", "lockstep.estimator.summary", only=_NAMES
)
