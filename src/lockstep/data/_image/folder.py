"""Image folders: one folder per class.

Source: keras.utils.image_dataset_from_directory, keras.src.utils.dataset_utils.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._files.stream import as_path
from lockstep.errors import ArgumentError, DataNotFoundError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
_Labels = np.ndarray[Any, np.dtype[Any]] | None


def list_images(
    directory: object,
    labels: str | Sequence[int] | None = "inferred",
    class_names: Sequence[str] | None = None,
    *,
    follow_links: bool = False,
    suffixes: tuple[str, ...] = SUFFIXES,
) -> tuple[list[str], _Labels, list[str] | None]:
    """Lists the images below a folder.

    Args:
        directory: The folder; with "inferred" labels each of its folders holds the images of one class, itself or in
            folders below.
        labels: "inferred", `None` for no labels, or a label per file, for the files sorted as they are returned.
        class_names: The folders to take as classes, in that order; `None` for all, sorted by name, without those that
            begin with a dot. Only with "inferred".
        follow_links: Whether to look into folders that are symbolic links.
        suffixes: What names of images end with, in lower case.

    Returns:
        Paths, sorted within a class; labels, int32 (number of files,), or `None`; names of classes, or `None`
        (of given labels: the labels as text).

    Raises:
        DataNotFoundError: If there is no such folder, or no image in it.
        ArgumentError: If `class_names` are not the folders there are, or `labels` not as many as files.

    Source: keras.utils.image_dataset_from_directory, before shuffling and splitting.
    """
    root = Path(as_path(directory))
    if not root.is_dir():
        raise DataNotFoundError(f"there is no folder {root}. Check the name; each worker needs it under that name.")
    if class_names is not None and not _is_inferred(labels):
        raise ArgumentError("class_names can be given with labels='inferred' only: they name folders. Leave them out.")
    if _is_inferred(labels):
        return _by_class(root, class_names, follow_links, suffixes)
    paths = _check_not_empty(root, _images(root, follow_links, suffixes), suffixes)
    numbers = _check_labels(labels, paths)
    return paths, numbers, None if numbers is None else [str(label) for label in np.unique(numbers)]


def _by_class(
    root: Path, class_names: Sequence[str] | None, follow_links: bool, suffixes: tuple[str, ...]
) -> tuple[list[str], _Labels, list[str]]:
    names = _class_names(root, class_names)
    files = [_images(root / name, follow_links, suffixes) for name in names]
    paths = _check_not_empty(root, [path for group in files for path in group], suffixes)
    # int32, as Keras' function returns.
    labels = np.repeat(np.arange(len(names), dtype=np.int32), [len(group) for group in files])
    return paths, labels, names


def _class_names(root: Path, class_names: Sequence[str] | None) -> list[str]:
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


def _images(root: Path, follow_links: bool, suffixes: tuple[str, ...]) -> list[str]:
    """Returns the images below a folder: folder by folder, in the order of their paths, each sorted by name."""
    # os.walk follows the disk's order, which differs between machines: labels must not.
    walk = sorted(os.walk(root, followlinks=follow_links), key=lambda found: found[0])
    return [
        os.path.join(folder, name)
        for folder, _, names in walk
        for name in sorted(names)
        if name.lower().endswith(suffixes)
    ]


def _check_not_empty(root: Path, paths: list[str], suffixes: tuple[str, ...]) -> list[str]:
    if not paths:
        raise DataNotFoundError(
            f"there are no images in {root}: no file below it, or below the folders of its classes, ends with one of "
            f"{', '.join(suffixes)}. Check the folder; without classes pass labels=None."
        )
    return paths


def _check_labels(labels: ArrayLike, paths: list[str]) -> _Labels:
    if labels is None:
        return None
    if isinstance(labels, str):
        raise ArgumentError(f"labels is 'inferred', None or a label per file; received {labels!r}.")
    values = np.asarray(labels)
    if values.shape != (len(paths),) or values.dtype.kind not in "iu":
        raise ArgumentError(
            f"labels must be whole numbers, one per file, in the order of the sorted files; there are {len(paths)} "
            f"files, received {values.dtype} {values.shape}."
        )
    return values.astype(np.int32)


def _is_inferred(labels: ArrayLike) -> bool:
    return isinstance(labels, str) and labels == "inferred"
