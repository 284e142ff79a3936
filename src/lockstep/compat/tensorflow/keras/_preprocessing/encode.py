"""Encodings of numbers of categories: one-hot, multi-hot, counts, and counts with weights."""

from __future__ import annotations

import numpy as np

from lockstep.errors import ArgumentError

MODES = ("int", "one_hot", "multi_hot", "count", "tf_idf")


def check_mode(layer: str, mode: str, allowed: tuple[str, ...] = MODES) -> None:
    """Raises ArgumentError unless `mode` is one of those allowed."""
    if mode not in allowed:
        raise ArgumentError(f"output_mode of {layer} is one of {', '.join(allowed)}. Received: {mode!r}.")


def encode(
    numbers: np.ndarray, mode: str, depth: int, dtype: str = "float32", weights: np.ndarray | None = None
) -> np.ndarray:
    """Returns categories as rows of `depth` columns.

    Args:
        numbers: Numbers of categories, of at most two dimensions; negative ones are left out.
        mode: "one_hot" for a row of each number; "multi_hot", "count" or "tf_idf" for a row of each example.
        depth: The number of categories.
        dtype: The dtype of the result.
        weights: By category, for "tf_idf".

    Raises:
        ArgumentError: If there are more dimensions.
    """
    if mode == "int":
        return numbers
    if numbers.ndim == 0:
        numbers = numbers[None]
    if mode == "one_hot" and numbers.shape[-1] != 1:
        numbers = numbers[..., None]
    if numbers.ndim > 2:
        raise ArgumentError(
            f"With output_mode={mode!r} a layer gives results of at most two dimensions. Received numbers of shape "
            f"{numbers.shape}. Flatten them, or use output_mode='int'."
        )
    rows = numbers.reshape(-1, numbers.shape[-1]) if numbers.ndim == 2 else numbers[None]
    result = np.zeros((len(rows), depth), dtype)
    kept = (rows >= 0) & (rows < depth)
    where = np.broadcast_to(np.arange(len(rows))[:, None], rows.shape)[kept]
    if mode in ("one_hot", "multi_hot"):
        result[where, rows[kept]] = 1
    else:
        np.add.at(result, (where, rows[kept]), 1 if weights is None else weights[rows[kept]])
    return result if numbers.ndim == 2 else result[0]


def encoded_shape(shape: tuple[int | None, ...], mode: str, depth: int | None) -> tuple[int | None, ...]:
    """Returns the shape that `encode` gives."""
    if mode == "int":
        return shape
    if mode == "one_hot":
        return (*(shape[:-1] if shape and shape[-1] == 1 else shape), depth)
    return (*shape[:-1], depth)
