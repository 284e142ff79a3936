"""Names of other libraries, bound to lockstep, Keras, JAX or numpy, so that a program changes only its imports.

* `lockstep.compat.tensorflow`: what training programs written for TensorFlow 2 use.
* `lockstep.compat.tensorflow_datasets`: `load` and what belongs to it.
"""

from __future__ import annotations

import importlib as _importlib
from types import ModuleType as _ModuleType

__all__ = ["tensorflow", "tensorflow_datasets"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> _ModuleType:
    if name in __all__:
        return _importlib.import_module(f"lockstep.compat.{name}")
    raise AttributeError(f"module 'lockstep.compat' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
