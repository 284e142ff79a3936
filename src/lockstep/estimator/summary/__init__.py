"""Summaries of a model_fn for TensorBoard, and the writers that hooks share. The names are tf.compat.v1.summary's.

`scalar`, `histogram`, `image` and `text` are for use inside of a model_fn; the Estimator writes what they show.
"""

from __future__ import annotations

from lockstep.estimator.summary._file_writer import FileWriter as FileWriter
from lockstep.estimator.summary._file_writer import FileWriterCache as FileWriterCache
from lockstep.estimator.summary._file_writer import as_summary as as_summary
from lockstep.estimator.summary._file_writer import write as write
from lockstep.estimator.summary._ops import audio as audio
from lockstep.estimator.summary._ops import histogram as histogram
from lockstep.estimator.summary._ops import image as image
from lockstep.estimator.summary._ops import merge as merge
from lockstep.estimator.summary._ops import merge_all as merge_all
from lockstep.estimator.summary._ops import scalar as scalar
from lockstep.estimator.summary._ops import text as text

__all__ = [
    "FileWriter",
    "FileWriterCache",
    "as_summary",
    "audio",
    "histogram",
    "image",
    "merge",
    "merge_all",
    "scalar",
    "text",
    "write",
]
