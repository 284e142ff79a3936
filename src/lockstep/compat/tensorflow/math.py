"""tf.math: functions that compute element by element, reduce, and count."""

# ruff: noqa: F403

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops import elementwise as _elementwise
from lockstep.compat.tensorflow._ops import reduce as _reduce
from lockstep.compat.tensorflow._ops import segments as _segments
from lockstep.compat.tensorflow._ops import special as _special
from lockstep.compat.tensorflow._ops.activations import in_top_k as in_top_k
from lockstep.compat.tensorflow._ops.activations import l2_normalize as l2_normalize
from lockstep.compat.tensorflow._ops.activations import log_softmax as log_softmax
from lockstep.compat.tensorflow._ops.activations import softmax as softmax
from lockstep.compat.tensorflow._ops.elementwise import *
from lockstep.compat.tensorflow._ops.further import scalar_mul as scalar_mul
from lockstep.compat.tensorflow._ops.indexing import invert_permutation as invert_permutation
from lockstep.compat.tensorflow._ops.indexing import top_k as top_k
from lockstep.compat.tensorflow._ops.reduce import *
from lockstep.compat.tensorflow._ops.segments import *
from lockstep.compat.tensorflow._ops.special import *

__all__ = ["in_top_k", "invert_permutation", "l2_normalize", "log_softmax", "scalar_mul", "softmax", "top_k"]
__all__ += _elementwise.__all__
__all__ += _special.__all__
__all__ += _reduce.__all__
__all__ += _segments.__all__

__getattr__ = _getter(__name__)
