"""Canned estimators: DNN, linear, wide-and-deep and baseline models."""

from __future__ import annotations

from lockstep.estimator._canned._baseline import BaselineClassifier as BaselineClassifier
from lockstep.estimator._canned._baseline import BaselineEstimator as BaselineEstimator
from lockstep.estimator._canned._baseline import BaselineRegressor as BaselineRegressor
from lockstep.estimator._canned._combined import DNNLinearCombinedClassifier as DNNLinearCombinedClassifier
from lockstep.estimator._canned._combined import DNNLinearCombinedEstimator as DNNLinearCombinedEstimator
from lockstep.estimator._canned._combined import DNNLinearCombinedRegressor as DNNLinearCombinedRegressor
from lockstep.estimator._canned._dnn import DNNClassifier as DNNClassifier
from lockstep.estimator._canned._dnn import DNNEstimator as DNNEstimator
from lockstep.estimator._canned._dnn import DNNRegressor as DNNRegressor
from lockstep.estimator._canned._dnn import dnn_logit_fn_builder as dnn_logit_fn_builder
from lockstep.estimator._canned._extenders import add_metrics as add_metrics
from lockstep.estimator._canned._linear import LinearClassifier as LinearClassifier
from lockstep.estimator._canned._linear import LinearEstimator as LinearEstimator
from lockstep.estimator._canned._linear import LinearRegressor as LinearRegressor
from lockstep.estimator._canned._linear import linear_logit_fn_builder as linear_logit_fn_builder
from lockstep.estimator._canned._parsing import classifier_parse_example_spec as classifier_parse_example_spec
from lockstep.estimator._canned._parsing import regressor_parse_example_spec as regressor_parse_example_spec

__all__ = [
    "BaselineClassifier",
    "BaselineEstimator",
    "BaselineRegressor",
    "DNNClassifier",
    "DNNEstimator",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedEstimator",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "LinearClassifier",
    "LinearEstimator",
    "LinearRegressor",
    "add_metrics",
    "classifier_parse_example_spec",
    "dnn_logit_fn_builder",
    "linear_logit_fn_builder",
    "regressor_parse_example_spec",
]
