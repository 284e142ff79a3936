"""tf.compat.v1.initializers: TensorFlow 1's initializers under their short names; variables need no operation."""

from __future__ import annotations

from keras.initializers import HeNormal as he_normal
from keras.initializers import HeUniform as he_uniform
from keras.initializers import Identity as identity
from keras.initializers import LecunNormal as lecun_normal
from keras.initializers import LecunUniform as lecun_uniform

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow.compat.v1._initializers import constant_initializer as constant
from lockstep.compat.tensorflow.compat.v1._initializers import glorot_normal_initializer as glorot_normal
from lockstep.compat.tensorflow.compat.v1._initializers import glorot_uniform_initializer as glorot_uniform
from lockstep.compat.tensorflow.compat.v1._initializers import ones_initializer as ones
from lockstep.compat.tensorflow.compat.v1._initializers import orthogonal_initializer as orthogonal
from lockstep.compat.tensorflow.compat.v1._initializers import random_normal_initializer as random_normal
from lockstep.compat.tensorflow.compat.v1._initializers import random_uniform_initializer as random_uniform
from lockstep.compat.tensorflow.compat.v1._initializers import truncated_normal_initializer as truncated_normal
from lockstep.compat.tensorflow.compat.v1._initializers import variance_scaling_initializer as variance_scaling
from lockstep.compat.tensorflow.compat.v1._initializers import zeros_initializer as zeros

__all__ = ["constant", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "identity", "lecun_normal"]
__all__ += ["lecun_uniform", "ones", "orthogonal", "random_normal", "random_uniform", "truncated_normal"]
__all__ += ["variance_scaling", "zeros"]

__getattr__ = _getter(__name__)
