"""tf.summary.experimental: the step of summaries that have none."""

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._summary_state import get_step as get_step
from lockstep.compat.tensorflow._summary_state import set_step as set_step

__all__ = ["get_step", "set_step"]

__getattr__ = _getter(__name__)
