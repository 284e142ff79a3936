"""tf.saved_model.experimental."""

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._saved_options import VariablePolicy as VariablePolicy

__all__ = ["VariablePolicy"]

__getattr__ = _getter(__name__)
