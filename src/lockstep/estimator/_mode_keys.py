"""Modes of a model_fn."""

from __future__ import annotations


class ModeKeys:
    """The modes of a model_fn: "train", "eval" and "infer".

    Source: tf.estimator.ModeKeys.
    """

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)
