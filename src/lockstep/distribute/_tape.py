"""A gradient tape in a function that `Strategy.run` traces: TensorFlow's way to take derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from lockstep._engine.step import tape
from lockstep._engine.step.jaxprs import is_traced
from lockstep._engine.step.replica_invariance import mark_varying
from lockstep.distribute._values import is_variable
from lockstep.distribute._variables import Scope
from lockstep.errors import UnsupportedError


class Tape:
    """Takes derivatives of what a replica's function computes, by Keras variables and by its arrays.

    Args:
        scope: Of the function.
        watches_all: Whether all trainable variables are watched.
    """

    def __init__(self, scope: Scope, watches_all: bool) -> None:
        self._scope = scope
        self._watches_all = watches_all
        self._start: Any = None
        self._watched: dict[int, Any] = {}  # By the id of a variable: its value when the tape began.
        self._arrays: list[Any] = []

    def begin(self) -> None:
        """Begins to record."""
        self._start = tape.begin()
        for variable in self._scope.variables if self._watches_all else ():
            if variable.trainable:
                self.watch(variable)

    def watch(self, source: Any) -> None:
        """Watches a variable or an array; integers are passed over, as they have no derivatives."""
        if not is_variable(source):
            self._arrays.append(source)
        elif id(source) not in self._watched and _is_float(value := self._scope.get_current_value(source)):
            self._watched[id(source)] = self._scope.state_mapping[id(source)] = tape.watch(value)

    def gradient(self, target: Any, sources: Sequence[Any]) -> list[Any]:
        """Returns the derivatives of a number; `None` by sources that it does not depend on, or are not watched.

        They are this replica's own: an optimizer adds them up over the replicas, even if all have computed the same.

        Raises:
            UnsupportedError: By an array that is watched, and a constant of the compiled function.
        """
        if self._scope.met:  # Variables that are not known yet: all is traced again.
            return [jnp.zeros(s.shape, s.dtype) if _is_float(s) else None for s in sources]
        own = [self._own(source) for source in sources]
        there = [i for i, value in enumerate(own) if value is not None]
        found: list[Any] = [None] * len(own)
        if not there or not is_traced(target) or self._start is None:
            return found
        key, connected = self._scope.next_derivatives(len(there))
        values = tape.derivatives(self._start, target, [own[i] for i in there], key)
        for i, value, is_connected in zip(there, values, connected, strict=True):
            found[i] = mark_varying(value) if is_connected else None
        return found

    def _own(self, source: Any) -> Any:
        """The value that a derivative is taken by; `None` if it is not watched."""
        if is_variable(source):
            return self._watched.get(id(source))
        if not any(source is array for array in self._arrays) or not _is_float(source):
            return None
        if not is_traced(source):
            raise UnsupportedError(
                "Derivatives are taken by variables, and by arrays that a replica's function is given or computes of "
                f"such. Received: a constant, {str(source)[:60]}. Pass it to strategy.run as an argument."
            )
        return source


def _is_float(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.inexact)
