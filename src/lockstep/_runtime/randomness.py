"""The random state that user programs draw from: Python's and numpy's global generators.

Keras seeds its initializers, seed generators and shuffles from them. Tasks that start from one state create the same
weights and shuffle data alike, as one process would, whether the program sets a seed or not.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np


def snapshot() -> dict[str, Any]:
    """Returns the global random state as plain JSON values."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(words), gauss],
        "numpy": [str(name), np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)],
    }


def restore(state: dict[str, Any]) -> None:
    """Makes `state`, from `snapshot`, the global random state of this process."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.asarray(keys, np.uint32), position, has_gauss, cached))


def seeded(seed: int) -> dict[str, Any]:
    """Returns the random state that `random.seed` and `numpy.random.seed` make, without changing this process'."""
    before = snapshot()
    try:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        return snapshot()
    finally:
        restore(before)
