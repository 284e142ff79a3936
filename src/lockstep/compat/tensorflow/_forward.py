"""Module attributes that are forwarded to modules of lockstep."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from lockstep.compat.tensorflow import _missing


def names_of(*homes: str) -> list[str]:
    """Returns the public names of modules of lockstep, without those that more than one has twice."""
    modules = [importlib.import_module(home) for home in homes]
    return list(dict.fromkeys(name for module in modules for name in module.__all__ if _is_forwarded(module, name)))


def getter(module: str, homes: Iterable[str], only: Iterable[str] | None = None) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a module whose names are those of modules of lockstep.

    Args:
        module: The module's `__name__`.
        homes: Where to look, one after another.
        only: Which names; default: all public ones.
    """
    other = _missing.getter(module)
    allowed = None if only is None else frozenset(only)

    def __getattr__(name: str) -> Any:
        # Imported when a name is used: programs without Estimators need none of lockstep.estimator.
        for home in homes if allowed is None or name in allowed else ():
            home_module = importlib.import_module(home)
            if name in home_module.__all__ and _is_forwarded(home_module, name):
                return getattr(home_module, name)
        return other(name)

    return __getattr__


def _is_forwarded(module: ModuleType, name: str) -> bool:
    # Submodules stand elsewhere in TensorFlow: tf.metrics, not tf.estimator.metrics.
    return not isinstance(getattr(module, name), ModuleType)
