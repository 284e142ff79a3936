"""Finds map functions with side effects before they are traced.

JAX traces a function once and computes with what it recorded. A function that counts, collects, prints or draws random
numbers must instead be called for every element. Its code shows most of that: it stores to a name outside, calls a
method that changes something outside, or uses a module that is never the same twice. What the code hides (a random
number in a library), tracing twice finds.
"""

from __future__ import annotations

import builtins
import dis
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

_CHANGES = frozenset(
    "append extend insert add update pop popitem remove discard clear setdefault write writelines put put_nowait send "
    "appendleft popleft sort reverse assign assign_add assign_sub assign_moving_average inc increment log info warning "
    "debug error".split()
)
_FUNCTIONS = frozenset(id(getattr(builtins, n)) for n in ("print", "open", "input", "next", "setattr", "delattr"))
_UNSTEADY = ("random", "numpy.random", "time", "datetime", "os", "subprocess", "socket", "secrets", "uuid", "logging")
_STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR"})
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME", "LOAD_CLASSDEREF"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_MISSING = object()
_DEPTH = 4


def has_side_effects(function: Callable[..., Any]) -> bool:
    """Whether the code of `function`, or of functions of the user that it calls, shows side effects."""
    return _affects(function, _DEPTH, set())


def _affects(function: Any, depth: int, seen: set[int]) -> bool:
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, functools.partial) else function.__wrapped__
    if isinstance(function, types.MethodType):
        function = function.__func__
    if not isinstance(function, types.FunctionType):
        called = getattr(type(function), "__call__", None)
        if not isinstance(called, types.FunctionType) or _is_library(called):
            return False
        function = called
    if id(function) in seen or depth == 0 or _is_library(function):
        return False
    seen.add(id(function))
    names = _Names(function)
    return any(_code_affects(code, names, depth, seen) for code in _codes(function.__code__))


class _Names:
    """What the free and global names of a function stand for."""

    def __init__(self, function: types.FunctionType) -> None:
        self.free: dict[str, Any] = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                self.free[name] = cell.cell_contents
            except ValueError:  # Not assigned yet.
                self.free[name] = _MISSING
        self._globals = function.__globals__

    def value(self, name: str) -> Any:
        if name in self.free:
            return self.free[name]
        return self._globals.get(name, getattr(builtins, name, _MISSING))


def _code_affects(code: types.CodeType, names: _Names, depth: int, seen: set[int]) -> bool:
    instructions = list(dis.get_instructions(code))
    for i, step in enumerate(instructions):
        if step.opname in _STORES or (step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in names.free):
            return True
        if step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR") and _stores_outside(instructions[:i], names):
            return True
        if step.opname in _LOADS and _use_affects(step.argval, instructions[i + 1 :], names, depth, seen):
            return True
    return False


def _use_affects(name: str, following: list[dis.Instruction], names: _Names, depth: int, seen: set[int]) -> bool:
    """Whether what a name stands for, or its attribute that is used here, changes something."""
    value = names.value(name)
    if value is _MISSING:
        return False
    owner = value
    for step in following:
        if step.opname not in _ATTRIBUTES:
            break
        owner, attribute = value, str(step.argval)
        if not isinstance(owner, types.ModuleType) and attribute in _CHANGES:
            return True
        value = getattr(owner, attribute, _MISSING)
        if value is _MISSING:
            return False
    return _is_unsteady(value) or id(value) in _FUNCTIONS or (callable(value) and _affects(value, depth - 1, seen))


def _stores_outside(before: list[dis.Instruction], names: _Names) -> bool:
    """Whether an item is stored in something that the function did not make or get: `outside[key] = value`."""
    loads = [s for s in before[-4:] if s.opname in _LOADS or s.opname.startswith("LOAD_FAST")]
    return any(s.opname in _LOADS and isinstance(names.value(s.argval), (list, dict, set)) for s in loads)


def _is_unsteady(value: Any) -> bool:
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    kind = type(value)
    owner = getattr(value, "__self__", None)
    homes = [module, kind.__module__ if kind.__module__ != "builtins" else None]
    homes += [type(owner).__module__] if owner is not None and not isinstance(owner, types.ModuleType) else []
    return any(isinstance(h, str) and any(h == u or h.startswith(u + ".") for u in _UNSTEADY) for h in homes)


def _is_library(function: types.FunctionType) -> bool:
    """Installed packages and Python's own modules keep their effects to themselves, or tracing finds them."""
    module = sys.modules.get(function.__module__ or "")
    root = (function.__module__ or "").partition(".")[0]
    path = getattr(module, "__file__", None) or ""
    return root in ("lockstep", "jax", "keras", "numpy") or "site-packages" in path or root in sys.stdlib_module_names


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code, and that of the functions it defines."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
