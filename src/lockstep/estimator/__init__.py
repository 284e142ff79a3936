"""Estimators: a model_fn, trained, evaluated, served, on one process or a cluster. The names are tf.estimator's."""

from __future__ import annotations

from lockstep.estimator import experimental as experimental
from lockstep.estimator import export as export
from lockstep.estimator import feature_column as feature_column
from lockstep.estimator import inputs as inputs
from lockstep.estimator import losses as losses
from lockstep.estimator import metrics as metrics
from lockstep.estimator import summary as summary
from lockstep.estimator import train as train
from lockstep.estimator._canned import BaselineClassifier as BaselineClassifier
from lockstep.estimator._canned import BaselineEstimator as BaselineEstimator
from lockstep.estimator._canned import BaselineRegressor as BaselineRegressor
from lockstep.estimator._canned import DNNClassifier as DNNClassifier
from lockstep.estimator._canned import DNNEstimator as DNNEstimator
from lockstep.estimator._canned import DNNLinearCombinedClassifier as DNNLinearCombinedClassifier
from lockstep.estimator._canned import DNNLinearCombinedEstimator as DNNLinearCombinedEstimator
from lockstep.estimator._canned import DNNLinearCombinedRegressor as DNNLinearCombinedRegressor
from lockstep.estimator._canned import DNNRegressor as DNNRegressor
from lockstep.estimator._canned import LinearClassifier as LinearClassifier
from lockstep.estimator._canned import LinearEstimator as LinearEstimator
from lockstep.estimator._canned import LinearRegressor as LinearRegressor
from lockstep.estimator._canned import add_metrics as add_metrics
from lockstep.estimator._canned import classifier_parse_example_spec as classifier_parse_example_spec
from lockstep.estimator._canned import regressor_parse_example_spec as regressor_parse_example_spec
from lockstep.estimator._estimator import Estimator as Estimator
from lockstep.estimator._estimator_spec import EstimatorSpec as EstimatorSpec
from lockstep.estimator._estimator_spec import Scaffold as Scaffold
from lockstep.estimator._export.exporters import BestExporter as BestExporter
from lockstep.estimator._export.exporters import Exporter as Exporter
from lockstep.estimator._export.exporters import FinalExporter as FinalExporter
from lockstep.estimator._export.exporters import LatestExporter as LatestExporter
from lockstep.estimator._heads import BinaryClassHead as BinaryClassHead
from lockstep.estimator._heads import Head as Head
from lockstep.estimator._heads import LogisticRegressionHead as LogisticRegressionHead
from lockstep.estimator._heads import MultiClassHead as MultiClassHead
from lockstep.estimator._heads import MultiHead as MultiHead
from lockstep.estimator._heads import MultiLabelHead as MultiLabelHead
from lockstep.estimator._heads import PoissonRegressionHead as PoissonRegressionHead
from lockstep.estimator._heads import RegressionHead as RegressionHead
from lockstep.estimator._hooks import CheckpointSaverHook as CheckpointSaverHook
from lockstep.estimator._hooks import CheckpointSaverListener as CheckpointSaverListener
from lockstep.estimator._hooks import FeedFnHook as FeedFnHook
from lockstep.estimator._hooks import FinalOpsHook as FinalOpsHook
from lockstep.estimator._hooks import GlobalStepWaiterHook as GlobalStepWaiterHook
from lockstep.estimator._hooks import LoggingTensorHook as LoggingTensorHook
from lockstep.estimator._hooks import NanLossDuringTrainingError as NanLossDuringTrainingError
from lockstep.estimator._hooks import NanTensorHook as NanTensorHook
from lockstep.estimator._hooks import ProfilerHook as ProfilerHook
from lockstep.estimator._hooks import SecondOrStepTimer as SecondOrStepTimer
from lockstep.estimator._hooks import SessionRunArgs as SessionRunArgs
from lockstep.estimator._hooks import SessionRunContext as SessionRunContext
from lockstep.estimator._hooks import SessionRunHook as SessionRunHook
from lockstep.estimator._hooks import SessionRunValues as SessionRunValues
from lockstep.estimator._hooks import StepCounterHook as StepCounterHook
from lockstep.estimator._hooks import StopAtStepHook as StopAtStepHook
from lockstep.estimator._hooks import SummarySaverHook as SummarySaverHook
from lockstep.estimator._keras_model import model_to_estimator as model_to_estimator
from lockstep.estimator._mode_keys import ModeKeys as ModeKeys
from lockstep.estimator._run_config import DistributeConfig as DistributeConfig
from lockstep.estimator._run_config import RunConfig as RunConfig
from lockstep.estimator._train_and_evaluate import EvalSpec as EvalSpec
from lockstep.estimator._train_and_evaluate import TrainSpec as TrainSpec
from lockstep.estimator._train_and_evaluate import train_and_evaluate as train_and_evaluate
from lockstep.estimator._warm_start import VocabInfo as VocabInfo
from lockstep.estimator._warm_start import WarmStartSettings as WarmStartSettings

__all__ = [
    "BaselineClassifier",
    "BaselineEstimator",
    "BaselineRegressor",
    "BestExporter",
    "BinaryClassHead",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "DNNClassifier",
    "DNNEstimator",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedEstimator",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "DistributeConfig",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "Exporter",
    "FeedFnHook",
    "FinalExporter",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "Head",
    "LatestExporter",
    "LinearClassifier",
    "LinearEstimator",
    "LinearRegressor",
    "LoggingTensorHook",
    "LogisticRegressionHead",
    "ModeKeys",
    "MultiClassHead",
    "MultiHead",
    "MultiLabelHead",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "PoissonRegressionHead",
    "ProfilerHook",
    "RegressionHead",
    "RunConfig",
    "Scaffold",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "TrainSpec",
    "VocabInfo",
    "WarmStartSettings",
    "add_metrics",
    "classifier_parse_example_spec",
    "experimental",
    "export",
    "feature_column",
    "inputs",
    "losses",
    "metrics",
    "model_to_estimator",
    "regressor_parse_example_spec",
    "summary",
    "train",
    "train_and_evaluate",
]
