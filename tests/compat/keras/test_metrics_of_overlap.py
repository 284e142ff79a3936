"""Metrics of overlap with weights of examples; figures of TensorFlow 2.15 on the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf

# Keras casts to int64, which JAX has as int32.
pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype")

LABELS, GUESSES = [0, 1, 1, 2, 2, 2], [0, 1, 2, 2, 0, 2]
WEIGHTS = np.asarray([0.25, 0.5, 0.75, 0.5, 0.25, 0.125], "f")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "is_one_hot"),
    [
        (lambda: tf.keras.metrics.MeanIoU(num_classes=3), False),
        (lambda: tf.keras.metrics.IoU(num_classes=3, target_class_ids=[0, 1, 2]), False),
        (lambda: tf.keras.metrics.OneHotMeanIoU(num_classes=3), True),
        (lambda: tf.keras.metrics.OneHotIoU(num_classes=3, target_class_ids=[0, 1, 2]), True),
    ],
)
def test_weights_below_one_count(make: Any, is_one_hot: bool) -> None:
    labels, guesses = (np.eye(3, dtype="f")[v] if is_one_hot else np.asarray(v) for v in (LABELS, GUESSES))
    metric = make()
    metric.update_state(labels, guesses, sample_weight=WEIGHTS)
    # Of each class: weights of the examples that have it twice, by those that have it once or twice.
    expected = np.mean([0.25 / 0.5, 0.5 / 1.25, 0.625 / 1.625])
    np.testing.assert_allclose(float(metric.result()), expected, rtol=1e-6)


@pytest.mark.slow
def test_of_two_classes() -> None:
    metric = tf.keras.metrics.BinaryIoU(target_class_ids=[0, 1], threshold=0.5)
    metric.update_state([0, 1, 0, 1], [0.1, 0.2, 0.4, 0.7], sample_weight=[0.2, 0.3, 0.4, 0.1])
    np.testing.assert_allclose(float(metric.result()), np.mean([0.6 / 0.9, 0.1 / 0.4]), rtol=1e-6)
