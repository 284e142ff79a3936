"""`tf.keras.backend`: the functions of Keras 2's backend, over `keras.ops`.

What is still in `keras.backend` is found there. Functions that keep name and meaning are those of `keras.ops`.
"""

from __future__ import annotations

from keras.ops import abs as abs
from keras.ops import cos as cos
from keras.ops import equal as equal
from keras.ops import exp as exp
from keras.ops import greater as greater
from keras.ops import greater_equal as greater_equal
from keras.ops import less as less
from keras.ops import less_equal as less_equal
from keras.ops import log as log
from keras.ops import max as max
from keras.ops import maximum as maximum
from keras.ops import min as min
from keras.ops import minimum as minimum
from keras.ops import not_equal as not_equal
from keras.ops import prod as prod
from keras.ops import reshape as reshape
from keras.ops import round as round
from keras.ops import sigmoid as sigmoid
from keras.ops import sign as sign
from keras.ops import sin as sin
from keras.ops import softplus as softplus
from keras.ops import softsign as softsign
from keras.ops import square as square
from keras.ops import stack as stack
from keras.ops import stop_gradient as stop_gradient
from keras.ops import sum as sum
from keras.ops import tanh as tanh
from keras.src.backend import name_scope as name_scope
from keras.src.backend import rnn as rnn

