"""Variables whose values a GradientTape that is open tells from all other arrays."""

from __future__ import annotations

import functools
from typing import Any

from keras.src.backend import StatelessScope
from keras.src.backend.common.variables import Variable

from lockstep.compat.tensorflow import _shards
from lockstep.compat.tensorflow._tape.recording import innermost
from lockstep.distribute.internal import Scope

_original = Variable._maybe_autocast  # pyright: ignore[reportPrivateUsage]
_of_scope = StatelessScope.get_current_value


def _value_on_tape(variable: Any, value: Any) -> Any:
    """Returns the array that stands for a variable's value on an open tape; without one, the value."""
    recording = innermost()
    return value if recording is None or value is None else recording.read(variable, value)


@functools.wraps(_original)
def _read(self: Any, value: Any) -> Any:
    # Keras hands it each value that is read, whatever it comes from.
    return _original(self, _value_on_tape(self, value))


@functools.wraps(_of_scope)
def _read_in_scope(self: Any, variable: Any) -> Any:
    # Regularizers take values from here.
    return _value_on_tape(variable, _of_scope(self, variable))


Variable._maybe_autocast = _read  # pyright: ignore[reportPrivateUsage]
StatelessScope.get_current_value = _read_in_scope
Scope.reader = staticmethod(_value_on_tape)
_shards.install()
