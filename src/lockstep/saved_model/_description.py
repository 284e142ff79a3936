"""Descriptions of exports: signatures and files, and their form as JSON, in which nothing is trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import jax.numpy as jnp

from lockstep._types import ArrayLike
from lockstep.saved_model import _names as names

TEXT = "string"

Shape = tuple[int | None, ...]
Json = Mapping[str, Any]
_T = TypeVar("_T")
# The only paths that are ever opened: no "..", no absolute ones, no files of assets.
_FILE = re.compile(rf"{re.escape(names.VARIABLES_FILE)}|{names.PROGRAMS_DIRECTORY}/[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class TensorInfo:
    """Shape and type of an input or output of a signature.

    Attributes:
        shape: Sizes; `None` where any number will do, as in the first place for the number of examples.
        dtype: The name of its type, such as "float32"; "string" for text.
    """

    shape: Shape
    dtype: str

    @property
    def is_text(self) -> bool:
        """True for text."""
        return self.dtype == TEXT

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join('?' if size is None else str(size) for size in self.shape)}]"


@dataclass(frozen=True)
class OutputInfo:
    """Origin of an output, and its shape and type.

    Attributes:
        info: Shape and type of what callers get.
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
    """Integers of type `dtype` for the text `source`, which the host computes ahead of a program."""

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
        """Returns whether it is for so many examples; `None` if the inputs have no number of examples."""
        return count is None or (self.least <= count and (self.most is None or count <= self.most))


@dataclass(frozen=True)
class SignatureInfo:
    """Description of a signature.

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
    """Bytes of a file of the directory, and their digest in hexadecimal."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Description:
    """Description of an export directory; `files` are those that calls need, by path in the directory."""

    signatures: Mapping[str, SignatureInfo]
    variables: Mapping[str, TensorInfo]
    files: Mapping[str, FileInfo]
    made_by: Mapping[str, str]


class InvalidDescription(Exception):
    """A description is not as this version writes them."""


def encode(description: Description) -> bytes:
    """Returns a description as JSON."""
    document = {
        "format": names.FORMAT,
        "version": names.VERSION,
        "made_by": dict(description.made_by),
        "signatures": {name: _signature_json(s) for name, s in description.signatures.items()},
        "variables": {name: _tensor_json(v) for name, v in description.variables.items()},
        "files": {name: {"size": f.size, "sha256": f.sha256} for name, f in description.files.items()},
    }
    return json.dumps(document, indent=1).encode()


def decode(data: bytes) -> Description:
    """Returns the description that some JSON holds; raises `InvalidDescription` if it holds none."""
    try:
        document = _Place(json.loads(data), "the document")
    # json.loads raises RecursionError for brackets without end.
    except (ValueError, RecursionError) as error:
        raise InvalidDescription(f"it is no JSON: {error}") from None
    _check_version(document)
    return Description(
        signatures=document.get("signatures").mapping(_signature),
        variables=document.get("variables").mapping(_variable),
        files=document.get("files").mapping(_file),
        made_by=document.get("made_by").mapping(lambda place: place.a(str)),
    )


def check_file(name: str) -> None:
    """Raises `InvalidDescription` unless a path is that of a file of an export."""
    if not _FILE.fullmatch(name):
        raise InvalidDescription(f"it names {name!r:.60}, which is no file of an export")


class _Place:
    """A value of a JSON document, and where it is."""

    def __init__(self, value: ArrayLike, where: str) -> None:
        self.value = value
        self.where = where

    def get(self, key: str) -> _Place:
        mapping = self.a(dict)
        if key not in mapping:
            raise InvalidDescription(f"{self.where} lacks {key!r}")
        return _Place(mapping[key], f"{self.where}/{key}")

    def a(self, kind: type[_T]) -> _T:
        # No isinstance: True is an int in Python, and no number in JSON.
        if type(self.value) is not kind:
            raise InvalidDescription(f"{self.where} is {self.value!r:.60}, which is no {kind.__name__}")
        return self.value

    def items(self, read: Callable[[_Place], _T]) -> tuple[_T, ...]:
        return tuple(read(_Place(value, f"{self.where}/{i}")) for i, value in enumerate(self.a(list)))

    def mapping(self, read: Callable[[_Place], _T]) -> dict[str, _T]:
        return {key: read(_Place(value, f"{self.where}/{key}")) for key, value in self.a(dict).items()}

    def maybe(self, read: Callable[[_Place], _T]) -> _T | None:
        return None if self.value is None else read(self)


