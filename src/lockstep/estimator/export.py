"""Inputs and outputs of served models. The names are tf.estimator.export's."""

from __future__ import annotations

from lockstep.estimator._export import ClassificationOutput as ClassificationOutput
from lockstep.estimator._export import EvalOutput as EvalOutput
from lockstep.estimator._export import ExportOutput as ExportOutput
from lockstep.estimator._export import PredictOutput as PredictOutput
from lockstep.estimator._export import RegressionOutput as RegressionOutput
from lockstep.estimator._export import ServingInputReceiver as ServingInputReceiver
from lockstep.estimator._export import TensorServingInputReceiver as TensorServingInputReceiver
from lockstep.estimator._export import (
    build_parsing_serving_input_receiver_fn as build_parsing_serving_input_receiver_fn,
)
from lockstep.estimator._export import build_raw_serving_input_receiver_fn as build_raw_serving_input_receiver_fn
from lockstep.estimator._export import parse_example as parse_example
from lockstep.estimator._export import placeholder as placeholder

__all__ = [
    "ClassificationOutput",
    "EvalOutput",
    "ExportOutput",
    "PredictOutput",
    "RegressionOutput",
    "ServingInputReceiver",
    "TensorServingInputReceiver",
    "build_parsing_serving_input_receiver_fn",
    "build_raw_serving_input_receiver_fn",
    "parse_example",
    "placeholder",
]
