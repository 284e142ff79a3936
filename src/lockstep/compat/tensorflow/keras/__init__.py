"""`tf.keras` for programs written for TensorFlow 2 with Keras 2, on Keras 3 and JAX.

Every public module of `keras` is a module here, and what differs in nothing is the very object of `keras`: names are
looked up in the live module each time, so that what is replaced there (`keras.datasets.mnist.load_data`) is replaced
here. What Keras 2 had and Keras 3 lacks is added where it has a meaning; where it has none, the error says what to do.

Importing this package changes classes of Keras itself, because programs use `keras` and `tf.keras` side by side; the
changes act on objects of programs that import it. README.md of `lockstep.compat.tensorflow` lists each attribute.

Source: `tf.keras` of TensorFlow 2.15.
"""

from __future__ import annotations

import sys as _sys
from typing import Any as _Any

from lockstep.compat.tensorflow import _jax_methods
from lockstep.compat.tensorflow.keras import _patches as _patches
from lockstep.compat.tensorflow.keras import _views as _views
from lockstep.compat.tensorflow.keras._saves import latest_checkpoint as latest_checkpoint

_views.install()


def __getattr__(name: str) -> _Any:
    _jax_methods.note_import(_sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
    return _views.lookup("", name)


def __dir__() -> list[str]:
    return _views.names("")
