"""What JAX is tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.core
import jax.extend.core


def is_traced(value: Any) -> bool:
    """Whether `value` is known only when what is being traced runs."""
    return isinstance(value, jax.core.Tracer)


def name_of(function: Any) -> str:
    """Returns what a message calls a function."""
    return str(getattr(function, "__qualname__", type(function).__name__)).replace("<locals>.", "")


def current_trace() -> Any:
    """Returns what is equal for all that is traced into the same jaxpr; `None` where jax does not tell."""
    found: Callable[[], Any] | None = getattr(jax.extend.core, "get_opaque_trace_state", None)
    return found() if found else None
