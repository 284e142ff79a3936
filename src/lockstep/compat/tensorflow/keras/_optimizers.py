"""`tf.keras.optimizers`, also as `legacy` and `experimental`: Keras 3's optimizers with Keras 2's arguments."""

from __future__ import annotations

from typing import Any

import keras

from lockstep.compat.tensorflow.keras._alias import alias, warn_once
from lockstep.compat.tensorflow.keras._patches.optimizers import as_rate
from lockstep.errors import ArgumentError

__all__ = ["SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lion", "Nadam", "Optimizer"]
__all__ += ["RMSprop"]

# The learning rate that decays if none is given.
# 0.001 is the default of the others.
_DEFAULT_RATES = {"SGD": 0.01, "Lion": 0.0001}


def translate(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns Keras 3's keyword arguments of an optimizer, of Keras 2's."""
    kwargs = dict(arguments)
    if "lr" in kwargs:
        kwargs["learning_rate"] = kwargs.pop("lr")
    if kwargs.pop("jit_compile", True) is False:
        warn_once("Every step is compiled: jit_compile=False of an optimizer has no meaning here.")
    # None is Keras 2's way to say "the backend's".
    if "epsilon" in kwargs and kwargs["epsilon"] is None:
        kwargs["epsilon"] = keras.config.epsilon()
    if kwargs.pop("mesh", None) is not None:
        raise ArgumentError("Optimizers take no mesh=: create the model under a strategy's scope.")
    if name == "Lion":
        # Keras 3 has 0.001.
        kwargs.setdefault("learning_rate", _DEFAULT_RATES[name])
    _decay(name, kwargs)
    return kwargs


def _decay(name: str, kwargs: dict[str, Any]) -> None:
    """Turns `decay=` into the schedule that it meant: `learning_rate / (1 + decay * step)`."""
    decay = kwargs.pop("decay", None)
    if not decay:
        return
    rate = as_rate(kwargs.get("learning_rate", _DEFAULT_RATES.get(name, 0.001)))
    if not isinstance(rate, float):
        raise ArgumentError(f"decay= goes with a learning rate that is a number: received {rate!r}. Leave decay= out.")
    # Keras 2 computes lr / (1 + decay * iterations); with decay_steps=1 the schedule is the same.
    kwargs["learning_rate"] = keras.optimizers.schedules.InverseTimeDecay(rate, decay_steps=1, decay_rate=float(decay))


Adadelta = alias(keras.optimizers.Adadelta, translate)
Adafactor = alias(keras.optimizers.Adafactor, translate)
Adagrad = alias(keras.optimizers.Adagrad, translate)
Adam = alias(keras.optimizers.Adam, translate)
AdamW = alias(keras.optimizers.AdamW, translate)
Adamax = alias(keras.optimizers.Adamax, translate)
Ftrl = alias(keras.optimizers.Ftrl, translate)
Lion = alias(keras.optimizers.Lion, translate)
Nadam = alias(keras.optimizers.Nadam, translate)
RMSprop = alias(keras.optimizers.RMSprop, translate)
SGD = alias(keras.optimizers.SGD, translate)
Optimizer = keras.optimizers.Optimizer
