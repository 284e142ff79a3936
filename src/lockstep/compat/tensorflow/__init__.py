"""TensorFlow's names, for training programs: `import lockstep.compat.tensorflow as tf`.

Functions compute with numpy on host arrays, with JAX on JAX arrays and when they are compiled, and with keras.ops on
Keras' symbolic tensors. Modules that import this package see `numpy()` of JAX's arrays. What is covered, and how it
differs from TensorFlow: docs/tensorflow_differences.md.
"""

# Several hundred names: each module lists its own, and docs/tensorflow_names.md, which a test compares, lists them all.
# ruff: noqa: F403

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from keras.initializers import Constant as constant_initializer
from keras.initializers import Ones as ones_initializer
from keras.initializers import RandomNormal as random_normal_initializer
from keras.initializers import RandomUniform as random_uniform_initializer
from keras.initializers import Zeros as zeros_initializer

import lockstep as _lockstep  # noqa: F401  # pyright: ignore[reportUnusedImport]  It chooses the backend.
from lockstep.compat.tensorflow import _dtypes, _jax_methods, _missing
from lockstep.compat.tensorflow._dtypes import *
from lockstep.compat.tensorflow._ops import arrays as _arrays
from lockstep.compat.tensorflow._ops import control as _control
from lockstep.compat.tensorflow._ops import create as _create
from lockstep.compat.tensorflow._ops import custom_gradient as _custom_gradient
from lockstep.compat.tensorflow._ops import elementwise as _elementwise
from lockstep.compat.tensorflow._ops import function as _function
from lockstep.compat.tensorflow._ops import further as _further
from lockstep.compat.tensorflow._ops import gradient_tape as _gradient_tape
from lockstep.compat.tensorflow._ops import indexing as _indexing
from lockstep.compat.tensorflow._ops import products as _products
from lockstep.compat.tensorflow._ops import python_functions as _python_functions
from lockstep.compat.tensorflow._ops import training as _training
from lockstep.compat.tensorflow._ops import variable as _variable
from lockstep.compat.tensorflow._ops.arrays import *
from lockstep.compat.tensorflow._ops.checks import Assert as Assert
from lockstep.compat.tensorflow._ops.checks import assert_equal as assert_equal
from lockstep.compat.tensorflow._ops.checks import assert_greater as assert_greater
from lockstep.compat.tensorflow._ops.checks import assert_less as assert_less
from lockstep.compat.tensorflow._ops.checks import assert_rank as assert_rank
from lockstep.compat.tensorflow._ops.control import *
from lockstep.compat.tensorflow._ops.create import *
from lockstep.compat.tensorflow._ops.custom_gradient import *
from lockstep.compat.tensorflow._ops.elementwise import *
from lockstep.compat.tensorflow._ops.function import *
from lockstep.compat.tensorflow._ops.further import *
from lockstep.compat.tensorflow._ops.gradient_tape import *
from lockstep.compat.tensorflow._ops.indexing import *
from lockstep.compat.tensorflow._ops.patches import extract_volume_patches as extract_volume_patches
from lockstep.compat.tensorflow._ops.products import *
from lockstep.compat.tensorflow._ops.python_functions import *
from lockstep.compat.tensorflow._ops.reduce import argmax as argmax
from lockstep.compat.tensorflow._ops.reduce import argmin as argmin
from lockstep.compat.tensorflow._ops.reduce import cumsum as cumsum
from lockstep.compat.tensorflow._ops.reduce import reduce_all as reduce_all
from lockstep.compat.tensorflow._ops.reduce import reduce_any as reduce_any
from lockstep.compat.tensorflow._ops.reduce import reduce_logsumexp as reduce_logsumexp
from lockstep.compat.tensorflow._ops.reduce import reduce_max as reduce_max
from lockstep.compat.tensorflow._ops.reduce import reduce_mean as reduce_mean
from lockstep.compat.tensorflow._ops.reduce import reduce_min as reduce_min
from lockstep.compat.tensorflow._ops.reduce import reduce_prod as reduce_prod
from lockstep.compat.tensorflow._ops.reduce import reduce_sum as reduce_sum
from lockstep.compat.tensorflow._ops.strings import as_string as as_string
from lockstep.compat.tensorflow._ops.training import *
from lockstep.compat.tensorflow._ops.variable import *
from lockstep.compat.tensorflow._shape import TensorShape as TensorShape
from lockstep.compat.tensorflow._spec import TensorSpec as TensorSpec
from lockstep.compat.tensorflow._spec import TypeSpec as TypeSpec
from lockstep.compat.tensorflow._tensor import Tensor as Tensor
from lockstep.compat.tensorflow._tensor import as_tensor as as_tensor
from lockstep.compat.tensorflow._tensor import is_tensor as is_tensor
from lockstep.compat.tensorflow.version import VERSION as __version__

