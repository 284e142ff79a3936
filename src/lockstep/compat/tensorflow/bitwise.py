"""tf.bitwise: functions of the bits of integers."""

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops.make import binary as _binary
from lockstep.compat.tensorflow._ops.make import unary as _unary

bitwise_and = _binary("tf.bitwise.bitwise_and", "bits set in both", "bitwise_and")
bitwise_or = _binary("tf.bitwise.bitwise_or", "bits set in one or both", "bitwise_or")
bitwise_xor = _binary("tf.bitwise.bitwise_xor", "bits set in exactly one", "bitwise_xor")
invert = _unary("tf.bitwise.invert", "all bits, flipped", "bitwise_not", floats=False)
left_shift = _binary("tf.bitwise.left_shift", "x with its bits moved left by y", "left_shift")
right_shift = _binary("tf.bitwise.right_shift", "x with its bits moved right by y", "right_shift")

__all__ = ["bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift"]

__getattr__ = _getter(__name__)
