"""What an export directory says about itself: its signatures, and how its files are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TEXT = "string"

Shape = tuple[int | None, ...]
Json = Mapping[str, Any]


@dataclass(frozen=True)
class TensorInfo:
    """What an input or output of a signature looks like.

    Attributes:
        shape: Sizes; `None` where any number will do, as in the first place for the number of examples.
        dtype: The name of its type, such as "float32"; "string" for text.
    """

    shape: Shape
    dtype: str

    @property
    def is_text(self) -> bool:
        """Whether it holds text."""
        return self.dtype == TEXT

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join('?' if size is None else str(size) for size in self.shape)}]"


@dataclass(frozen=True)
class OutputInfo:
    """Where an output comes from, besides what it looks like.

    Attributes:
        info: What callers get.
        batched: Whether its first size is the number of examples.
        vocabulary: For text: the words that the program's integers stand for.
        source: For text that is an input's: which one's; the program does not see it.
    """

    info: TensorInfo
    batched: bool = False
    vocabulary: tuple[bytes, ...] | None = None
    source: str | None = None


@dataclass(frozen=True)
class Lookup:
    """Integers for a text, which the host computes ahead of a program.

    Attributes:
        source: Of which text.
        function: What computes them, as JSON.
        dtype: Of the integers.
    """

    source: str
    function: Json
    dtype: str


@dataclass(frozen=True)
class ProgramInfo:
    """A compiled form of a signature.

    Attributes:
        file: Where it is, in the directory.
        platforms: For which kinds of devices.
        left_out: For which it could not be made, and why.
        least: The fewest examples that it takes.
        most: The most, or `None`.
    """

    file: str
    platforms: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    least: int = 1
    most: int | None = None

    def takes(self, count: int | None) -> bool:
        """Whether it is for so many examples; `None` if the inputs have no number of examples."""
        return count is None or (self.least <= count and (self.most is None or count <= self.most))


@dataclass(frozen=True)
class SignatureInfo:
    """One way to call a model.

    Attributes:
        tags: Of what it is a part: "serve", "train" or "eval".
        method: TensorFlow's name for its kind.
        inputs: What callers give, by name.
        outputs: What they get, by name.
        parse: Of the inputs that are serialised examples: what examples hold, as JSON.
        lookups: What the host computes of text.
        programs: Its compiled forms.
        tied: Whether open sizes at the same place of different inputs are equal.
        x64: Whether the programs compute with 64 bits.
    """

    tags: tuple[str, ...]
    method: str
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, OutputInfo]
    parse: Mapping[str, Json]
    lookups: tuple[Lookup, ...]
    programs: tuple[ProgramInfo, ...]
    tied: bool
    x64: bool


@dataclass(frozen=True)
class FileInfo:
    """A file of the directory.

    Attributes:
        size: Its bytes.
        sha256: Their digest, in hexadecimal.
    """

    size: int
    sha256: str


@dataclass(frozen=True)
class Description:
    """All that an export directory says.

    Attributes:
        signatures: By name.
        variables: The variables, by name.
        files: The files that calls need, by path in the directory.
        made_by: Versions of what wrote it.
    """

    signatures: Mapping[str, SignatureInfo]
    variables: Mapping[str, TensorInfo]
    files: Mapping[str, FileInfo]
    made_by: Mapping[str, str]