if _TYPE_CHECKING:
    from lockstep.compat.tensorflow import config as config
    from lockstep.compat.tensorflow import data as data
    from lockstep.compat.tensorflow import distribute as distribute
    from lockstep.compat.tensorflow import estimator as estimator
    from lockstep.compat.tensorflow import keras as keras
    from lockstep.compat.tensorflow._device_spec import DeviceSpec as DeviceSpec
    from lockstep.compat.tensorflow._indexed_slices import IndexedSlices as IndexedSlices
    from lockstep.compat.tensorflow._indexed_slices import IndexedSlicesSpec as IndexedSlicesSpec
    from lockstep.compat.tensorflow._ragged_ops import RaggedTensor as RaggedTensor
    from lockstep.compat.tensorflow._ragged_spec import RaggedTensorSpec as RaggedTensorSpec
    from lockstep.compat.tensorflow._sparse_ops import SparseTensor as SparseTensor
    from lockstep.compat.tensorflow._sparse_tensor import SparseTensorSpec as SparseTensorSpec
    from lockstep.compat.tensorflow._tensor_array import TensorArray as TensorArray
    from lockstep.compat.tensorflow._tensor_array import TensorArraySpec as TensorArraySpec

newaxis = None
# Classes that few programs use, with the modules that have them and their functions.
_CLASSES = {
    "DeviceSpec": "_device_spec",
    "RaggedTensor": "_composite_elements",
    "RaggedTensorSpec": "_composite_elements",
    "SparseTensor": "_composite_elements",
    "SparseTensorSpec": "_composite_elements",
    "IndexedSlices": "_indexed_slices",
    "IndexedSlicesSpec": "_indexed_slices",
    "TensorArray": "_tensor_array",
    "TensorArraySpec": "_tensor_array",
}
# Imported when they are used: `import lockstep.compat.tensorflow` itself stays short.
_PARTS = (
    *(
        "audio",
        "autograph",
        "bitwise",
        "compat",
        "config",
        "data",
        "debugging",
        "distribute",
        "dtypes",
        "errors",
        "estimator",
        "experimental",
        "feature_column",
    ),
    *(
        "image",
        "io",
        "keras",
        "linalg",
        "lookup",
        "math",
        "nn",
        "random",
        "saved_model",
        "nest",
        "profiler",
        "ragged",
        "sets",
        "sparse",
        "signal",
        "strings",
        "summary",
        "test",
        "train",
        "version",
    ),
)
# TensorFlow's short names for parts of Keras.
_KERAS = ("initializers", "losses", "metrics", "optimizers")
_LAZY = {
    **{part: f"{__name__}.{part}" for part in _PARTS},
    **{part: f"{__name__}.keras.{part}" for part in _KERAS},
}

__all__ = [
    "Assert",
    "Tensor",
    "TensorShape",
    "TensorSpec",
    "TypeSpec",
    "__version__",
    "argmax",
    "argmin",
    "as_string",
    "as_tensor",
]
__all__ += ["assert_equal", "assert_greater", "assert_less", "assert_rank", "constant_initializer", "cumsum"]
__all__ += ["extract_volume_patches"]
__all__ += ["is_tensor", "newaxis", "ones_initializer", "random_normal_initializer", "random_uniform_initializer"]
__all__ += ["reduce_all", "reduce_any", "reduce_logsumexp", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod"]
__all__ += ["reduce_sum", "zeros_initializer"]
__all__ += ["DeviceSpec", "IndexedSlices", "IndexedSlicesSpec", "RaggedTensor", "RaggedTensorSpec", "SparseTensor"]
__all__ += ["SparseTensorSpec", "TensorArray", "TensorArraySpec"]
__all__ += _dtypes.__all__
__all__ += _arrays.__all__
__all__ += _control.__all__
__all__ += _create.__all__
__all__ += _custom_gradient.__all__
__all__ += _elementwise.__all__
__all__ += _function.__all__
__all__ += _further.__all__
__all__ += _gradient_tape.__all__
__all__ += _indexing.__all__
__all__ += _products.__all__
__all__ += _python_functions.__all__
__all__ += _training.__all__
__all__ += _variable.__all__

_jax_methods.install()
_find = _missing.getter(__name__, _LAZY)


def __getattr__(name: str) -> _Any:
    if name in _CLASSES:
        value = globals()[name] = getattr(_importlib.import_module(f"{__name__}.{_CLASSES[name]}"), name)
        return value
    return _find(name)


__dir__ = _missing.lister(globals(), {**_LAZY, **_CLASSES})

# From here on Keras' own classes take Keras 2's ways too, for programs that import keras beside this package.
# Last, for it needs the names above. README.md lists what it changes.
from lockstep.compat.tensorflow import keras as keras  # noqa: E402
