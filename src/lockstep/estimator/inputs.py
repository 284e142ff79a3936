"""Functions that make an input_fn of arrays. The names are tf.compat.v1.estimator.inputs'."""

from __future__ import annotations

from lockstep.estimator._input_fns.arrays import numpy_input_fn as numpy_input_fn
from lockstep.estimator._input_fns.arrays import pandas_input_fn as pandas_input_fn

__all__ = ["numpy_input_fn", "pandas_input_fn"]
