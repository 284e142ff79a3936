"""`tf.keras.backend`: the functions of Keras 2's backend, over `keras.ops`.

What is still in `keras.backend` is found there. Functions that keep name and meaning are those of `keras.ops`, by the
table of moved names in `_views.py`.
"""

# ruff: noqa: F403

from __future__ import annotations

from keras.src.backend import name_scope as name_scope
from keras.src.backend import rnn as rnn

from lockstep.compat.tensorflow.keras._backend import arrays, control, neural, values
from lockstep.compat.tensorflow.keras._backend.arrays import *
from lockstep.compat.tensorflow.keras._backend.control import *
from lockstep.compat.tensorflow.keras._backend.neural import *
from lockstep.compat.tensorflow.keras._backend.values import *

__all__ = ["name_scope", "rnn"]
__all__ += arrays.__all__
__all__ += control.__all__
__all__ += neural.__all__
__all__ += values.__all__
