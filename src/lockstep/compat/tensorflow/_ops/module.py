"""tf.Module: an object that knows the variables of its attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import keras

__all__ = ["Module"]


class Module:
    """Holds variables, layers and other modules as attributes, also in lists and dicts. Source: tf.Module."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name or type(self).__name__.lower()

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def variables(self) -> tuple[Any, ...]:
        """The variables of its attributes, in the order of their names, each once."""
        return tuple({id(v): v for part in _parts(self) for v in _variables_of(part)}.values())

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """Those of its variables that are trained."""
        return tuple(v for v in self.variables if v.trainable)

    @property
    def non_trainable_variables(self) -> tuple[Any, ...]:
        """Those of its variables that are not trained."""
        return tuple(v for v in self.variables if not v.trainable)

    @property
    def submodules(self) -> tuple[Any, ...]:
        """The modules and layers in its attributes."""
        return tuple(part for part in _parts(self) if isinstance(part, (Module, keras.layers.Layer)))

    @property
    def name_scope(self) -> Any:
        """A scope for the names of variables."""
        return keras.name_scope(self._name)

    @classmethod
    def with_name_scope(cls, method: Any) -> Any:
        """Returns the method: names have no effect. Source: tf.Module.with_name_scope."""
        return method


def _parts(module: Module) -> Iterator[Any]:
    """The variables, layers and modules in the attributes, and in those of its modules."""
    for _, value in sorted(vars(module).items()):
        yield from _inside(value)


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = [value[key] for key in sorted(value, key=str)]
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _inside(part)
    elif isinstance(value, (keras.Variable, keras.layers.Layer)):
        yield value
    elif isinstance(value, Module):
        yield value
        yield from _parts(value)


def _variables_of(part: Any) -> list[Any]:
    if isinstance(part, keras.Variable):
        return [part]
    return list(part.variables) if isinstance(part, keras.layers.Layer) else []
