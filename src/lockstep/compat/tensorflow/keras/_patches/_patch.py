"""Decorators that change a class of Keras when the module of the change is imported, thus once per process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from lockstep.compat.tensorflow._types import Argument

_Member = TypeVar("_Member")


def replaces(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Puts a function in place of a method; it gets the method itself, and then the method's arguments."""

    def install(function: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(owner, name)

        # Keras and programs read the signature of what was there.
        @functools.wraps(original)
        def method(self: Any, *args: Argument, **kwargs: Argument) -> Any:
            return function(original, self, *args, **kwargs)

        setattr(owner, name, method)
        return function

    return install


def adds(owner: Any, name: str) -> Callable[[_Member], _Member]:
    """Adds a method or a property under a name."""

    def install(member: _Member) -> _Member:
        setattr(owner, name, member)
        return member

    return install
