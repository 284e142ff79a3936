"""tensorflow.python: what programs import from TensorFlow's internal modules, where it is public elsewhere.

`from lockstep.compat.tensorflow.python.framework import ops` and the like give modules whose names are looked up in
compat's public ones: `ops.convert_to_tensor` is `tf.convert_to_tensor`. What is internal to TensorFlow is an
AttributeError that says so.
"""

from __future__ import annotations

import importlib as _importlib
import importlib.abc as _abc
import importlib.machinery as _machinery
import sys as _sys
from collections.abc import Sequence as _Sequence
from types import ModuleType as _ModuleType
from typing import Any as _Any

from lockstep._messages.reading import pointer as _pointer
from lockstep.compat.tensorflow.python import _table

__all__: list[str] = []


class _Internal(_ModuleType):
    """Module of TensorFlow's internals; its attributes are public names of compat."""

    def __getattr__(self, name: str) -> _Any:
        return _look_up(self.__name__, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_table.names(_internal_name(self.__name__))]


class _Finder(_abc.MetaPathFinder, _abc.Loader):
    """Finds the modules of TensorFlow that hold something public, below this package."""

    def find_spec(
        self, fullname: str, path: _Sequence[str] | None, target: _ModuleType | None = None
    ) -> _machinery.ModuleSpec | None:
        if not fullname.startswith(f"{__name__}.") or fullname.startswith(f"{__name__}._"):
            return None
        if _is_module(_internal_name(fullname)) and fullname.rpartition(".")[2].islower():
            return _machinery.ModuleSpec(fullname, self, is_package=True)
        module, _, name = fullname.rpartition(".")
        # Python drops the message of an AttributeError in `from module import name`, and comes here for a module.
        try:
            _look_up(module, name)
        except AttributeError as error:
            raise ImportError("\n".join((str(error), *getattr(error, "__notes__", ())))) from None
        return None

    def create_module(self, spec: _machinery.ModuleSpec) -> _ModuleType:
        return _Internal(spec.name, f"{_internal_name(spec.name)}'s public names.")

    def exec_module(self, module: _ModuleType) -> None:
        """Does nothing: a module's names are looked up when they are used."""


def _internal_name(module: str) -> str:
    return f"tensorflow.python{module.removeprefix(__name__)}"


def _is_module(internal: str) -> bool:
    # Its Keras has other files than tf.keras: any of them, as far as tf.keras has the names.
    return internal in _table.modules() or internal.startswith("tensorflow.python.keras.")


def _look_up(module: str, name: str) -> _Any:
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    internal = _internal_name(module)
    # First: a module may have the name of a function in it.
    if f"{internal}.{name}" in _table.modules() and not internal.startswith("tensorflow.python.keras"):
        return _importlib.import_module(f"{module}.{name}")
    missing: AttributeError | None = None
    for public in _table.public_names(internal, name):
        try:
            return _table.find(public)
        except AttributeError as error:
            missing = missing or error
    # Any file of its Keras, which are not in the table; modules are written in small letters.
    if internal.startswith("tensorflow.python.keras") and name.islower():
        return _importlib.import_module(f"{module}.{name}")
    if missing is not None:
        raise missing
    error = AttributeError(
        f"tf{internal.removeprefix('tensorflow')}.{name} is internal to TensorFlow, which has no public name for it. "
        "Use a public name of TensorFlow that docs/tensorflow_names.md lists, Keras, or JAX."
    )
    error.add_note(_pointer("tensorflow-names"))
    raise error


def __getattr__(name: str) -> _Any:
    return _look_up(__name__, name)


if not any(isinstance(finder, _Finder) for finder in _sys.meta_path):
    _sys.meta_path.append(_Finder())