def _check_version(document: _Place) -> None:
    if document.get("format").value != names.FORMAT:
        raise InvalidDescription(f"its format is {document.get('format').value!r:.60}, not {names.FORMAT!r}")
    # Equal, and not at most: an older lockstep must not guess what a newer one means.
    version = document.get("version").a(int)
    if version != names.VERSION:
        made_by = document.get("made_by").value
        raise InvalidDescription(
            f"it is of version {version}, and this lockstep reads version {names.VERSION}; it was made by {made_by}"
        )


def _tensor_json(info: TensorInfo) -> dict[str, Any]:
    return {"shape": list(info.shape), "dtype": info.dtype}


def _tensor(place: _Place) -> TensorInfo:
    return TensorInfo(place.get("shape").items(lambda size: size.maybe(_size)), _dtype(place.get("dtype")))


def _variable(place: _Place) -> TensorInfo:
    info = _tensor(place)
    if info.is_text or None in info.shape:
        raise InvalidDescription(
            f"{place.where}/dtype is {info.dtype!r} and its shape {list(info.shape)}: no array of numbers"
        )
    return info


def _size(place: _Place) -> int:
    if place.a(int) < 0:
        raise InvalidDescription(f"{place.where} is negative")
    return place.value


def _dtype(place: _Place) -> str:
    try:
        return place.a(str) if place.value == TEXT else jnp.dtype(place.a(str)).name
    except TypeError:
        raise InvalidDescription(f"{place.where} is {place.value!r:.60}, which is no dtype") from None


def _file(place: _Place) -> FileInfo:
    return FileInfo(_size(place.get("size")), place.get("sha256").a(str))


def _signature_json(signature: SignatureInfo) -> dict[str, Any]:
    return {
        "tags": list(signature.tags),
        "method": signature.method,
        "inputs": {name: _tensor_json(info) for name, info in signature.inputs.items()},
        "outputs": {name: _output_json(info) for name, info in signature.outputs.items()},
        "parse": {name: dict(spec) for name, spec in signature.parse.items()},
        "lookups": [{"source": k.source, "function": k.function, "dtype": k.dtype} for k in signature.lookups],
        "programs": [_program_json(program) for program in signature.programs],
        "tied": signature.tied,
        "x64": signature.x64,
    }


def _signature(place: _Place) -> SignatureInfo:
    return SignatureInfo(
        tags=place.get("tags").items(lambda tag: tag.a(str)),
        method=place.get("method").a(str),
        inputs=place.get("inputs").mapping(_tensor),
        outputs=place.get("outputs").mapping(_output),
        parse=place.get("parse").mapping(lambda spec: cast("Mapping[str, Any]", spec.a(dict))),
        lookups=place.get("lookups").items(_lookup),
        programs=place.get("programs").items(_program),
        tied=place.get("tied").a(bool),
        x64=place.get("x64").a(bool),
    )


def _output_json(output: OutputInfo) -> dict[str, Any]:
    words = output.vocabulary
    return {
        **_tensor_json(output.info),
        "batched": output.batched,
        # Bytes that are no UTF-8 become lone surrogates, which JSON keeps as escapes.
        "vocabulary": None if words is None else [word.decode("utf-8", "surrogateescape") for word in words],
        "source": output.source,
    }


def _output(place: _Place) -> OutputInfo:
    return OutputInfo(
        _tensor(place),
        place.get("batched").a(bool),
        place.get("vocabulary").maybe(lambda words: words.items(_word)),
        place.get("source").maybe(lambda source: source.a(str)),
    )


def _word(place: _Place) -> bytes:
    try:
        return place.a(str).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # A lone surrogate that stands for no byte.
        raise InvalidDescription(f"{place.where} is no text") from None


def _lookup(place: _Place) -> Lookup:
    return Lookup(place.get("source").a(str), place.get("function").a(dict), _dtype(place.get("dtype")))


def _program_json(program: ProgramInfo) -> dict[str, Any]:
    return {
        "file": program.file,
        "platforms": list(program.platforms),
        "left_out": dict(program.left_out),
        "least": program.least,
        "most": program.most,
    }


def _program(place: _Place) -> ProgramInfo:
    return ProgramInfo(
        place.get("file").a(str),
        place.get("platforms").items(lambda platform: platform.a(str)),
        place.get("left_out").mapping(lambda reason: reason.a(str)),
        _size(place.get("least")),
        place.get("most").maybe(_size),
    )
