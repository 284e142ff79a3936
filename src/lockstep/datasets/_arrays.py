"""Checks of the arrays that were read, and tables made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.datasets._data_set import Table
from lockstep.errors import InputError

Bytes = NDArray[np.uint8]


def images_and_labels(images: Bytes, source: str, classes: int, **labels: Bytes) -> Table:
    """Returns a table of images and their labels, by the names of the labels.

    Args:
        images: uint8 (n, height, width, channels).
        source: Where they come from, for messages.
        classes: How many classes there are.
        **labels: For each name uint8 (n,).

    Raises:
        InputError: If there is not one label for each image, or a label that stands for no class.
    """
    for name, numbers in labels.items():
        if numbers.shape != (len(images),) or not len(images):
            raise InputError(
                f"There must be one {name} for each image, and at least one image. Received: {len(images)} images and "
                f"{name} {numbers.dtype}{numbers.shape}, in {source}. Use files that belong together."
            )
        # A label out of range would otherwise be a loss of nan, many steps later.
        if numbers.max() >= classes:
            raise InputError(
                f"Each {name} must be from 0 to {classes - 1}. Received: {numbers.max()}, in {source}. Replace the "
                "file with a fresh copy."
            )
    # int64, tensorflow_datasets' type of a ClassLabel.
    columns: dict[str, NDArray[Any]] = {name: numbers.astype(np.int64) for name, numbers in labels.items()}
    return Table({"image": images, **columns})


def fixed_order(count: int) -> NDArray[np.int64]:
    """Returns a fixed pseudo-random order of `count` examples, the same on every machine.

    Data sets that are published class by class are put into it, so that any slice of them holds all classes.
    """
    # A fixed seed: all workers must have the same order.
    return np.random.default_rng(0).permutation(count)
