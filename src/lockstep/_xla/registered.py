"""The lowering rule that jax has for a primitive on the CPU: a private part of jax, looked up in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.interpreters import mlir

_PLATFORM = "cpu"


def registered(primitive: Any) -> tuple[Callable[..., Any], bool] | None:
    """Returns the rule for `primitive` on the CPU and whether it is inlined; `None` if this jax does not tell."""
    specific = getattr(mlir, "_platform_specific_lowerings", None)
    common = getattr(mlir, "_lowerings", None)
    if specific is None or common is None:
        return None
    entry = specific.get(_PLATFORM, {}).get(primitive) or common.get(primitive)
    rule = getattr(entry, "rule", None)
    return (rule, bool(getattr(entry, "inline", True))) if callable(rule) else None