from lockstep.compat.tensorflow.keras._backend.control import function as function
from lockstep.compat.tensorflow.keras._backend.control import get_session as get_session
from lockstep.compat.tensorflow.keras._backend.control import gradients as gradients
from lockstep.compat.tensorflow.keras._backend.control import in_test_phase as in_test_phase
from lockstep.compat.tensorflow.keras._backend.control import in_train_phase as in_train_phase
from lockstep.compat.tensorflow.keras._backend.control import learning_phase as learning_phase
from lockstep.compat.tensorflow.keras._backend.control import learning_phase_scope as learning_phase_scope
from lockstep.compat.tensorflow.keras._backend.control import (
    manual_variable_initialization as manual_variable_initialization,
)
from lockstep.compat.tensorflow.keras._backend.control import map_fn as map_fn
from lockstep.compat.tensorflow.keras._backend.control import placeholder as placeholder
from lockstep.compat.tensorflow.keras._backend.control import set_learning_phase as set_learning_phase
from lockstep.compat.tensorflow.keras._backend.control import set_session as set_session
from lockstep.compat.tensorflow.keras._backend.control import switch as switch
from lockstep.compat.tensorflow.keras._backend.maths import all as all
from lockstep.compat.tensorflow.keras._backend.maths import any as any
from lockstep.compat.tensorflow.keras._backend.maths import argmax as argmax
from lockstep.compat.tensorflow.keras._backend.maths import argmin as argmin
from lockstep.compat.tensorflow.keras._backend.maths import batch_dot as batch_dot
from lockstep.compat.tensorflow.keras._backend.maths import clip as clip
from lockstep.compat.tensorflow.keras._backend.maths import cumprod as cumprod
from lockstep.compat.tensorflow.keras._backend.maths import cumsum as cumsum
from lockstep.compat.tensorflow.keras._backend.maths import dot as dot
from lockstep.compat.tensorflow.keras._backend.maths import l2_normalize as l2_normalize
from lockstep.compat.tensorflow.keras._backend.maths import mean as mean
from lockstep.compat.tensorflow.keras._backend.maths import pow as pow
from lockstep.compat.tensorflow.keras._backend.maths import sqrt as sqrt
from lockstep.compat.tensorflow.keras._backend.maths import std as std
from lockstep.compat.tensorflow.keras._backend.maths import var as var
from lockstep.compat.tensorflow.keras._backend.neural import batch_normalization as batch_normalization
from lockstep.compat.tensorflow.keras._backend.neural import bias_add as bias_add
from lockstep.compat.tensorflow.keras._backend.neural import binary_crossentropy as binary_crossentropy
from lockstep.compat.tensorflow.keras._backend.neural import categorical_crossentropy as categorical_crossentropy
from lockstep.compat.tensorflow.keras._backend.neural import conv1d as conv1d
from lockstep.compat.tensorflow.keras._backend.neural import conv2d as conv2d
from lockstep.compat.tensorflow.keras._backend.neural import conv3d as conv3d
from lockstep.compat.tensorflow.keras._backend.neural import depthwise_conv2d as depthwise_conv2d
from lockstep.compat.tensorflow.keras._backend.neural import elu as elu
from lockstep.compat.tensorflow.keras._backend.neural import hard_sigmoid as hard_sigmoid
from lockstep.compat.tensorflow.keras._backend.neural import in_top_k as in_top_k
from lockstep.compat.tensorflow.keras._backend.neural import pool2d as pool2d
from lockstep.compat.tensorflow.keras._backend.neural import pool3d as pool3d
from lockstep.compat.tensorflow.keras._backend.neural import relu as relu
from lockstep.compat.tensorflow.keras._backend.neural import separable_conv2d as separable_conv2d
from lockstep.compat.tensorflow.keras._backend.neural import softmax as softmax
from lockstep.compat.tensorflow.keras._backend.neural import (
    sparse_categorical_crossentropy as sparse_categorical_crossentropy,
)
from lockstep.compat.tensorflow.keras._backend.shapes import arange as arange
from lockstep.compat.tensorflow.keras._backend.shapes import batch_flatten as batch_flatten
from lockstep.compat.tensorflow.keras._backend.shapes import cast as cast
from lockstep.compat.tensorflow.keras._backend.shapes import cast_to_floatx as cast_to_floatx
from lockstep.compat.tensorflow.keras._backend.shapes import concatenate as concatenate
from lockstep.compat.tensorflow.keras._backend.shapes import dtype as dtype
from lockstep.compat.tensorflow.keras._backend.shapes import expand_dims as expand_dims
from lockstep.compat.tensorflow.keras._backend.shapes import flatten as flatten
from lockstep.compat.tensorflow.keras._backend.shapes import gather as gather
from lockstep.compat.tensorflow.keras._backend.shapes import int_shape as int_shape
from lockstep.compat.tensorflow.keras._backend.shapes import is_sparse as is_sparse
from lockstep.compat.tensorflow.keras._backend.shapes import ndim as ndim
from lockstep.compat.tensorflow.keras._backend.shapes import one_hot as one_hot
from lockstep.compat.tensorflow.keras._backend.shapes import permute_dimensions as permute_dimensions
from lockstep.compat.tensorflow.keras._backend.shapes import repeat as repeat
from lockstep.compat.tensorflow.keras._backend.shapes import repeat_elements as repeat_elements
from lockstep.compat.tensorflow.keras._backend.shapes import resize_images as resize_images
from lockstep.compat.tensorflow.keras._backend.shapes import reverse as reverse
from lockstep.compat.tensorflow.keras._backend.shapes import shape as shape
from lockstep.compat.tensorflow.keras._backend.shapes import spatial_2d_padding as spatial_2d_padding
from lockstep.compat.tensorflow.keras._backend.shapes import spatial_3d_padding as spatial_3d_padding
from lockstep.compat.tensorflow.keras._backend.shapes import squeeze as squeeze
from lockstep.compat.tensorflow.keras._backend.shapes import temporal_padding as temporal_padding
from lockstep.compat.tensorflow.keras._backend.shapes import tile as tile
from lockstep.compat.tensorflow.keras._backend.shapes import to_dense as to_dense
from lockstep.compat.tensorflow.keras._backend.shapes import transpose as transpose
from lockstep.compat.tensorflow.keras._backend.values import batch_get_value as batch_get_value
from lockstep.compat.tensorflow.keras._backend.values import batch_set_value as batch_set_value
from lockstep.compat.tensorflow.keras._backend.values import constant as constant
from lockstep.compat.tensorflow.keras._backend.values import count_params as count_params
from lockstep.compat.tensorflow.keras._backend.values import dropout as dropout
from lockstep.compat.tensorflow.keras._backend.values import eval as eval
from lockstep.compat.tensorflow.keras._backend.values import eye as eye
from lockstep.compat.tensorflow.keras._backend.values import get_value as get_value
from lockstep.compat.tensorflow.keras._backend.values import moving_average_update as moving_average_update
from lockstep.compat.tensorflow.keras._backend.values import ones as ones
from lockstep.compat.tensorflow.keras._backend.values import ones_like as ones_like
from lockstep.compat.tensorflow.keras._backend.values import random_bernoulli as random_bernoulli
from lockstep.compat.tensorflow.keras._backend.values import random_binomial as random_binomial
from lockstep.compat.tensorflow.keras._backend.values import random_normal as random_normal
from lockstep.compat.tensorflow.keras._backend.values import random_normal_variable as random_normal_variable
from lockstep.compat.tensorflow.keras._backend.values import random_uniform as random_uniform
from lockstep.compat.tensorflow.keras._backend.values import random_uniform_variable as random_uniform_variable
from lockstep.compat.tensorflow.keras._backend.values import set_value as set_value
from lockstep.compat.tensorflow.keras._backend.values import truncated_normal as truncated_normal
from lockstep.compat.tensorflow.keras._backend.values import update as update
from lockstep.compat.tensorflow.keras._backend.values import update_add as update_add
from lockstep.compat.tensorflow.keras._backend.values import update_sub as update_sub
from lockstep.compat.tensorflow.keras._backend.values import variable as variable
from lockstep.compat.tensorflow.keras._backend.values import zeros as zeros
from lockstep.compat.tensorflow.keras._backend.values import zeros_like as zeros_like

