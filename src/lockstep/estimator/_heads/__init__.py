"""Heads: loss, predictions and metrics of a model's logits."""

from __future__ import annotations

from lockstep.estimator._heads._classifiers import BinaryClassHead as BinaryClassHead
from lockstep.estimator._heads._classifiers import MultiClassHead as MultiClassHead
from lockstep.estimator._heads._classifiers import MultiLabelHead as MultiLabelHead
from lockstep.estimator._heads._head import Head as Head
from lockstep.estimator._heads._multi import MultiHead as MultiHead
from lockstep.estimator._heads._regression import LogisticRegressionHead as LogisticRegressionHead
from lockstep.estimator._heads._regression import PoissonRegressionHead as PoissonRegressionHead
from lockstep.estimator._heads._regression import RegressionHead as RegressionHead

__all__ = [
    "BinaryClassHead",
    "Head",
    "LogisticRegressionHead",
    "MultiClassHead",
    "MultiHead",
    "MultiLabelHead",
    "PoissonRegressionHead",
    "RegressionHead",
]
