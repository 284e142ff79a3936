"""Descriptions of data sets: features, splits and their sizes."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lockstep.datasets._split import SplitLike, UnknownNameError, resolve
from lockstep.errors import ArgumentError

Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Tensor:
    """An array (tfds.features.Tensor).

    Attributes:
        shape: Its shape; `None` where a size differs between elements.
        dtype: Its NumPy type.
    """

    shape: Shape
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Image:
    """A picture, uint8 (height, width, channels) (tfds.features.Image).

    Attributes:
        shape: Its shape; `None` where a size differs between pictures.
    """

    shape: Shape = (None, None, 3)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Returns uint8."""
        return np.dtype(np.uint8)


@dataclass(frozen=True)
class Text:
    """A text, as `bytes` in UTF-8 (tfds.features.Text)."""

    @property
    def shape(self) -> Shape:
        """Returns a scalar."""
        return ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """Returns the type `object`, of `bytes`."""
        return np.dtype(object)


@dataclass(frozen=True)
class Tokens:
    """A sequence of numbers of words, int64 (length,).

    Attributes:
        vocabulary: The words, in the order of their numbers.
    """

    vocabulary: Sequence[str] = field(repr=False)

    @property
    def shape(self) -> Shape:
        """Returns a sequence; lengths differ."""
        return (None,)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Returns int64."""
        return np.dtype(np.int64)


class ClassLabel:
    """An int64 scalar that stands for a class (tfds.features.ClassLabel).

    Args:
        num_classes: How many classes there are, if they have no names.
        names: Their names, in the order of their numbers.

    Raises:
        ArgumentError: If neither or both are given.
    """

    def __init__(self, num_classes: int | None = None, *, names: Sequence[str] | None = None) -> None:
        # tensorflow_datasets' rule: the number follows from the names.
        if (num_classes is None) == (names is None):
            raise ArgumentError(f"A ClassLabel needs num_classes or names. Received: {num_classes} and {names}.")
        # tensorflow_datasets names classes by their numbers, too.
        self._names = [str(i) for i in range(num_classes or 0)] if names is None else list(names)

    @property
    def shape(self) -> Shape:
        """Returns a scalar."""
        return ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """Returns int64."""
        return np.dtype(np.int64)

    @property
    def num_classes(self) -> int:
        """Returns how many classes there are."""
        return len(self._names)

    @property
    def names(self) -> list[str]:
        """Returns their names, in the order of their numbers."""
        return list(self._names)

    def int2str(self, number: int) -> str:
        """Returns the name of a class.

        Raises:
            ArgumentError: If there is no class of that number.
        """
        # Takes numpy's integers, and refuses 1.0.
        number = operator.index(number)
        if not 0 <= number < self.num_classes:
            raise ArgumentError(f"Classes have numbers from 0 to {self.num_classes - 1}. Received: {number}.")
        return self._names[number]

    def str2int(self, name: str) -> int:
        """Returns the number of a class.

        Raises:
            ArgumentError: If there is no class of that name.
        """
        if name not in self._names:
            raise ArgumentError(f"There is no class {name!r}; the classes are {', '.join(self._names)}.")
        return self._names.index(name)

    def __repr__(self) -> str:
        """Returns the text that tensorflow_datasets prints."""
        return f"ClassLabel(shape=(), dtype=int64, num_classes={self.num_classes})"


Feature = Tensor | Image | Text | Tokens | ClassLabel


class FeaturesDict(Mapping[str, Any]):
    """The features of an element, by name (tfds.features.FeaturesDict).

    Its values are typed `Any`: `info.features["label"].num_classes` needs no cast.

    Args:
        features: A description of each.
    """

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self._features = dict(features)

    def __getitem__(self, name: str) -> Any:
        """Returns a feature.

        Raises:
            ArgumentError: If there is none of that name.
        """
        # A KeyError as well, which `Mapping.get` and `in` of programs rely on.
        if name not in self._features:
            raise UnknownNameError(f"There is no feature {name!r}; the features are {', '.join(self._features)}.")
        return self._features[name]

    def __contains__(self, name: object) -> bool:
        """Returns whether there is a feature of that name."""
        return name in self._features

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names."""
        return iter(self._features)

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._features)

    def __repr__(self) -> str:
        """Returns one line for each feature."""
        lines = "".join(f"    {name!r}: {feature!r},\n" for name, feature in self._features.items())
        return f"FeaturesDict({{\n{lines}}})"

    @property
    def shape(self) -> dict[str, Shape]:
        """Returns the shape of each."""
        return {name: feature.shape for name, feature in self._features.items()}

    @property
    def dtype(self) -> dict[str, np.dtype[Any]]:
        """Returns the NumPy type of each."""
        return {name: feature.dtype for name, feature in self._features.items()}


@dataclass(frozen=True)
class SplitInfo:
    """A split, or a slice of one (tfds.core.SplitInfo).

    Attributes:
        name: "train", "test[:10%]".
        num_examples: How many examples it has.
    """

    name: str
    num_examples: int


class Splits(Mapping[str, SplitInfo]):
    """The splits of a data set by name; slices and sums are understood too (tfds.core.SplitDict).

    Args:
        sizes: How many examples each split has.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        # A copy: the description of a data set must not change with its loader.
        self._sizes = dict(sizes)

    def __getitem__(self, split: SplitLike) -> SplitInfo:
        """Returns the `SplitInfo` of "train", or of "train[:80%]".

        Raises:
            ArgumentError: If it is no split of this data set.
        """
        # By the arithmetic that reads the split, so that the count is the number of elements.
        return SplitInfo(str(split), sum(part.stop - part.start for part in resolve(split, self._sizes)))

    def __contains__(self, name: object) -> bool:
        """Returns whether there is a split of that name."""
        return name in self._sizes

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names."""
        return iter(self._sizes)

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._sizes)

    def __repr__(self) -> str:
        """Returns the number of examples of each."""
        return f"Splits({self._sizes})"

    @property
    def total_num_examples(self) -> int:
        """Returns how many examples the splits have together."""
        return sum(self._sizes.values())


@dataclass(frozen=True)
class DatasetInfo:
    """The description of a data set (tfds.core.DatasetInfo).

    Attributes:
        name: The name it is loaded by.
        description: What it is, in words.
        homepage: Where it comes from.
        features: What its elements hold.
        supervised_keys: The features that make up `(input, label)`.
        splits: Its splits; once it is loaded, as they are on this machine.
        source: In words, which data this is and where it was found; `None` until it is loaded.
    """

    name: str
    description: str
    homepage: str
    features: FeaturesDict
    supervised_keys: tuple[str, str]
    splits: Splits
    source: str | None = None
