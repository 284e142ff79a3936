"""Compares what trainings came to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TOLERANCES = {"float64": 1e-9, "float32": 2e-5}


def assert_equal(members: Sequence[dict[str, np.ndarray]], expected: dict[str, np.ndarray], tolerance: float) -> None:
    """Demands that all members came to what was expected."""
    for worker, found in enumerate(members):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            difference = np.max(np.abs(found[name].astype(float) - value.astype(float)), initial=0.0)
            assert difference <= tolerance, f"{name} on worker {worker} differs by {difference:g}"
