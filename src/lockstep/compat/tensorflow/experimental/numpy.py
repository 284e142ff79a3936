"""tf.experimental.numpy: jax.numpy itself, with all its names."""

from __future__ import annotations

from typing import Any as _Any

import jax.numpy as _numpy

from lockstep.compat.tensorflow._missing import getter as _getter

__all__: list[str] = []

_other = _getter(__name__)


def __getattr__(name: str) -> _Any:
    # Each time: JAX adds names with its versions.
    return getattr(_numpy, name) if not name.startswith("__") and hasattr(_numpy, name) else _other(name)


def __dir__() -> list[str]:
    return dir(_numpy)
