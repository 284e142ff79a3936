"""Variables of a model_fn under TensorFlow's names, `dense/kernel:0`, by which programs choose some of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from keras.src.backend.common import KerasVariable

from lockstep._types import Variable
from lockstep.compat.tensorflow._ops.named import model_fn_scope
from lockstep.compat.tensorflow._spec import TensorShape


def install() -> None:
    """Completes `keras.Variable`."""
    variable: Any = KerasVariable
    original: Any = variable.name
    # Programs of TensorFlow 1 choose variables by name: [v for v in trainable_variables() if "bias" in v.name].
    variable.name = property(lambda self: _name(self, original.fget(self)), doc=original.__doc__)
    variable.op = property(_op, doc="What has the name without `:0`, in a model_fn.")
    variable.get_shape = lambda self: TensorShape(self.shape)


def _name(variable: Variable, otherwise: str) -> str:
    key = _key(variable)
    return otherwise if key is None else f"{key}:0"


def _op(self: Variable) -> SimpleNamespace:
    key = _key(self)
    if key is None:
        raise AttributeError("A variable has an op in a model_fn only. Use its path.")
    return SimpleNamespace(name=key)


def _key(variable: Variable) -> str | None:
    # Outside of a model_fn a variable keeps the name that Keras 3 gives it.
    scope = model_fn_scope()
    return None if scope is None else scope.known_key_of(variable)
