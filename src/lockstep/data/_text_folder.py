"""`text_dataset_from_directory`.

Source: keras.utils.text_dataset_from_directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._labelled_files import Selection

_SUFFIXES = (".txt",)


def text_dataset_from_directory(
    directory: object,
    labels: ArrayLike = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = 32,
    max_length: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
) -> Any:
    """Returns a dataset of the text files in a directory: (text, labels), or text if `label_mode` is None.

    Text is `bytes`, (batch,) objects. The dataset has an attribute `class_names`.

    Args:
        directory: With a directory per class, if labels are inferred. Files end with .txt.
        labels: "inferred", None, or a label per file in the order of their sorted names.
        label_mode: "int" (int32), "categorical" (one-hot float32), "binary" (float32 0 or 1), or None.
        class_names: The classes in order; by default those found, sorted.
        batch_size: None for single texts.
        max_length: After how many bytes a text is cut off; by default not at all.
        shuffle: Whether each pass has another order.
        seed: Of the order and the split.
        validation_split: The fraction of files kept for validation.
        subset: "training", "validation", or "both" for a pair of datasets.
        follow_links: Whether links to directories are followed.

    Raises:
        ArgumentError: If arguments do not go together.
        DataNotFoundError: If there is no file.

    Source: keras.utils.text_dataset_from_directory.
    """
    selection = Selection(
        directory,
        labels,
        label_mode,
        class_names,
        shuffle,
        seed,
        validation_split,
        subset,
        follow_links,
        _SUFFIXES,
        "text files",
    )
    selection.check_choices()

    def text_of(path: bytes) -> Any:
        # An array of one object: numpy's own type of text would drop zero bytes at the end.
        text = np.empty((), object)
        text[()] = Path(path.decode()).read_bytes()[:max_length]
        return text

    return selection.datasets(text_of, lambda dataset: dataset if batch_size is None else dataset.batch(batch_size))
