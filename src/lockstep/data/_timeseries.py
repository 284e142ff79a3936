"""`timeseries_dataset_from_array`.

Source: keras.utils.timeseries_dataset_from_array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._dataset import Dataset
from lockstep.errors import ArgumentError


def timeseries_dataset_from_array(
    data: ArrayLike,
    targets: ArrayLike,
    sequence_length: int,
    sequence_stride: int = 1,
    sampling_rate: int = 1,
    batch_size: int | None = 128,
    shuffle: bool = False,
    seed: int | None = None,
    start_index: int | None = None,
    end_index: int | None = None,
) -> Dataset:
    """Returns a dataset of windows over rows that follow one another in time: (window, target), or windows.

    Args:
        data: Rows (time, ...).
        targets: A target for the window that begins at each row, or None. Windows whose first row has no target are
            left out.
        sequence_length: Rows in a window.
        sequence_stride: Rows from the first of one window to the first of the next.
        sampling_rate: Rows from one in a window to the next.
        batch_size: None for single windows.
        shuffle: Whether windows come in another order in each pass.
        seed: Of the order.
        start_index: The first row that is used.
        end_index: The first one that is not.

    Returns:
        Windows (batch, sequence_length, ...), with the data's type.

    Raises:
        ArgumentError: If a number is out of its range.

    Source: keras.utils.timeseries_dataset_from_array.
    """
    values = np.asarray(data)
    wanted = None if targets is None else np.asarray(targets)
    first, last = start_index or 0, len(values) if end_index is None else end_index
    if not 0 <= first < last <= len(values):
        raise ArgumentError(
            f"start_index must be below end_index, and both in the data, of {len(values)} rows. Received: {first} and "
            f"{last}."
        )
    for name, number in (
        ("sequence_length", sequence_length),
        ("sequence_stride", sequence_stride),
        ("sampling_rate", sampling_rate),
    ):
        if not 0 < number < len(values):
            raise ArgumentError(
                f"{name} must be from 1 to below the number of rows, {len(values)}. Received: {number}."
            )
    count = last - first - (sequence_length - 1) * sampling_rate
    if wanted is not None:
        count = min(count, len(wanted))
    starts = np.arange(0, max(count, 0), sequence_stride)
    offsets = np.arange(0, sequence_length * sampling_rate, sampling_rate)
    rows, labels = values[first:last], None if wanted is None else wanted[first:last]

    def window_at(start: Any) -> Any:
        at = int(start)
        window = rows[at + offsets]
        return window if labels is None else (window, labels[at])

    dataset = Dataset.from_tensor_slices(starts)
    dataset = (dataset.shuffle(seed=seed) if shuffle else dataset).map(window_at)
    return dataset if batch_size is None else dataset.batch(batch_size)
