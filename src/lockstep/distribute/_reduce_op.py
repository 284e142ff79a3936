"""How values of several replicas become one."""

from __future__ import annotations

import enum
from typing import Any

from lockstep.errors import ArgumentError


class ReduceOp(enum.Enum):
    """How values of several replicas are combined. Source: tf.distribute.ReduceOp."""

    SUM = "SUM"
    """Added up."""
    MEAN = "MEAN"
    """Averaged."""


def reduce_op(value: ReduceOp | str) -> ReduceOp:
    """Returns the operation of this name, in any case; raises `ArgumentError` if there is none."""
    name: Any = getattr(value, "name", value)  # TensorFlow's own ReduceOp has the same names.
    try:
        return ReduceOp[name.upper()]
    except (KeyError, AttributeError):
        raise ArgumentError(f"A reduction must be SUM or MEAN. Received: {value!r}. Example: ReduceOp.SUM") from None
