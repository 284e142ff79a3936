"""Takes a module's place until something in it is used.

A module that is imported only to ask whether a value is of one of its types need not be there for the answer: while
nobody has imported it, no value is.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Contents:
    """What is known of a module without importing it; whatever else is asked for imports it.

    Attributes:
        types: Names of classes.
        parts: Names of modules in it.
        decorators: Names of functions that take a function and return one.
    """

    types: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    decorators: tuple[str, ...] = ()


class StandIn(ModuleType):
    """A module that is imported when an attribute of it is needed.

    Args:
        name: Of the module.
        contents: What is known of it.
    """

    def __init__(self, name: str, contents: Contents) -> None:
        super().__init__(name)
        self._contents = contents
        # Without a path, nothing can be imported from it; with this one, `Finder` is asked.
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        if (module := loaded(self.__name__)) is not None:
            return getattr(module, name)
        known = self.__dict__["_contents"]
        if name in known.types:
            return _Type(name, (), {"_module": self.__name__})
        if name in known.parts:
            return StandIn(f"{self.__name__}.{name}", Contents())
        if name in known.decorators:
            return functools.partial(_decorated_later, self.__name__, name)
        if name == "__file__":  # Asked of every module there is, by those who look for the one that a function is from.
            raise AttributeError(name)
        return getattr(load(self.__name__), name)


def loaded(name: str) -> ModuleType | None:
    """Returns the module called `name` if it has been imported."""
    module = sys.modules.get(name)
    return None if isinstance(module, StandIn) else module


def load(name: str) -> ModuleType:
    """Imports the module called `name`, and those that it is in, where only stand-ins are."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        above = ".".join(parts[:count])
        if isinstance(sys.modules.get(above), StandIn):
            sys.modules.pop(above, None)
    return importlib.import_module(name)


class Finder:
    """Finds modules in one that has a stand-in, which gives way to it."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Returns where such a module is, or `None` for anything else."""
        del path, target
        above = name.rpartition(".")[0]
        if not isinstance(sys.modules.get(above), StandIn):
            return None
        load(above)
        return importlib.util.find_spec(name)


class _Type(type):
    """Stands for a class of a module that is not imported, mostly as the second argument of `isinstance`."""

    _module: str

    def __instancecheck__(cls, instance: Any) -> bool:
        found = cls._found()
        return found is not None and isinstance(instance, found)

    def __subclasscheck__(cls, subclass: type) -> bool:
        found = cls._found()
        return super().__subclasscheck__(subclass) or (found is not None and issubclass(subclass, found))

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        return getattr(load(cls._module), cls.__name__)(*arguments, **named)

    def __getattr__(cls, name: str) -> Any:
        return getattr(getattr(load(cls._module), cls.__name__), name)

    def _found(cls) -> type | None:
        return getattr(loaded(cls._module), cls.__name__, None)


def _decorated_later(module: str, decorator: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.cache
    def decorated() -> Callable[..., Any]:
        return getattr(load(module), decorator)(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        return decorated()(*arguments, **named)

    return call
