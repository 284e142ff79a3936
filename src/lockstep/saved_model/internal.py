"""Parts of `lockstep.saved_model` for its sibling packages. Nothing here comes with a promise of stability."""

from __future__ import annotations

from lockstep.saved_model import _directories as directories
from lockstep.saved_model import _parsing as parsing
from lockstep.saved_model._programs import Range as Range
from lockstep.saved_model._programs import export_widely as export_widely
from lockstep.saved_model._programs import trace_signature as trace_signature
from lockstep.saved_model._read import find_foreign_operation as find_foreign_operation
from lockstep.saved_model._read import read_variables as read_variables
from lockstep.saved_model._to_tensorflow import tensorflow as tensorflow
from lockstep.saved_model._to_tensorflow import to_tensorflow as to_tensorflow

__all__ = [
    "Range",
    "directories",
    "export_widely",
    "find_foreign_operation",
    "parsing",
    "read_variables",
    "tensorflow",
    "to_tensorflow",
    "trace_signature",
]
