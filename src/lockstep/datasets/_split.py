"""The names and the arithmetic of splits: "train", "train[:80%]", "train[100:200]+test".

The language is that of tensorflow_datasets: percentages are rounded to the nearest example, so that adjoining slices
neither share an example nor lose one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from lockstep.errors import ArgumentError, UnsupportedError

_ALL = "all"
# The grammar of tensorflow_datasets' reader of splits, without its shards of files.
_PART = re.compile(r"(?P<split>[\w-]+)(?:\[(?P<start>[^\[\]:]*):(?P<stop>[^\[\]:]*)\])?")
_BOUND = re.compile(r"(?P<number>-?\d[\d_]*)(?P<unit>%|shard)?")
_LANGUAGE = (
    'A split is a name, "train", or a slice of it, "train[100:200]", "train[-10%:]", in examples or in whole percent; '
    '"+" joins several.'
)


class UnknownNameError(ArgumentError, KeyError):
    """A name that does not exist; also a `KeyError`, which `Mapping.get` catches."""

    # KeyError's own __str__ is the repr of its argument: quotes around a sentence.
    def __str__(self) -> str:
        """Returns the message, which `KeyError` would put in quotes."""
        return ValueError.__str__(self)


class Split(str):
    """The name of a split, a `str` (tfds.Split).

    Attributes:
        TRAIN: "train".
        TEST: "test".
        VALIDATION: "validation".
        ALL: "all", the splits of a data set one after another.
    """

    TRAIN: ClassVar[Split]
    TEST: ClassVar[Split]
    VALIDATION: ClassVar[Split]
    ALL: ClassVar[Split]


Split.TRAIN = Split("train")
Split.TEST = Split("test")
Split.VALIDATION = Split("validation")
Split.ALL = Split(_ALL)


@dataclass(frozen=True)
class Part:
    """Examples `start` to `stop` (not included) of one split."""

    split: str
    start: int
    stop: int


@dataclass(frozen=True)
class ReadInstruction:
    """A slice of one split, as an object (tfds.core.ReadInstruction); `+` joins several.

    Args:
        split_name: Which split.
        from_: The first example, or a percentage; negative numbers count from the end. Defaults to the beginning.
        to: Where to stop, in the same way, not included. Defaults to the end.
        unit: "abs", examples (the default), or "%".
        rounding: How percentages become examples: "closest" (the default), or "pct1_dropremainder", which makes all
            slices of one percent equally large and leaves out what remains.

    Raises:
        ArgumentError: If unit, rounding or bounds are none of these.
    """

    split_name: str
    from_: float | None = None
    to: float | None = None
    unit: str = "abs"
    rounding: str = "closest"

    def __post_init__(self) -> None:
        """Checks unit, rounding and bounds."""
        choices = {"unit": ("abs", "%"), "rounding": ("closest", "pct1_dropremainder")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                received = getattr(self, name)
                raise ArgumentError(f"{name} must be one of {', '.join(map(repr, allowed))}. Received: {received!r}.")
        for bound in (self.from_, self.to):
            if bound is not None and self.unit == "%" and abs(bound) > 100:
                raise ArgumentError(f"Percentages must be from -100 to 100. Received: {bound:g}%. {_LANGUAGE}")
            if bound is not None and self.unit == "abs" and bound != int(bound):
                raise ArgumentError(f"Examples are counted in whole numbers. Received: {bound}. {_LANGUAGE}")

    def __add__(self, other: object) -> Sum:
        """Joins two splits."""
        # Through Sum, so that texts and objects mix: "train" + ReadInstruction("test").
        return Sum((self,)) + other

    def __radd__(self, other: object) -> Sum:
        """Joins two splits."""
        return _sum(other) + self

    @classmethod
    def from_spec(cls, spec: str) -> Sum:
        """Parses a text such as "train[:80%]+test"."""
        return _parse(spec)


@dataclass(frozen=True)
class Sum:
    """Several slices, one after another."""

    instructions: tuple[ReadInstruction, ...]

    def __add__(self, other: object) -> Sum:
        """Joins two splits."""
        return Sum(self.instructions + _sum(other).instructions)

    def __radd__(self, other: object) -> Sum:
        """Joins two splits."""
        return _sum(other) + self


SplitLike: TypeAlias = str | ReadInstruction | Sum


def resolve(split: SplitLike, sizes: Mapping[str, int]) -> list[Part]:
    """Returns which examples a split means.

    Args:
        split: A text, or what a text stands for.
        sizes: How many examples each split of the data set has.

    Raises:
        ArgumentError: If it is no split of this data set.
    """
    parts: list[Part] = []
    for instruction in _sum(split).instructions:
        for name in sizes if instruction.split_name == _ALL else [instruction.split_name]:
            if name not in sizes:
                raise UnknownNameError(
                    f"A split is one that the data set has. Received: {str(split)!r}, which names {name!r}. Take one "
                    f"of {', '.join(map(repr, sizes))}, or 'all'."
                )
            size = sizes[name]
            start = 0 if instruction.from_ is None else _position(instruction.from_, instruction, size)
            stop = size if instruction.to is None else _position(instruction.to, instruction, size)
            # A slice that ends before it begins is empty, as in Python.
            parts.append(Part(name, start, max(start, stop)))
    return parts


def _sum(split: object) -> Sum:
    if isinstance(split, Sum):
        return split
    if isinstance(split, ReadInstruction):
        return Sum((split,))
    if isinstance(split, str):
        return _parse(split)
    raise ArgumentError(f"{_LANGUAGE} Received: {split!r}. Pass a text, a Split or a ReadInstruction.")


def _parse(spec: str) -> Sum:
    return Sum(tuple(_parse_one(part.strip(), spec) for part in str(spec).split("+")))


def _parse_one(text: str, spec: str) -> ReadInstruction:
    match = _PART.fullmatch(text)
    if match is None:
        raise ArgumentError(f"{_LANGUAGE} Received: {spec!r}; this part is no such thing: {text!r}.")
    if match["start"] is None:
        return ReadInstruction(match["split"])
    # Spaces are allowed, as in "train[ :10%]".
    (start, start_unit), (stop, stop_unit) = (_parse_bound(match[side].strip(), spec) for side in ("start", "stop"))
    if match["split"] == _ALL:
        raise UnsupportedError(
            f'"{_ALL}" cannot be sliced. Received: {spec!r}. Slice each split: "train[:10%]+test[:10%]".'
        )
    # A plain 0 is the same in each unit: train[0:10%] is no mixture.
    units = {unit for number, unit in ((start, start_unit), (stop, stop_unit)) if number or unit == "%"}
    if len(units) > 1:
        raise ArgumentError(f"Both bounds of a slice have the same unit, examples or percent. Received: {spec!r}.")
    return ReadInstruction(match["split"], start, stop, "%" if "%" in units else "abs")


def _parse_bound(text: str, spec: str) -> tuple[int | None, str | None]:
    """Returns the number and the unit of a bound, `None` where it is left out."""
    if not text:
        return None, None
    match = _BOUND.fullmatch(text)
    if match is None:
        raise ArgumentError(f"{_LANGUAGE} Received: {spec!r}; this is no bound of a slice: {text!r}.")
    if match["unit"] == "shard":
        raise UnsupportedError(
            f"Slices are in examples or percent; the data sets of lockstep have no shards. Received: {spec!r}. Write "
            'percentages, "train[:50%]".'
        )
    return int(match["number"]), match["unit"] or "abs"


def _position(bound: float, instruction: ReadInstruction, size: int) -> int:
    if instruction.unit == "abs":
        position = int(bound)
    elif instruction.rounding == "closest":
        # Python's round: a half to the even number, as in tensorflow_datasets.
        position = round(bound * size / 100)
    elif size < 100:
        raise ArgumentError(
            f"rounding='pct1_dropremainder' leaves nothing of a split with fewer than 100 examples. Received: {size} "
            "examples. Use rounding='closest'."
        )
    else:
        # Each percent has size // 100 examples; the remainder belongs to none.
        position = int(bound * (size // 100))
    if abs(position) > size:
        raise ArgumentError(
            f"A slice lies within its split. Received: a bound of {position} in {instruction.split_name!r}, which has "
            f"{size} examples. Write a smaller number or a percentage."
        )
    # From the end if negative, as in Python's slices.
    return position + size if position < 0 else position
