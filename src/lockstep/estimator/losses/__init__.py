"""Losses. The names, arguments and results are those of tf.compat.v1.losses.

Losses are functions of arrays and work anywhere. In a model_fn they also join a collection, for `get_total_loss`.
"""

from __future__ import annotations

from lockstep.estimator.losses._classification import hinge_loss as hinge_loss
from lockstep.estimator.losses._classification import sigmoid_cross_entropy as sigmoid_cross_entropy
from lockstep.estimator.losses._classification import softmax_cross_entropy as softmax_cross_entropy
from lockstep.estimator.losses._classification import sparse_softmax_cross_entropy as sparse_softmax_cross_entropy
from lockstep.estimator.losses._regression import absolute_difference as absolute_difference
from lockstep.estimator.losses._regression import cosine_distance as cosine_distance
from lockstep.estimator.losses._regression import huber_loss as huber_loss
from lockstep.estimator.losses._regression import log_loss as log_loss
from lockstep.estimator.losses._regression import mean_pairwise_squared_error as mean_pairwise_squared_error
from lockstep.estimator.losses._regression import mean_squared_error as mean_squared_error
from lockstep.estimator.losses._weighted import Reduction as Reduction
from lockstep.estimator.losses._weighted import add_loss as add_loss
from lockstep.estimator.losses._weighted import compute_weighted_loss as compute_weighted_loss
from lockstep.estimator.losses._weighted import get_losses as get_losses
from lockstep.estimator.losses._weighted import get_regularization_loss as get_regularization_loss
from lockstep.estimator.losses._weighted import get_regularization_losses as get_regularization_losses
from lockstep.estimator.losses._weighted import get_total_loss as get_total_loss

__all__ = [
    "Reduction",
    "absolute_difference",
    "add_loss",
    "compute_weighted_loss",
    "cosine_distance",
    "get_losses",
    "get_regularization_loss",
    "get_regularization_losses",
    "get_total_loss",
    "hinge_loss",
    "huber_loss",
    "log_loss",
    "mean_pairwise_squared_error",
    "mean_squared_error",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
]
