"""tf.sparse: tensors of which few elements are not zero."""

# ruff: noqa: F403

from __future__ import annotations

from lockstep.compat.tensorflow import _sparse_ops
from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._sparse_ops import *
from lockstep.compat.tensorflow._sparse_tensor import SparseTensor as SparseTensor

__all__ = ["SparseTensor"]
__all__ += _sparse_ops.__all__

__getattr__ = _getter(__name__)
