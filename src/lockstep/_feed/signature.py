"""A batch's structure, shapes and dtypes as text, to compare between tasks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def signature(batch: Any) -> str:
    """Describes each array of `batch`, for example "[0]: float32(64, 28, 28), [1]: int64(64,)"."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(batch)
    return ", ".join(f"{jax.tree_util.keystr(path)}: {_array(leaf)}" for path, leaf in leaves)


def _array(leaf: Any) -> str:
    return f"{getattr(leaf, 'dtype', type(leaf).__name__)}{np.shape(leaf)}"
