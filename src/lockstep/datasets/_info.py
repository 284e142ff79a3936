"""Descriptions of data sets and their splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lockstep.datasets._features import FeaturesDict
from lockstep.datasets._split import SplitLike, resolve


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
