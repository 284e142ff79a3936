"""`image_dataset_from_directory`.

Source: keras.utils.image_dataset_from_directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._image.decode import decode_image
from lockstep.data._image.resize import resize
from lockstep.data._labelled_files import Selection, check_choice, list_labelled_files

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
_CHANNELS = {"grayscale": 1, "rgb": 3, "rgba": 4}


def image_dataset_from_directory(
    directory: object,
    labels: ArrayLike = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    color_mode: str = "rgb",
    batch_size: int | None = 32,
    image_size: tuple[int, int] = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
    crop_to_aspect_ratio: bool = False,
) -> Any:
    """Returns a dataset of the images in a directory: (images, labels), or images if `label_mode` is None.

    Images are float32 (batch, height, width, channels), from 0 to 255. The dataset has an attribute `class_names`.

    Args:
        directory: With a directory per class, if labels are inferred.
        labels: "inferred", None, or a label per file in the order of their sorted names.
        label_mode: "int" (int32), "categorical" (one-hot float32), "binary" (float32 0 or 1), or None.
        class_names: The classes in order; by default those found, sorted.
        color_mode: "grayscale", "rgb" or "rgba".
        batch_size: None for single images.
        image_size: Height and width.
        shuffle: Whether each pass has another order.
        seed: Of the order and the split.
        validation_split: The fraction of files kept for validation.
        subset: "training", "validation", or "both" for a pair of datasets.
        interpolation: As `method` of tf.image.resize.
        follow_links: Whether links to directories are followed.
        crop_to_aspect_ratio: Whether images are cropped instead of distorted.

    Raises:
        ArgumentError: If arguments do not go together.
        DataNotFoundError: If there is no image.

    Source: keras.utils.image_dataset_from_directory.
    """
    check_choice("color_mode", color_mode, tuple(_CHANNELS))
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
        SUFFIXES,
        "images",
    )
    selection.check_choices()
    size = (int(image_size[0]), int(image_size[1]))

    def image_of(path: bytes) -> Any:
        content = Path(path.decode()).read_bytes()
        image = decode_image(content, channels=_CHANNELS[color_mode], expand_animations=False)
        return resize(_crop_center(image, *size) if crop_to_aspect_ratio else image, size, interpolation)

    return selection.datasets(image_of, lambda dataset: dataset if batch_size is None else dataset.batch(batch_size))


def _crop_center(image: np.ndarray[Any, Any], tall: int, wide: int) -> np.ndarray[Any, Any]:
    """Crops the largest part in the middle that has the aspect ratio of (tall, wide)."""
    height, width = image.shape[:2]
    crop_height = min(height, int(width * tall / wide))
    crop_width = min(width, int(height * wide / tall))
    top, left = (height - crop_height) // 2, (width - crop_width) // 2
    return image[top : top + crop_height, left : left + crop_width]


def list_images(
    directory: object,
    labels: ArrayLike = "inferred",
    class_names: Sequence[str] | None = None,
    *,
    follow_links: bool = False,
) -> tuple[list[str], np.ndarray[Any, Any] | None, list[str] | None]:
    """Lists the images below a folder; arguments as of `image_dataset_from_directory`, results as of all files."""
    return list_labelled_files(directory, labels, class_names, SUFFIXES, "images", follow_links=follow_links)
