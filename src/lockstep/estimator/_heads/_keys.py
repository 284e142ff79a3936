"""Names of metrics, predictions and signatures: TensorFlow's, which programs and saved models depend on."""

from __future__ import annotations

from lockstep.estimator._estimator_spec import DEFAULT_SIGNATURE as DEFAULT_SIGNATURE

LOSS = "loss"
LOSS_MEAN = "average_loss"
LOSS_REGULARIZATION = "regularization_loss"
ACCURACY = "accuracy"
ACCURACY_BASELINE = "accuracy_baseline"
AUC = "auc"
AUC_PR = "auc_precision_recall"
LABEL_MEAN = "label/mean"
PRECISION = "precision"
PREDICTION_MEAN = "prediction/mean"
RECALL = "recall"
# Of one class of MultiLabelHead, with the class behind it.
PROBABILITY_MEAN = "probability_mean"

ALL_CLASSES = "all_classes"
ALL_CLASS_IDS = "all_class_ids"
CLASSES = "classes"
CLASS_IDS = "class_ids"
LOGISTIC = "logistic"
LOGITS = "logits"
PREDICTIONS = "predictions"
PROBABILITIES = "probabilities"

# Not a prediction: the labels among a metric's inputs.
LABELS = "labels"

CLASSIFY_SIGNATURE = "classification"
PREDICT_SIGNATURE = "predict"
REGRESS_SIGNATURE = "regression"


def at_threshold(name: str, threshold: float) -> str:
    """Returns the name of a metric at a threshold."""
    # Without trailing zeros, as TensorFlow's "%g": "accuracy/positive_threshold_0.5".
    return f"{name}/positive_threshold_{threshold:g}"
