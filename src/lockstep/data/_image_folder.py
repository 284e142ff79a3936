"""Datasets of the images in a directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._columns import Rows
from lockstep.data._dataset import Dataset
from lockstep.data._image.decode import decode_image
from lockstep.data._image.folder import list_images
from lockstep.data._image.resize import resize
from lockstep.errors import ArgumentError

_CHANNELS = {"grayscale": 1, "rgb": 3, "rgba": 4}
_MODES = ("int", "categorical", "binary", None)


class ImageFolder:
    """The images of a directory; arguments as of `image_dataset_from_directory`."""

    def __init__(
        self,
        directory: object,
        labels: ArrayLike,
        label_mode: str | None,
        class_names: Sequence[str] | None,
        color_mode: str,
        image_size: tuple[int, int],
        interpolation: str,
        follow_links: bool,
        crop: bool,
    ) -> None:
        _check_choice("color_mode", color_mode, tuple(_CHANNELS))
        _check_choice("label_mode", label_mode, _MODES)
        self._channels = _CHANNELS[color_mode]
        self._size = (int(image_size[0]), int(image_size[1]))
        self._method = interpolation
        self._crop = crop
        self._mode = label_mode if labels is not None else None
        found = list_images(directory, labels, class_names, follow_links=follow_links)
        self._paths = np.array([p.encode() for p in found[0]], object)
        self._labels = found[1]
        self.class_names = found[2]
        # The check of Keras' own function, before any file is read.
        if self._mode == "binary" and len(self.class_names or ()) != 2:
            raise ArgumentError(f"label_mode='binary' needs two classes. Received: {self.class_names}.")

    def datasets(
        self,
        batch_size: int | None,
        shuffle: bool,
        seed: int | None,
        validation_split: float | None,
        subset: str | None,
    ) -> Any:
        """Returns the dataset of a subset, or a pair of datasets."""
        _check_split(validation_split, subset, shuffle, seed)
        order = np.arange(len(self._paths))
        if shuffle and seed is not None:  # The same order before each split, as in Keras.
            order = np.random.RandomState(seed).permutation(order)
        # The last files, as Keras splits them: both subsets are computed with the same order.
        held_out = int((validation_split or 0) * len(order))
        parts = {"training": order[: len(order) - held_out], "validation": order[len(order) - held_out :], None: order}
        if subset == "both":
            return tuple(self._dataset(parts[name], batch_size, shuffle, seed) for name in ("training", "validation"))
        return self._dataset(parts[subset], batch_size, shuffle, seed)

    def _dataset(self, rows: Rows, batch_size: int | None, shuffle: bool, seed: int | None) -> Dataset:
        if self._mode is None or self._labels is None:
            dataset = Dataset.from_tensor_slices(self._paths[rows])
            dataset = dataset.shuffle(seed=seed) if shuffle else dataset
            dataset = dataset.map(self._image)
        else:
            dataset = Dataset.from_tensor_slices((self._paths[rows], self._encode_labels(self._labels[rows])))
            dataset = dataset.shuffle(seed=seed) if shuffle else dataset
            dataset = dataset.map(lambda path, label: (self._image(path), label))
        dataset = dataset if batch_size is None else dataset.batch(batch_size)
        dataset.class_names = self.class_names  # type: ignore[attr-defined]
        return dataset

    def _encode_labels(self, labels: ArrayLike) -> Any:
        # One-hot rows are picked from an identity matrix.
        if self._mode == "categorical":
            return np.eye(len(self.class_names or ()), dtype=np.float32)[labels]
        return labels.astype(np.float32 if self._mode == "binary" else np.int32)

    def _image(self, path: bytes) -> Any:
        image = decode_image(Path(path.decode()).read_bytes(), channels=self._channels, expand_animations=False)
        return resize(self._crop_center(image) if self._crop else image, self._size, self._method)

    def _crop_center(self, image: ArrayLike) -> Any:
        """Crops the largest part in the middle that has the aspect ratio of the target size."""
        height, width = image.shape[:2]
        tall, wide = self._size
        crop_height = min(height, int(width * tall / wide))
        crop_width = min(width, int(height * wide / tall))
        top, left = (height - crop_height) // 2, (width - crop_width) // 2
        return image[top : top + crop_height, left : left + crop_width]


def _check_split(split: float | None, subset: str | None, shuffle: bool, seed: int | None) -> None:
    _check_choice("subset", subset, ("training", "validation", "both", None))
    if (split is None) != (subset is None):
        raise ArgumentError("validation_split and subset go together. Received: one of them. Give both.")
    if split is not None and not 0 < split < 1:
        raise ArgumentError(f"validation_split must be between 0 and 1. Received: {split}.")
    if split is not None and shuffle and seed is None:
        raise ArgumentError("A split of shuffled files needs a seed, so that its parts do not overlap. Give one.")


def _check_choice(name: str, value: object, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise ArgumentError(f"{name} must be one of {', '.join(map(str, allowed))}. Received: {value!r}.")
