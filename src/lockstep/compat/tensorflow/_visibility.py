"""Which modules see TensorFlow's attributes of other libraries' classes: those that import this package.

As extension methods in languages that have those: in the code of other libraries, and of JAX and Keras themselves, an
array or a variable is what it was.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

PACKAGE = "lockstep.compat"
# Their code sees classes as they are, whatever this package has put into their modules.
_LIBRARIES = {*sys.stdlib_module_names, "jax", "jaxlib", "keras", "lockstep", "ml_dtypes", "numpy", "optree", "tree"}
_importers: set[str] = set()
# What was found by the address of a module's names, and for which state of them: name, how many, what `tf` was.
_found: dict[int, tuple[str, int, int, bool]] = {}
# Names of libraries' modules by address, for JAX and Keras ask for shapes all the time; kept, so that it stays theirs.
libraries: dict[int, dict[str, Any]] = {}
# Whether code may have the package in names of its own, by its address; each is kept, too.
_has_own_import: dict[int, tuple[CodeType, bool]] = {}


def note_import(frame: FrameType) -> None:
    """Remembers that a module has imported a name of Keras through this package.

    `from lockstep.compat.tensorflow.keras.layers import Dense` leaves Keras' own class in the module, which does not
    tell where it has come from.
    """
    note_importer(frame.f_globals.get("__name__", ""))


def note_importer(module: str) -> None:
    """Remembers that the module of this name sees TensorFlow's attributes."""
    _importers.add(module)


def imports_compat(frame: FrameType) -> bool:
    """Returns whether the module whose code a frame runs, or this function of it, imports `lockstep.compat`."""
    names = frame.f_globals
    module = names.get("__name__", "")
    if module in _importers:
        return True
    # A scan takes 10 to 30 microseconds, so what it found is kept until the module has other names.
    key, state = id(names), (module, len(names), id(names.get("tf")))
    found = _found.get(key)
    if found is None or found[:3] != state:
        # As a list: a thread may add names meanwhile.
        found = _found[key] = (*state, any(_home(value).startswith(PACKAGE) for value in list(names.values())))
    if found[3]:
        return True
    code = frame.f_code
    known = _has_own_import.get(id(code))
    if known is None:
        may_have = bool(code.co_freevars) or any(name.startswith(PACKAGE) for name in code.co_names)
        known = _has_own_import[id(code)] = (code, may_have)
    # Asking for f_locals copies them. Of a function's own names modules alone count: JAX's frames hold the functions of
    # this package that they trace.
    if not known[1]:
        return False
    return any(isinstance(v, ModuleType) and v.__name__.startswith(PACKAGE) for v in frame.f_locals.values())


def sees_tensorflow(frame: FrameType) -> bool:
    """Returns whether the code of a frame is a program's that imports this package, and not a library's."""
    names = frame.f_globals
    if id(names) in libraries:
        return False
    if names.get("__name__", "").partition(".")[0] in _LIBRARIES:
        libraries[id(names)] = names
        return False
    return imports_compat(frame)


def _home(value: object) -> str:
    """Returns the module that a value is, or comes from."""
    if isinstance(value, ModuleType):
        return value.__name__
    return str((value if isinstance(value, (type, FunctionType)) else type(value)).__module__)
