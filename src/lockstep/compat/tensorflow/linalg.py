"""tf.linalg: functions of matrices."""

# ruff: noqa: F403

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops import matrices as _matrices
from lockstep.compat.tensorflow._ops.activations import l2_normalize as l2_normalize
from lockstep.compat.tensorflow._ops.create import eye as eye
from lockstep.compat.tensorflow._ops.matrices import *
from lockstep.compat.tensorflow._ops.products import einsum as einsum
from lockstep.compat.tensorflow._ops.products import global_norm as global_norm
from lockstep.compat.tensorflow._ops.products import matmul as matmul
from lockstep.compat.tensorflow._ops.products import matvec as matvec
from lockstep.compat.tensorflow._ops.products import norm as norm
from lockstep.compat.tensorflow._ops.products import tensordot as tensordot

__all__ = ["einsum", "eye", "global_norm", "l2_normalize", "matmul", "matvec", "norm", "tensordot"]
__all__ += _matrices.__all__

__getattr__ = _getter(__name__)
