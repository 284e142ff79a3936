"""Names of predictions and metrics that tests of the canned Estimators and heads read, under TensorFlow's constants.

The values are what lockstep's own Estimators give: tests/estimator compare them with TensorFlow's.
"""

from __future__ import annotations


def _of_own_name(*constants: str) -> dict[str, str]:
    return {constant: constant.lower() for constant in constants}


_AT_THRESHOLD = ("accuracy", "precision", "recall")
_AT_OTHER = (("precision", "recall"), ("recall", "precision"))
_AT_OTHER_RATE = (("sensitivity", "specificity"), ("specificity", "sensitivity"))
_OF_A_CLASS = {"PROBABILITY_MEAN": "probability_mean", "AUC": "auc", "AUC_PR": "auc_precision_recall"}

PredictionKeys = type(
    "PredictionKeys",
    (),
    _of_own_name(
        "CLASSES", "CLASS_IDS", "ALL_CLASSES", "ALL_CLASS_IDS", "LOGISTIC",
        "LOGITS", "PREDICTIONS", "PROBABILITIES", "TOP_K",
    ),
)  # fmt: skip
MetricKeys = type(
    "MetricKeys",
    (),
    {
        **_of_own_name("LOSS", "ACCURACY", "PRECISION", "RECALL", "ACCURACY_BASELINE", "AUC"),
        "LOSS_MEAN": "average_loss",
        "LOSS_REGULARIZATION": "regularization_loss",
        "AUC_PR": "auc_precision_recall",
        "LABEL_MEAN": "label/mean",
        "PREDICTION_MEAN": "prediction/mean",
        **{f"{name.upper()}_AT_THRESHOLD": f"{name}/positive_threshold_%g" for name in _AT_THRESHOLD},
        **{f"{a.upper()}_AT_{b.upper()}": f"{a}_at_{b}_%g" for a, b in (*_AT_OTHER, *_AT_OTHER_RATE)},
        **{f"{constant}_AT_CLASS": f"{name}/class%d" for constant, name in _OF_A_CLASS.items()},
        **{f"{constant}_AT_NAME": f"{name}/%s" for constant, name in _OF_A_CLASS.items()},
    },
)
