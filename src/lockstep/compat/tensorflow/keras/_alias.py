"""Classes of Keras that take Keras 2's arguments, and make objects of Keras' own class; warnings about arguments."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

from lockstep.compat.tensorflow._types import Argument

_warned: set[str] = set()

Translate = Callable[[str, dict[str, Any]], dict[str, Any]]


class _Alias(type):
    """Calling the alias makes an object of the class behind it; `isinstance` and `issubclass` mean that class.

    Thus what is saved names Keras' class, and loads without this package. A class that a user derives from the alias is
    an ordinary class, whose constructor takes Keras 2's arguments too.
    """

    _lockstep_behind: type

    def __call__(cls, *args: Argument, **kwargs: Argument) -> Any:
        # A class that a user derives inherits the attribute; only the alias itself has it in its own namespace.
        if "_lockstep_translate" not in vars(cls):
            return super().__call__(*args, **kwargs)
        named = _name_arguments(cls._lockstep_behind, args, kwargs)
        # An object of Keras' class: what is saved loads without this package.
        return cls._lockstep_behind(**vars(cls)["_lockstep_translate"](cls.__name__, named))

    def __instancecheck__(cls, instance: Any) -> bool:
        if "_lockstep_translate" not in vars(cls):
            return super().__instancecheck__(instance)
        return isinstance(instance, cls._lockstep_behind)

    def __subclasscheck__(cls, subclass: type) -> bool:
        if "_lockstep_translate" not in vars(cls):
            return super().__subclasscheck__(subclass)
        return issubclass(subclass, cls._lockstep_behind)


def _name_arguments(behind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns all arguments by name; as many as the class takes may be given by position."""
    # Keras 2's positional order is Keras 3's for the classes that have aliases.
    names = list(inspect.signature(behind.__init__).parameters)[1:]
    if len(args) > len(names) or any(name in kwargs for name in names[: len(args)]):
        raise TypeError(f"{behind.__name__} takes {names} by position, each once: received {len(args)}, and {kwargs}.")
    return {**dict(zip(names, args, strict=False)), **kwargs}


def alias(behind: type, translate: Translate, name: str | None = None) -> Any:
    """Returns a class that stands for `behind` and hands it its arguments as `translate(name, arguments)` gives them.

    Args:
        behind: The class of Keras.
        translate: Makes Keras 3's keyword arguments of Keras 2's.
        name: The name of the alias, if it is not that of `behind`.
    """
    name = name or behind.__name__

    def __init__(self: Any, *args: Argument, **kwargs: Argument) -> None:
        behind.__init__(self, **translate(name, _name_arguments(behind, args, kwargs)))

    return _Alias(
        name,
        (behind,),
        {
            "__init__": __init__,
            "__doc__": behind.__doc__,
            # Programs that print a class, or register it by its module, see Keras' own.
            "__module__": behind.__module__,
            "_lockstep_behind": behind,
            "_lockstep_translate": staticmethod(translate),
        },
    )


def warn_once(message: str) -> None:
    """Warns, unless this process has given the same warning."""
    # Functions of a layer are traced again and again; one warning is enough.
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, UserWarning, stacklevel=3)
