"""Files that match patterns.

Source: tf.io.matching_files, tf.io.gfile.glob, tf.data.Dataset.list_files.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable

import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._files.stream import as_path
from lockstep.errors import ArgumentError, DataNotFoundError


def matching_files(patterns: ArrayLike) -> list[str]:
    """Returns the names of the files that match any of some patterns, sorted.

    `*` and `?` match within one level of folders, names that begin with a dot included; `[ab]`, `[a-z]` and `[^a]`
    match one character.

    Args:
        patterns: A pattern, or several: `str`, `bytes`, paths, or an array of text.

    Raises:
        DataNotFoundError: If nothing matches one of them.
    """
    names: list[str] = []
    for pattern in _each(patterns):
        names += _matches(pattern)
    return sorted(names)


def _matches(pattern: str) -> list[str]:
    # TensorFlow's patterns negate by [^a], Python's by [!a].
    names = glob.glob(pattern.replace("[^", "[!"), include_hidden=True)
    if not names:
        raise DataNotFoundError(
            f"no file matches {pattern!r}. Check the pattern and the folder; each worker needs the files under the "
            f"same names."
        )
    return names


def _each(patterns: ArrayLike) -> list[str]:
    # An element of a dataset of patterns is an array of bytes.
    if isinstance(patterns, np.ndarray):
        patterns = np.atleast_1d(patterns).tolist()
    several = isinstance(patterns, Iterable) and not isinstance(patterns, (str, bytes))
    paths = [as_path(pattern) for pattern in patterns] if several else [as_path(patterns)]
    if not paths:
        raise ArgumentError("at least one pattern is needed; received none.")
    return paths
