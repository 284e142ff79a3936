"""`image_dataset_from_directory`.

Source: keras.utils.image_dataset_from_directory, keras.src.utils.dataset_utils.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._columns import Rows
from lockstep.data._dataset import Dataset
from lockstep.data._files.stream import as_path
from lockstep.data._image.decode import decode_image
from lockstep.data._image.resize import resize
from lockstep.errors import ArgumentError, DataNotFoundError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
_CHANNELS = {"grayscale": 1, "rgb": 3, "rgba": 4}
_MODES = ("int", "categorical", "binary", None)


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
    choices = {"color_mode": tuple(_CHANNELS), "label_mode": _MODES, "subset": ("training", "validation", "both", None)}
    for name, value in (("color_mode", color_mode), ("label_mode", label_mode), ("subset", subset)):
        if value not in choices[name]:
            raise ArgumentError(f"{name} must be one of {', '.join(map(str, choices[name]))}. Received: {value!r}.")
    size = (int(image_size[0]), int(image_size[1]))
    paths, numbers, names = list_images(directory, labels, class_names, follow_links=follow_links)
    # The check of Keras' own function, before any file is read.
    if label_mode == "binary" and labels is not None and len(names or ()) != 2:
        raise ArgumentError(f"label_mode='binary' needs two classes. Received: {names}.")
    if (validation_split is None) != (subset is None):
        raise ArgumentError("validation_split and subset go together. Received: one of them. Give both.")
    if validation_split is not None and not 0 < validation_split < 1:
        raise ArgumentError(f"validation_split must be between 0 and 1. Received: {validation_split}.")
    if validation_split is not None and shuffle and seed is None:
        raise ArgumentError("A split of shuffled files needs a seed, so that its parts do not overlap. Give one.")

    def image_of(path: bytes) -> Any:
        content = Path(path.decode()).read_bytes()
        image = decode_image(content, channels=_CHANNELS[color_mode], expand_animations=False)
        return resize(_crop_center(image, *size) if crop_to_aspect_ratio else image, size, interpolation)

    files = np.array([path.encode() for path in paths], object)
    if label_mode is None or numbers is None:
        columns, function = files, image_of
    else:
        # One-hot rows are picked from an identity matrix.
        one_hot = np.eye(len(names or ()), dtype=np.float32)[numbers] if label_mode == "categorical" else None
        encoded = numbers.astype(np.float32 if label_mode == "binary" else np.int32) if one_hot is None else one_hot
        columns, function = (files, encoded), lambda path, label: (image_of(path), label)

    def part(rows: Rows) -> Dataset:
        dataset = Dataset.from_tensor_slices(jax.tree.map(lambda column: column[rows], columns))
        dataset = (dataset.shuffle(seed=seed) if shuffle else dataset).map(function)
        dataset = dataset if batch_size is None else dataset.batch(batch_size)
        dataset.class_names = names  # type: ignore[attr-defined]
        return dataset

    order = np.arange(len(files))
    if shuffle and seed is not None:  # The same order before each split, as in Keras.
        order = np.random.RandomState(seed).permutation(order)
    # The last files, as Keras splits them: both subsets are computed with the same order.
    first_held_out = len(order) - int((validation_split or 0) * len(order))
    parts = {"training": order[:first_held_out], "validation": order[first_held_out:], None: order}
    return (part(parts["training"]), part(parts["validation"])) if subset == "both" else part(parts[subset])


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
    """Lists the images below a folder; arguments as of `image_dataset_from_directory`.

    Returns paths, sorted within a class; labels, int32 (number of files,), or `None`; names of classes, or `None` (of
    given labels: the labels as text).
    """
    root = Path(as_path(directory))
    if not root.is_dir():
        raise DataNotFoundError(f"there is no folder {root}. Check the name; each worker needs it under that name.")
    is_inferred = isinstance(labels, str) and labels == "inferred"
    if class_names is not None and not is_inferred:
        raise ArgumentError("class_names can be given with labels='inferred' only: they name folders. Leave them out.")
    folders = _class_folders(root, class_names) if is_inferred else ["."]
    groups = [_images(root / name, follow_links) for name in folders]
    paths = [path for group in groups for path in group]
    if not paths:
        raise DataNotFoundError(
            f"there are no images in {root}: no file below it, or below the folders of its classes, ends with one of "
            f"{', '.join(SUFFIXES)}. Check the folder; without classes pass labels=None."
        )
    if is_inferred:
        # int32, as Keras' function returns.
        return paths, np.repeat(np.arange(len(folders), dtype=np.int32), list(map(len, groups))), folders
    if labels is None:
        return paths, None, None
    if isinstance(labels, str):
        raise ArgumentError(f"labels is 'inferred', None or a label per file; received {labels!r}.")
    values = np.asarray(labels)
    if values.shape != (len(paths),) or values.dtype.kind not in "iu":
        raise ArgumentError(
            f"labels must be whole numbers, one per file, in the order of the sorted files; there are {len(paths)} "
            f"files, received {values.dtype} {values.shape}."
        )
    return paths, values.astype(np.int32), [str(label) for label in np.unique(values)]


def _class_folders(root: Path, class_names: Sequence[str] | None) -> list[str]:
    folders = sorted(child.name for child in root.iterdir() if child.is_dir() and not child.name.startswith("."))
    if class_names is None:
        return folders
    names = [str(name) for name in class_names]
    # A class without a folder would silently never occur.
    if not set(names) <= set(folders) or len(set(names)) < len(names):
        raise ArgumentError(
            f"class_names must be folders in {root}, each once, of {', '.join(folders) or '(none)'}; received "
            f"{', '.join(names) or '(none)'}."
        )
    return names


def _images(root: Path, follow_links: bool) -> list[str]:
    """Returns the images below a folder: folder by folder, in the order of their paths, each sorted by name."""
    # os.walk follows the disk's order, which differs between machines: labels must not.
    walk = sorted(os.walk(root, followlinks=follow_links), key=lambda found: found[0])
    return [
        os.path.join(folder, name)
        for folder, _, names in walk
        for name in sorted(names)
        if name.lower().endswith(SUFFIXES)
    ]
