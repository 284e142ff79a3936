"""Exporting a trained model. The names are tf.estimator.export's."""

from __future__ import annotations

from lockstep.estimator._export.outputs import ClassificationOutput as ClassificationOutput
from lockstep.estimator._export.outputs import EvalOutput as EvalOutput
from lockstep.estimator._export.outputs import ExportOutput as ExportOutput
from lockstep.estimator._export.outputs import PredictOutput as PredictOutput
from lockstep.estimator._export.outputs import RegressionOutput as RegressionOutput
from lockstep.estimator._export.outputs import TrainOutput as TrainOutput
from lockstep.estimator._export.outputs import export_outputs_of as export_outputs_of
from lockstep.estimator._export.placeholders import Placeholder as Placeholder
from lockstep.estimator._export.placeholders import parse_example as parse_example
from lockstep.estimator._export.placeholders import placeholder as placeholder
from lockstep.estimator._export.receivers import ServingInputReceiver as ServingInputReceiver
from lockstep.estimator._export.receivers import SupervisedInputReceiver as SupervisedInputReceiver
from lockstep.estimator._export.receivers import TensorServingInputReceiver as TensorServingInputReceiver
from lockstep.estimator._export.receivers import UnsupervisedInputReceiver as UnsupervisedInputReceiver
from lockstep.estimator._export.receivers import (
    build_parsing_serving_input_receiver_fn as build_parsing_serving_input_receiver_fn,
)
from lockstep.estimator._export.receivers import (
    build_raw_serving_input_receiver_fn as build_raw_serving_input_receiver_fn,
)
from lockstep.estimator._export.receivers import (
    build_raw_supervised_input_receiver_fn as build_raw_supervised_input_receiver_fn,
)
from lockstep.estimator._export.saved_model import Feed as Feed
from lockstep.estimator._export.saved_model import Receiver as Receiver
from lockstep.estimator._export.saved_model import receiver_of as receiver_of
from lockstep.estimator._export.saved_model import signatures_of as signatures_of
