"""The part `metadata.json` of a checkpoint's file: what the other parts are, and what belongs to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from lockstep.checkpoint._dtypes import dtype_of, text_of
from lockstep.checkpoint._members import Layout

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
