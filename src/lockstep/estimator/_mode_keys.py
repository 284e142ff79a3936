"""What a model_fn is called for."""

from __future__ import annotations


class ModeKeys:
    """What a model_fn is called for: "train", "eval" or "infer".

    Source: tf.estimator.ModeKeys.
    """

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)
