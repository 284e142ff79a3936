"""tf.compat.v2: TensorFlow 2's names, which are those of `lockstep.compat.tensorflow`; also of its modules."""

from __future__ import annotations

import importlib as _importlib
import importlib.abc as _abc
import importlib.machinery as _machinery
import sys as _sys
from collections.abc import Sequence as _Sequence
from types import ModuleType as _ModuleType
from typing import Any as _Any

_ROOT = "lockstep.compat.tensorflow"

__all__: list[str] = []


class _Finder(_abc.MetaPathFinder, _abc.Loader):
    """Finds modules below this one: `compat.v2.keras.layers` is `keras.layers` itself."""

    def find_spec(
        self, fullname: str, path: _Sequence[str] | None, target: _ModuleType | None = None
    ) -> _machinery.ModuleSpec | None:
        if not fullname.startswith(f"{__name__}."):
            return None
        try:
            module = _importlib.import_module(_ROOT + fullname.removeprefix(__name__))
        except ModuleNotFoundError:
            return None
        return _machinery.ModuleSpec(fullname, self, is_package=hasattr(module, "__path__"))

    def create_module(self, spec: _machinery.ModuleSpec) -> _ModuleType:
        module = _importlib.import_module(_ROOT + spec.name.removeprefix(__name__))
        self._kept = module.__spec__
        return module

    def exec_module(self, module: _ModuleType) -> None:
        """Gives the module its own description back; it was executed under its own name."""
        module.__spec__ = self._kept


def __getattr__(name: str) -> _Any:
    try:
        return getattr(_importlib.import_module(_ROOT), name)
    except AttributeError as error:
        # The same advice, for the name that the program wrote.
        raise AttributeError(str(error).replace(f"tf.{name}", f"tf.compat.v2.{name}", 1)) from None


def __dir__() -> list[str]:
    return dir(_importlib.import_module(_ROOT))


if not any(isinstance(finder, _Finder) for finder in _sys.meta_path):
    _sys.meta_path.append(_Finder())
