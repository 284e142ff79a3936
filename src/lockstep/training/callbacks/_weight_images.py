"""Weights as pictures."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def pictures(weight: np.ndarray, channels_last: bool) -> Iterator[np.ndarray]:
    """Yields a weight as pictures of shape (height, width, 1), scaled to 0..255; of those that cannot be seen, none.

    Args:
        weight: A bias (one row), a matrix (the longer side across), or a stack of kernels of a convolution.
        channels_last: Whether the kernels of a stack are along its last axis.
    """
    shown = np.squeeze(weight)
    if shown.ndim == 1:
        yield _scaled(shown[None, :, None])
    elif shown.ndim == 2:
        yield _scaled((shown.T if shown.shape[0] > shown.shape[1] else shown)[:, :, None])
    elif shown.ndim == 3:
        for kernel in np.moveaxis(shown, -1, 0) if channels_last else shown:
            yield _scaled(kernel[:, :, None])


def _scaled(picture: np.ndarray) -> np.ndarray:
    picture = np.nan_to_num(picture.astype("float32"))
    low, high = float(picture.min()), float(picture.max())
    return (picture - low) * (255.0 / (high - low) if high > low else 0.0)
