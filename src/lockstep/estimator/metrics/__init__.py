"""Metrics for `EstimatorSpec(eval_metric_ops=...)`. The names, arguments and results are those of tf.compat.v1.metrics.

Each function is called in a model_fn with the values of one batch: it creates a metric, adds the batch, and returns
`(value, update)`, both the result so far. The result over all batches and replicas equals that of one batch of all
examples.

Invalid input, such as a prediction outside of 0 to 1 or an unknown class, makes the result NaN; TensorFlow stops.
"""

from __future__ import annotations

from lockstep.estimator.metrics._confusion import false_negatives as false_negatives
from lockstep.estimator.metrics._confusion import false_negatives_at_thresholds as false_negatives_at_thresholds
from lockstep.estimator.metrics._confusion import false_positives as false_positives
from lockstep.estimator.metrics._confusion import false_positives_at_thresholds as false_positives_at_thresholds
from lockstep.estimator.metrics._confusion import precision as precision
from lockstep.estimator.metrics._confusion import precision_at_thresholds as precision_at_thresholds
from lockstep.estimator.metrics._confusion import recall as recall
from lockstep.estimator.metrics._confusion import recall_at_thresholds as recall_at_thresholds
from lockstep.estimator.metrics._confusion import true_negatives as true_negatives
from lockstep.estimator.metrics._confusion import true_negatives_at_thresholds as true_negatives_at_thresholds
from lockstep.estimator.metrics._confusion import true_positives as true_positives
from lockstep.estimator.metrics._confusion import true_positives_at_thresholds as true_positives_at_thresholds
from lockstep.estimator.metrics._curves import auc as auc
from lockstep.estimator.metrics._curves import sensitivity_at_specificity as sensitivity_at_specificity
from lockstep.estimator.metrics._curves import specificity_at_sensitivity as specificity_at_sensitivity
from lockstep.estimator.metrics._means import accuracy as accuracy
from lockstep.estimator.metrics._means import mean as mean
from lockstep.estimator.metrics._means import mean_absolute_error as mean_absolute_error
from lockstep.estimator.metrics._means import mean_cosine_distance as mean_cosine_distance
from lockstep.estimator.metrics._means import mean_iou as mean_iou
from lockstep.estimator.metrics._means import mean_per_class_accuracy as mean_per_class_accuracy
from lockstep.estimator.metrics._means import mean_relative_error as mean_relative_error
from lockstep.estimator.metrics._means import mean_squared_error as mean_squared_error
from lockstep.estimator.metrics._means import mean_tensor as mean_tensor
from lockstep.estimator.metrics._means import percentage_below as percentage_below
from lockstep.estimator.metrics._means import root_mean_squared_error as root_mean_squared_error
from lockstep.estimator.metrics._top_k import average_precision_at_k as average_precision_at_k
from lockstep.estimator.metrics._top_k import precision_at_k as precision_at_k
from lockstep.estimator.metrics._top_k import precision_at_top_k as precision_at_top_k
from lockstep.estimator.metrics._top_k import recall_at_k as recall_at_k
from lockstep.estimator.metrics._top_k import recall_at_top_k as recall_at_top_k
from lockstep.estimator.metrics._top_k import sparse_average_precision_at_k as sparse_average_precision_at_k
from lockstep.estimator.metrics._top_k import sparse_precision_at_k as sparse_precision_at_k

__all__ = [
    "accuracy",
    "auc",
    "average_precision_at_k",
    "false_negatives",
    "false_negatives_at_thresholds",
    "false_positives",
    "false_positives_at_thresholds",
    "mean",
    "mean_absolute_error",
    "mean_cosine_distance",
    "mean_iou",
    "mean_per_class_accuracy",
    "mean_relative_error",
    "mean_squared_error",
    "mean_tensor",
    "percentage_below",
    "precision",
    "precision_at_k",
    "precision_at_thresholds",
    "precision_at_top_k",
    "recall",
    "recall_at_k",
    "recall_at_thresholds",
    "recall_at_top_k",
    "root_mean_squared_error",
    "sensitivity_at_specificity",
    "sparse_average_precision_at_k",
    "sparse_precision_at_k",
    "specificity_at_sensitivity",
    "true_negatives",
    "true_negatives_at_thresholds",
    "true_positives",
    "true_positives_at_thresholds",
]
