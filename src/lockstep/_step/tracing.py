"""Whether a value is known, or stands for one while JAX traces."""

from __future__ import annotations

from typing import Any

import jax.core


def is_traced(value: Any) -> bool:
    """Whether `value` is known only when what is being traced runs."""
    return isinstance(value, jax.core.Tracer)
