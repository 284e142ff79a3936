"""Datasets of the files in a directory, with a label for each: what the functions for images, text and audio share.

Source: keras.src.utils.dataset_utils.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._columns import Rows
from lockstep.data._dataset import Dataset
from lockstep.data._files.stream import as_path
from lockstep.errors import ArgumentError, DataNotFoundError

LABEL_MODES = ("int", "categorical", "binary", None)


@dataclass(frozen=True)
class Selection:
    """Which files a dataset has, in which order, and what their labels are.

    Attributes:
        directory: With a directory per class, if labels are inferred.
        labels: "inferred", None, or a label per file in the order of their sorted names.
        label_mode: "int" (int32), "categorical" (one-hot float32), "binary" (float32 0 or 1), or None.
        class_names: The classes in order; by default those found, sorted.
        shuffle: Whether each pass has another order.
        seed: Of the order and the split.
        validation_split: The fraction of files kept for validation.
        subset: "training", "validation", or "both" for a pair of datasets.
        follow_links: Whether links to directories are followed.
        suffixes: How the names of files end.
        kind: What they are, for messages.
    """

    directory: object
    labels: ArrayLike
    label_mode: str | None
    class_names: Sequence[str] | None
    shuffle: bool
    seed: int | None
    validation_split: float | None
    subset: str | None
    follow_links: bool
    suffixes: tuple[str, ...]
    kind: str

    def check_choices(self) -> None:
        """Raises `ArgumentError` for a label_mode or subset that there is not."""
        choices = {"label_mode": LABEL_MODES, "subset": ("training", "validation", "both", None)}
        for name, value in (("label_mode", self.label_mode), ("subset", self.subset)):
            check_choice(name, value, choices[name])

    def datasets(self, read: Callable[[bytes], Any], batch: Callable[[Dataset], Dataset]) -> Any:
        """Returns the dataset, or the pair of them.

        Args:
            read: Makes an element of a file's path.
            batch: Batches a dataset of such elements.

        Raises:
            ArgumentError: If arguments do not go together.
            DataNotFoundError: If there is no file.
        """
        paths, numbers, names = list_labelled_files(
            self.directory, self.labels, self.class_names, self.suffixes, self.kind, follow_links=self.follow_links
        )
        self._check(names)
        files = np.array([path.encode() for path in paths], object)
        if self.label_mode is None or numbers is None:
            columns, function = files, read
        else:
            columns, function = (files, self._encode(numbers, names)), lambda path, label: (read(path), label)

        def part(rows: Rows) -> Dataset:
            dataset = Dataset.from_tensor_slices(jax.tree.map(lambda column: column[rows], columns))
            dataset = batch((dataset.shuffle(seed=self.seed) if self.shuffle else dataset).map(function))
            dataset.class_names = names  # type: ignore[attr-defined]
            return dataset

        order = np.arange(len(files))
        if self.shuffle and self.seed is not None:  # The same order before each split, as in Keras.
            order = np.random.RandomState(self.seed).permutation(order)
        # The last files, as Keras splits them: both subsets are computed with the same order.
        first_held_out = len(order) - int((self.validation_split or 0) * len(order))
        parts = {"training": order[:first_held_out], "validation": order[first_held_out:], None: order}
        if self.subset == "both":
            return part(parts["training"]), part(parts["validation"])
        return part(parts[self.subset])

    def _check(self, names: Sequence[str] | None) -> None:
        # The check of Keras' own function, before any file is read.
        if self.label_mode == "binary" and self.labels is not None and len(names or ()) != 2:
            raise ArgumentError(f"label_mode='binary' needs two classes. Received: {names}.")
        split = self.validation_split
        if (split is None) != (self.subset is None):
            raise ArgumentError("validation_split and subset go together. Received: one of them. Give both.")
        if split is not None and not 0 < split < 1:
            raise ArgumentError(f"validation_split must be between 0 and 1. Received: {split}.")
        if split is not None and self.shuffle and self.seed is None:
            raise ArgumentError("A split of shuffled files needs a seed, so that its parts do not overlap. Give one.")

    def _encode(self, numbers: np.ndarray[Any, Any], names: Sequence[str] | None) -> np.ndarray[Any, Any]:
        if self.label_mode == "categorical":
            # One-hot rows are picked from an identity matrix.
            return np.eye(len(names or ()), dtype=np.float32)[numbers]
        return numbers.astype(np.float32 if self.label_mode == "binary" else np.int32)


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raises `ArgumentError` unless a value is one of the choices."""
    if value not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(map(str, choices))}. Received: {value!r}.")


def list_labelled_files(
    directory: object,
    labels: ArrayLike,
    class_names: Sequence[str] | None,
    suffixes: tuple[str, ...],
    kind: str,
    *,
    follow_links: bool = False,
) -> tuple[list[str], np.ndarray[Any, Any] | None, list[str] | None]:
    """Lists the files below a folder; arguments as of `Selection`.

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
    groups = [_files(root / name, suffixes, follow_links) for name in folders]
    paths = [path for group in groups for path in group]
    if not paths:
        raise DataNotFoundError(
            f"there are no {kind} in {root}: no file below it, or below the folders of its classes, ends with one of "
            f"{', '.join(suffixes)}. Check the folder; without classes pass labels=None."
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


def _files(root: Path, suffixes: tuple[str, ...], follow_links: bool) -> list[str]:
    """Returns the files below a folder: folder by folder, in the order of their paths, each sorted by name."""
    # os.walk follows the disk's order, which differs between machines: labels must not.
    walk = sorted(os.walk(root, followlinks=follow_links), key=lambda found: found[0])
    return [
        os.path.join(folder, name)
        for folder, _, names in walk
        for name in sorted(names)
        if name.lower().endswith(suffixes)
    ]
