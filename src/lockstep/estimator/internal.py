"""Parts of `lockstep.estimator` for its sibling packages. Nothing here comes with a promise of stability."""

from __future__ import annotations

from lockstep.estimator._export.placeholders import placeholder as placeholder
from lockstep.estimator._input_fns.source import OneShotIterator as OneShotIterator
from lockstep.estimator._model_fn.records import NamedOp as NamedOp
from lockstep.estimator._model_fn.records import SummaryOp as SummaryOp
from lockstep.estimator._model_fn.records import TrainOp as TrainOp
from lockstep.estimator._model_fn.records import count_steps as count_steps
from lockstep.estimator._model_fn.records import group as group
from lockstep.estimator._model_fn.scope import ModelScope as ModelScope
from lockstep.estimator._model_fn.scope import demand as demand
from lockstep.estimator.feature_column._columns import ColumnVariables as ColumnVariables
from lockstep.estimator.feature_column._features import Features as Features
from lockstep.estimator.feature_column._fingerprints import concatenate as concatenate_fingerprints
from lockstep.estimator.feature_column._fingerprints import fingerprints as fingerprints
from lockstep.estimator.train._keras_rule import ComputedRate as ComputedRate

__all__ = [
    "ColumnVariables",
    "ComputedRate",
    "Features",
    "ModelScope",
    "NamedOp",
    "OneShotIterator",
    "SummaryOp",
    "TrainOp",
    "concatenate_fingerprints",
    "count_steps",
    "demand",
    "fingerprints",
    "group",
    "placeholder",
]
