"""tf.nn: activations, losses on logits, convolutions and pooling."""

# ruff: noqa: F403

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops import activations as _activations
from lockstep.compat.tensorflow._ops import windows as _windows
from lockstep.compat.tensorflow._ops.activations import *
from lockstep.compat.tensorflow._ops.candidates import all_candidate_sampler as all_candidate_sampler
from lockstep.compat.tensorflow._ops.candidates import compute_accidental_hits as compute_accidental_hits
from lockstep.compat.tensorflow._ops.candidates import (
    fixed_unigram_candidate_sampler as fixed_unigram_candidate_sampler,
)
from lockstep.compat.tensorflow._ops.candidates import nce_loss as nce_loss
from lockstep.compat.tensorflow._ops.candidates import sampled_softmax_loss as sampled_softmax_loss
from lockstep.compat.tensorflow._ops.elementwise import sigmoid as sigmoid
from lockstep.compat.tensorflow._ops.elementwise import tanh as tanh
from lockstep.compat.tensorflow._ops.indexing import top_k as top_k
from lockstep.compat.tensorflow._ops.patches import dilation2d as dilation2d
from lockstep.compat.tensorflow._ops.patches import erosion2d as erosion2d
from lockstep.compat.tensorflow._ops.patches import max_pool_with_argmax as max_pool_with_argmax
from lockstep.compat.tensorflow._ops.reduce import zero_fraction as zero_fraction
from lockstep.compat.tensorflow._ops.special import log_sigmoid as log_sigmoid
from lockstep.compat.tensorflow._ops.special import softplus as softplus
from lockstep.compat.tensorflow._ops.special import softsign as softsign
from lockstep.compat.tensorflow._ops.windows import *

__all__ = [
    "dilation2d",
    "erosion2d",
    "log_sigmoid",
    "max_pool_with_argmax",
    "sigmoid",
    "softplus",
    "softsign",
    "tanh",
    "top_k",
    "zero_fraction",
]
__all__ += ["all_candidate_sampler", "compute_accidental_hits", "fixed_unigram_candidate_sampler", "nce_loss"]
__all__ += ["sampled_softmax_loss"]
__all__ += _activations.__all__
__all__ += _windows.__all__

__getattr__ = _getter(__name__)
