"""Training in a model_fn: optimizers, learning rates, the global step, and what is read from checkpoints.

The names, arguments and formulas are those of tf.compat.v1.train. `minimize` and `apply_gradients` also take optimizers
of Keras and optax.
"""

# Names that are imported late are in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

import importlib
from typing import Any

from lockstep.estimator._model_fn.records import group as group
from lockstep.estimator._model_fn.scope import record as record
from lockstep.estimator.train._clip import clip_by_global_norm as clip_by_global_norm
from lockstep.estimator.train._clip import clip_by_norm as clip_by_norm
from lockstep.estimator.train._clip import clip_by_value as clip_by_value
from lockstep.estimator.train._clip import global_norm as global_norm
from lockstep.estimator.train._decay import cosine_decay as cosine_decay
from lockstep.estimator.train._decay import cosine_decay_restarts as cosine_decay_restarts
from lockstep.estimator.train._decay import exponential_decay as exponential_decay
from lockstep.estimator.train._decay import inverse_time_decay as inverse_time_decay
from lockstep.estimator.train._decay import linear_cosine_decay as linear_cosine_decay
from lockstep.estimator.train._decay import natural_exp_decay as natural_exp_decay
from lockstep.estimator.train._decay import noisy_linear_cosine_decay as noisy_linear_cosine_decay
from lockstep.estimator.train._decay import piecewise_constant as piecewise_constant
from lockstep.estimator.train._decay import piecewise_constant as piecewise_constant_decay
from lockstep.estimator.train._decay import polynomial_decay as polynomial_decay
from lockstep.estimator.train._global_step import GlobalStep as GlobalStep
from lockstep.estimator.train._global_step import assert_global_step as assert_global_step
from lockstep.estimator.train._global_step import create_global_step as create_global_step
from lockstep.estimator.train._global_step import get_global_step as get_global_step
from lockstep.estimator.train._global_step import get_or_create_global_step as get_or_create_global_step
from lockstep.estimator.train._global_step import global_step as global_step
from lockstep.estimator.train._init_from_checkpoint import init_from_checkpoint as init_from_checkpoint
from lockstep.estimator.train._minimize import apply_gradients as apply_gradients
from lockstep.estimator.train._minimize import minimize as minimize
from lockstep.estimator.train._optimizer import Optimizer as Optimizer
from lockstep.estimator.train._optimizers import AdadeltaOptimizer as AdadeltaOptimizer
from lockstep.estimator.train._optimizers import AdagradOptimizer as AdagradOptimizer
from lockstep.estimator.train._optimizers import AdamOptimizer as AdamOptimizer
from lockstep.estimator.train._optimizers import GradientDescentOptimizer as GradientDescentOptimizer
from lockstep.estimator.train._optimizers import MomentumOptimizer as MomentumOptimizer
from lockstep.estimator.train._optimizers import RMSPropOptimizer as RMSPropOptimizer
from lockstep.estimator.train._proximal import FtrlOptimizer as FtrlOptimizer
from lockstep.estimator.train._proximal import ProximalAdagradOptimizer as ProximalAdagradOptimizer
from lockstep.estimator.train._proximal import ProximalGradientDescentOptimizer as ProximalGradientDescentOptimizer
from lockstep.estimator.train._sync_replicas import SyncReplicasOptimizer as SyncReplicasOptimizer

# Imported late from lockstep.checkpoint, which has them under the same names.
_CHECKPOINTS = (
    "checkpoint_exists",
    "checkpoints_iterator",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "latest_checkpoint",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "remove_checkpoint",
    "update_checkpoint_state",
)

__all__ = [
    "AdadeltaOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "FtrlOptimizer",
    "GlobalStep",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "RMSPropOptimizer",
    "SyncReplicasOptimizer",
    "apply_gradients",
    "assert_global_step",
    "checkpoint_exists",
    "checkpoints_iterator",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "cosine_decay",
    "cosine_decay_restarts",
    "create_global_step",
    "exponential_decay",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "get_global_step",
    "get_or_create_global_step",
    "global_norm",
    "global_step",
    "group",
    "init_from_checkpoint",
    "inverse_time_decay",
    "latest_checkpoint",
    "linear_cosine_decay",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "minimize",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "piecewise_constant_decay",
    "polynomial_decay",
    "record",
    "remove_checkpoint",
    "update_checkpoint_state",
]


def __getattr__(name: str) -> Any:
    if name in _CHECKPOINTS:
        return getattr(importlib.import_module("lockstep.checkpoint"), name)
    raise AttributeError(f"module 'lockstep.estimator.train' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
