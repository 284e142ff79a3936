"""tf.random.experimental: its names for what is in tf.random."""

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops.random import stateless_shuffle as stateless_shuffle
from lockstep.compat.tensorflow._ops.random_generator import Generator as Generator
from lockstep.compat.tensorflow._ops.random_generator import get_global_generator as get_global_generator

__all__ = ["Generator", "get_global_generator", "stateless_shuffle"]

__getattr__ = _getter(__name__)
