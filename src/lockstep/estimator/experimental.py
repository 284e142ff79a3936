"""Hooks that end training early, evaluation between steps, and builders of models. The names are tf.estimator's."""

from __future__ import annotations

from lockstep.estimator._canned import dnn_logit_fn_builder as dnn_logit_fn_builder
from lockstep.estimator._canned import linear_logit_fn_builder as linear_logit_fn_builder
from lockstep.estimator._early_stopping import make_early_stopping_hook as make_early_stopping_hook
from lockstep.estimator._early_stopping import make_stop_at_checkpoint_step_hook as make_stop_at_checkpoint_step_hook
from lockstep.estimator._early_stopping import read_eval_metrics as read_eval_metrics
from lockstep.estimator._early_stopping import stop_if_higher_hook as stop_if_higher_hook
from lockstep.estimator._early_stopping import stop_if_lower_hook as stop_if_lower_hook
from lockstep.estimator._early_stopping import stop_if_no_decrease_hook as stop_if_no_decrease_hook
from lockstep.estimator._early_stopping import stop_if_no_increase_hook as stop_if_no_increase_hook
from lockstep.estimator._evaluation.evaluate import InMemoryEvaluatorHook as InMemoryEvaluatorHook
from lockstep.estimator._export import build_raw_supervised_input_receiver_fn as build_raw_supervised_input_receiver_fn

__all__ = [
    "InMemoryEvaluatorHook",
    "build_raw_supervised_input_receiver_fn",
    "dnn_logit_fn_builder",
    "linear_logit_fn_builder",
    "make_early_stopping_hook",
    "make_stop_at_checkpoint_step_hook",
    "read_eval_metrics",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]