__all__ = [
    "abs",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "batch_dot",
    "batch_flatten",
    "batch_get_value",
    "batch_normalization",
    "batch_set_value",
    "bias_add",
    "binary_crossentropy",
    "cast",
    "cast_to_floatx",
    "categorical_crossentropy",
    "clip",
    "concatenate",
    "constant",
    "conv1d",
    "conv2d",
    "conv3d",
    "cos",
    "count_params",
    "cumprod",
    "cumsum",
    "depthwise_conv2d",
    "dot",
    "dropout",
    "dtype",
    "elu",
    "equal",
    "eval",
    "exp",
    "expand_dims",
    "eye",
    "flatten",
    "function",
    "gather",
    "get_session",
    "get_value",
    "gradients",
    "greater",
    "greater_equal",
    "hard_sigmoid",
    "in_test_phase",
    "in_top_k",
    "in_train_phase",
    "int_shape",
    "is_sparse",
    "l2_normalize",
    "learning_phase",
    "learning_phase_scope",
    "less",
    "less_equal",
    "log",
    "manual_variable_initialization",
    "map_fn",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "moving_average_update",
    "name_scope",
    "ndim",
    "not_equal",
    "one_hot",
    "ones",
    "ones_like",
    "permute_dimensions",
    "placeholder",
    "pool2d",
    "pool3d",
    "pow",
    "prod",
    "random_bernoulli",
    "random_binomial",
    "random_normal",
    "random_normal_variable",
    "random_uniform",
    "random_uniform_variable",
    "relu",
    "repeat",
    "repeat_elements",
    "reshape",
    "resize_images",
    "reverse",
    "rnn",
    "round",
    "separable_conv2d",
    "set_learning_phase",
    "set_session",
    "set_value",
    "shape",
    "sigmoid",
    "sign",
    "sin",
    "softmax",
    "softplus",
    "softsign",
    "sparse_categorical_crossentropy",
    "spatial_2d_padding",
    "spatial_3d_padding",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "stop_gradient",
    "sum",
    "switch",
    "tanh",
    "temporal_padding",
    "tile",
    "to_dense",
    "transpose",
    "truncated_normal",
    "update",
    "update_add",
    "update_sub",
    "var",
    "variable",
    "zeros",
    "zeros_like",
]
