"""The metrics, computed with numpy from all examples at once."""

from __future__ import annotations

from typing import Any

import numpy as np


def mean(values: Any, weights: Any = 1.0) -> float:
    """The weighted mean; 0 without weights."""
    weights = np.broadcast_to(weights, np.shape(values)).astype(np.float64)
    return float(np.sum(values * weights) / np.sum(weights)) if np.sum(weights) else 0.0


def counts(labels: Any, said: Any, weights: Any = 1.0) -> dict[str, float]:
    """The weights of right and wrong yes-or-no predictions."""
    weights = np.broadcast_to(weights, np.shape(labels)).astype(np.float64)
    truth, said = np.asarray(labels, bool), np.asarray(said, bool)
    return {
        "true_positives": float(weights[truth & said].sum()),
        "false_positives": float(weights[~truth & said].sum()),
        "true_negatives": float(weights[~truth & ~said].sum()),
        "false_negatives": float(weights[truth & ~said].sum()),
    }


def part(chosen: float, other: float) -> float:
    """What part of both the first one is; 0 of nothing."""
    return chosen / (chosen + other) if chosen + other else 0.0


def exact_auc(labels: Any, scores: Any) -> float:
    """How often a true example scores higher than a false one; ties count half."""
    true, false = np.asarray(scores)[labels > 0], np.asarray(scores)[labels == 0]
    higher = np.sum(true[:, None] > false[None, :]) + 0.5 * np.sum(true[:, None] == false[None, :])
    return float(higher / (len(true) * len(false)))


def top(scores: Any, k: int) -> list[int]:
    """The k highest scores; of equal ones the first."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]


def sets_at_k(rows: Any, scores: Any, k: int, class_id: int | None = None) -> list[tuple[int, int, int]]:
    """For each example, how many labels were found, how many not, and how many predictions were wrong."""
    found: list[tuple[int, int, int]] = []
    for row, line in zip(rows, scores, strict=True):
        truth, said = set(map(int, row)), set(top(line, k))
        if class_id is not None:
            truth, said = truth & {class_id}, said & {class_id}
        found.append((len(truth & said), len(truth - said), len(said - truth)))
    return found


def average_precision(row: Any, line: Any, k: int) -> float:
    """The precision at each place that is a hit, added up, divided by how many hits there could be."""
    truth, said = [int(c) for c in row if 0 <= c < len(line)], top(line, k)
    hits = [c in truth for c in said]
    total = sum(sum(hits[: i + 1]) / (i + 1) for i, hit in enumerate(hits) if hit)
    return total / min(len(truth), k)
