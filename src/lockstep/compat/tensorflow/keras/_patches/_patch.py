"""Decorators that change a class of Keras, for objects that programs of this package make.

An object belongs to such a program if the first code that made it, outside of the libraries below, imports
`lockstep.compat`. All others stay what Keras made them. A change is made when its module is imported, thus once per
process.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from lockstep.compat.tensorflow._jax_methods import imports_compat
from lockstep.compat.tensorflow._types import Argument, Trackable

_Member = TypeVar("_Member", bound=Any)

_MARK = "_lockstep_of_compat"
# Their frames are between the program and the constructor that it calls, directly or by `load_model`, `copy.deepcopy`
# and the like.
_LIBRARIES = {*sys.stdlib_module_names, "jax", "keras", "lockstep", "optree", "tree"}


def mark(instance: Trackable) -> bool:
    """Marks an object that is being made, if the program that makes it imports this package; returns whether it is."""
    is_ours = is_called_by_us()
    # Keras' __setattr__ would track it, and save it.
    object.__setattr__(instance, _MARK, is_ours)
    return is_ours


def is_called_by_us() -> bool:
    """Returns whether the first code that calls, outside of libraries, is of a program that imports this package."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        frame = frame.f_back
    return imports_compat(frame)


def is_ours(instance: Trackable) -> bool:
    """Returns whether an object was made by a program that imports this package."""
    return vars(instance).get(_MARK, False)


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Puts a function in place of a method; it gets the method itself, and then the method's arguments."""

    def install(function: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(owner, name)

        # Keras and programs read the signature of what was there.
        @functools.wraps(original)
        def method(self: Any, *args: Argument, **kwargs: Argument) -> Any:
            if mark(self) if name == "__init__" else is_ours(self):
                return function(original, self, *args, **kwargs)
            return original(self, *args, **kwargs)

        setattr(owner, name, method)
        return function

    return install


def replaces_property(
    owner: Any, name: str, setter: Callable[[Any, Any], None] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Puts a function in place of a property's, and a setter; the function gets the property, and then the object."""

    def install(function: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(owner, name)

        def get(self: Any) -> Any:
            return function(original, self) if is_ours(self) else original.fget(self)

        def set_value(self: Any, value: Any) -> None:
            # A property without a setter raises Python's own error here.
            (setter if setter is not None and is_ours(self) else original.__set__)(self, value)

        setattr(owner, name, property(get, set_value, original.fdel, original.__doc__))
        return function

    return install


def adds(owner: Any, name: str) -> Callable[[_Member], _Member]:
    """Adds a method, a property or another descriptor under a name that Keras does not have."""

    def install(member: _Member) -> _Member:
        is_settable = getattr(member, "fset", None) is not None
        setattr(owner, name, (_SettableAttribute if is_settable else _Attribute)(name, member))
        return member

    return install


class _Attribute:
    """Descriptor of an attribute that objects of programs of this package have."""

    def __init__(self, name: str, member: Any) -> None:
        self.name = name
        self.member = member

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None or is_ours(instance):
            return self.member.__get__(instance, owner)
        if self.name in vars(instance):
            return vars(instance)[self.name]
        raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}")


class _SettableAttribute(_Attribute):
    def __set__(self, instance: Any, value: Any) -> None:
        if is_ours(instance):
            self.member.__set__(instance, value)
        else:
            # What Keras does with an attribute that it does not know.
            vars(instance)[self.name] = value
