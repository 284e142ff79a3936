"""tf.random: random numbers."""

# ruff: noqa: F403, F405

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow._ops import random as _random
from lockstep.compat.tensorflow._ops import random_generator as _random_generator
from lockstep.compat.tensorflow._ops.candidates import all_candidate_sampler as all_candidate_sampler
from lockstep.compat.tensorflow._ops.candidates import (
    fixed_unigram_candidate_sampler as fixed_unigram_candidate_sampler,
)
from lockstep.compat.tensorflow._ops.candidates import log_uniform_candidate_sampler as log_uniform_candidate_sampler
from lockstep.compat.tensorflow._ops.candidates import uniform_candidate_sampler as uniform_candidate_sampler
from lockstep.compat.tensorflow._ops.random import *
from lockstep.compat.tensorflow._ops.random_generator import *

_LAZY = {
    "experimental": "lockstep.compat.tensorflow.random.experimental",
}

__all__ = ["all_candidate_sampler", "experimental", "fixed_unigram_candidate_sampler"]
__all__ += ["log_uniform_candidate_sampler", "uniform_candidate_sampler"]
__all__ += _random.__all__
__all__ += _random_generator.__all__

__getattr__ = _missing.getter(__name__, _LAZY)
__dir__ = _missing.lister(globals(), _LAZY)
