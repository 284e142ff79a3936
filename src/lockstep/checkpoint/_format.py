"""The part `metadata.json` of a checkpoint's file: what the other parts are, and what belongs to them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np

_FORMAT = "lockstep checkpoint"
_VERSION = 1
# numpy's limit.
_MOST_AXES = 64


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint's file holds.

    Attributes:
        step: The step that was saved.
        time: When, in seconds since the epoch.
        layouts: The dtype and shape of each array.
        extra: What was kept beside the arrays.
    """

    step: int
    time: float
    layouts: Mapping[str, Layout]
    extra: dict[str, Any]


def encoded(manifest: Manifest) -> bytes:
    """Returns a manifest as JSON."""
    arrays = {key: [text_of(layout.dtype), layout.shape] for key, layout in manifest.layouts.items()}
    fields = {
        "format": _FORMAT,
        "version": _VERSION,
        "step": manifest.step,
        "time": manifest.time,
        "arrays": arrays,
        "extra": manifest.extra,
    }
    return json.dumps(fields).encode("ascii")


def decoded(data: bytes) -> Manifest:
    """Returns the manifest that `encoded` made JSON of.

    Raises:
        ValueError: If it is something else.
    """
    try:
        fields = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    fields = cast("dict[str, Any]", fields)
    if fields.get("format") != _FORMAT:
        raise ValueError("it does not describe a checkpoint")
    if fields.get("version") != _VERSION:
        raise ValueError(f"its version is {fields.get('version')!r:.40}, which is not known here; update lockstep")
    layouts = {key: _layout(key, value) for key, value in _object(fields, "arrays").items()}
    return Manifest(_count(fields.get("step")), _time(fields.get("time")), layouts, _object(fields, "extra"))


def _object(fields: dict[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"its {name} are not an object")
    return cast("dict[str, Any]", value)


def _layout(key: str, value: Any) -> Layout:
    try:
        dtype, shape = value
        sizes = tuple(_count(size) for size in shape)
        if len(sizes) > _MOST_AXES:
            raise ValueError(f"it has {len(sizes)} axes")
        return Layout(dtype_of(dtype), sizes)
    except (TypeError, ValueError) as error:
        raise ValueError(f"it does not say what variable {key!r:.80} is ({error})") from None


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.40} is not a count")
    return value


def _time(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"{value!r:.40} is not a time")
    return float(value)


# MERGED _members
# """The parts of a checkpoint's file: what an array's is called, and the header that numpy wants to see in it.
#
# A file is a zip archive of `.npy` files, stored without compression, which `numpy.load` reads too. The header is a
# function of dtype and shape, so that it is compared when reading, never evaluated.
# """


METADATA = "metadata.json"
# A zip archive counts the bytes of a name in 16 bits.
LONGEST = 65_535
_MAGIC = b"\x93NUMPY\x01\x00"
_ALIGNMENT = 64
# What a zip archive cannot hold or would cut off, and the sign of escapes itself.
_ESCAPED = re.compile("[%\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class Layout:
    """What an array is.

    Attributes:
        dtype: Its dtype.
        shape: Its shape.
    """

    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The size of its values."""
        return math.prod(self.shape) * self.dtype.itemsize

    def header(self) -> bytes:
        """Returns what comes before its values: NPY format 1.0."""
        fields = f"'descr': {stored_as(self.dtype)!r}, 'fortran_order': False, 'shape': {self.shape!r}, "
        text = f"{{{fields}}}".encode("ascii")
        length = len(text) + 1
        length += -(len(_MAGIC) + 2 + length) % _ALIGNMENT
        return _MAGIC + length.to_bytes(2, "little") + text.ljust(length - 1) + b"\n"


def member_of(key: str) -> str:
    """Returns the name of an array's part."""
    return _ESCAPED.sub(_escape, key) + ".npy"


def _escape(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


# MERGED _dtypes
# """Dtypes as text: numpy's by their codes, such as `<f4`, those of ml_dtypes by their names, such as `bfloat16`."""


DType = np.dtype[Any]

_CODE = re.compile(r"[<>|][biufcSUmM][0-9]{1,9}(\[[0-9A-Za-z]{1,20}\])?")
_KINDS = "biufcSUmM"


def _of_ml_dtypes() -> dict[str, DType]:
    found = [value for value in vars(ml_dtypes).values() if isinstance(value, type) and issubclass(value, np.generic)]
    return {dtype.name: dtype for dtype in map(np.dtype, found)}


_EXTRA = _of_ml_dtypes()


def text_of(dtype: DType) -> str | None:
    """Returns the text of a dtype, or `None` if values of it are not kept in checkpoints."""
    if dtype.name in _EXTRA:
        return dtype.name
    code = dtype.str
    return code if dtype.kind in _KINDS and dtype.itemsize and _CODE.fullmatch(code) else None


def dtype_of(text: Any) -> DType:
    """Returns the dtype of a text.

    Raises:
        ValueError: If it is not the text of a dtype that is kept in checkpoints.
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r:.40} is not a dtype")
    if text in _EXTRA:
        return _EXTRA[text]
    try:
        dtype = np.dtype(text) if _CODE.fullmatch(text) else None
    except TypeError:
        dtype = None
    if dtype is None or text_of(dtype) != text:
        raise ValueError(f"{text!r:.40} is not a dtype that is kept in checkpoints here")
    return dtype


def stored_as(dtype: DType) -> str:
    """Returns the code of the dtype that numpy's own reader sees: of ml_dtypes' it sees the bits."""
    return f"<u{dtype.itemsize}" if dtype.name in _EXTRA else dtype.str
