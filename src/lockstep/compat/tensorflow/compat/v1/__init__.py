"""tf.compat.v1: names of TensorFlow 1 that have a meaning here; other names are those of tf itself."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

import importlib as _importlib
import importlib.util as _util
from typing import Any as _Any

from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow.compat.v1._initializers import constant_initializer as constant_initializer
from lockstep.compat.tensorflow.compat.v1._initializers import glorot_normal_initializer as glorot_normal_initializer
from lockstep.compat.tensorflow.compat.v1._initializers import glorot_uniform_initializer as glorot_uniform_initializer
from lockstep.compat.tensorflow.compat.v1._initializers import ones_initializer as ones_initializer
from lockstep.compat.tensorflow.compat.v1._initializers import orthogonal_initializer as orthogonal_initializer
from lockstep.compat.tensorflow.compat.v1._initializers import random_normal_initializer as random_normal_initializer
from lockstep.compat.tensorflow.compat.v1._initializers import random_uniform_initializer as random_uniform_initializer
from lockstep.compat.tensorflow.compat.v1._initializers import (
    truncated_normal_initializer as truncated_normal_initializer,
)
from lockstep.compat.tensorflow.compat.v1._initializers import (
    variance_scaling_initializer as variance_scaling_initializer,
)
from lockstep.compat.tensorflow.compat.v1._initializers import zeros_initializer as zeros_initializer
from lockstep.compat.tensorflow.compat.v1._scopes import AUTO_REUSE as AUTO_REUSE
from lockstep.compat.tensorflow.compat.v1._scopes import get_variable as get_variable
from lockstep.compat.tensorflow.compat.v1._scopes import get_variable_scope as get_variable_scope
from lockstep.compat.tensorflow.compat.v1._scopes import variable_scope as variable_scope
from lockstep.compat.tensorflow.compat.v1._switches import disable_control_flow_v2 as disable_control_flow_v2
from lockstep.compat.tensorflow.compat.v1._switches import disable_eager_execution as disable_eager_execution
from lockstep.compat.tensorflow.compat.v1._switches import disable_resource_variables as disable_resource_variables
from lockstep.compat.tensorflow.compat.v1._switches import disable_tensor_equality as disable_tensor_equality
from lockstep.compat.tensorflow.compat.v1._switches import disable_v2_behavior as disable_v2_behavior
from lockstep.compat.tensorflow.compat.v1._switches import disable_v2_tensorshape as disable_v2_tensorshape
from lockstep.compat.tensorflow.compat.v1._switches import enable_control_flow_v2 as enable_control_flow_v2
from lockstep.compat.tensorflow.compat.v1._switches import enable_eager_execution as enable_eager_execution
from lockstep.compat.tensorflow.compat.v1._switches import enable_resource_variables as enable_resource_variables
from lockstep.compat.tensorflow.compat.v1._switches import enable_tensor_equality as enable_tensor_equality
from lockstep.compat.tensorflow.compat.v1._switches import enable_v2_behavior as enable_v2_behavior
from lockstep.compat.tensorflow.compat.v1._switches import enable_v2_tensorshape as enable_v2_tensorshape
from lockstep.compat.tensorflow.compat.v1._switches import (
    executing_eagerly_outside_functions as executing_eagerly_outside_functions,
)
from lockstep.compat.tensorflow.compat.v1._switches import reset_default_graph as reset_default_graph
from lockstep.compat.tensorflow.compat.v1._switches import to_double as to_double
from lockstep.compat.tensorflow.compat.v1._switches import to_float as to_float
from lockstep.compat.tensorflow.compat.v1._switches import to_int32 as to_int32
from lockstep.compat.tensorflow.compat.v1._switches import to_int64 as to_int64
from lockstep.compat.tensorflow.compat.v1._variables import GraphKeys as GraphKeys
from lockstep.compat.tensorflow.compat.v1._variables import add_to_collection as add_to_collection
from lockstep.compat.tensorflow.compat.v1._variables import assign as assign
from lockstep.compat.tensorflow.compat.v1._variables import assign_add as assign_add
from lockstep.compat.tensorflow.compat.v1._variables import assign_sub as assign_sub
from lockstep.compat.tensorflow.compat.v1._variables import get_collection as get_collection
from lockstep.compat.tensorflow.compat.v1._variables import global_variables as global_variables
from lockstep.compat.tensorflow.compat.v1._variables import global_variables_initializer as global_variables_initializer
from lockstep.compat.tensorflow.compat.v1._variables import initialize_all_variables as initialize_all_variables
from lockstep.compat.tensorflow.compat.v1._variables import local_variables_initializer as local_variables_initializer
from lockstep.compat.tensorflow.compat.v1._variables import placeholder as placeholder
from lockstep.compat.tensorflow.compat.v1._variables import tables_initializer as tables_initializer
from lockstep.compat.tensorflow.compat.v1._variables import trainable_variables as trainable_variables
from lockstep.compat.tensorflow.compat.v1._variables import variables_initializer as variables_initializer

_ROOT = "lockstep.compat.tensorflow"
_LAZY = {
    name: f"{__name__}.{name}"
    for name in (
        *("app", "data", "estimator", "feature_column", "layers", "logging", "losses", "metrics", "nn"),
        *("saved_model", "summary", "train"),
    )
}
# Imported late: all of lockstep.estimator comes with them.
_SETTINGS = ("ConfigProto", "GPUOptions")
# TensorFlow 1's names for functions of tf.
_RENAMED = {
    "ceil": "math.ceil",
    "decode_csv": "io.decode_csv",
    "decode_raw": "io.decode_raw",
    "diag": "linalg.diag",
    "div_no_nan": "math.divide_no_nan",
    "erf": "math.erf",
    "FixedLenFeature": "io.FixedLenFeature",
    "gfile": "io.gfile",
    "is_nan": "math.is_nan",
    "lgamma": "math.lgamma",
    "log_sigmoid": "math.log_sigmoid",
    "matrix_inverse": "linalg.inv",
    "parse_example": "io.parse_example",
    "parse_single_example": "io.parse_single_example",
    "py_func": "numpy_function",
    "random_crop": "image.random_crop",
    "random_normal": "random.normal",
    "random_shuffle": "random.shuffle",
    "random_uniform": "random.uniform",
    "read_file": "io.read_file",
    "segment_sum": "math.segment_sum",
    "set_random_seed": "random.set_seed",
    "softplus": "math.softplus",
    "squared_difference": "math.squared_difference",
    "string_join": "strings.join",
    "string_split": "strings.split",
    "string_to_number": "strings.to_number",
    "truncated_normal": "random.truncated_normal",
    "unsorted_segment_sum": "math.unsorted_segment_sum",
    "write_file": "io.write_file",
}

__all__ = [
    "AUTO_REUSE",
    "ConfigProto",
    "GPUOptions",
    "GraphKeys",
    "add_to_collection",
    "app",
    "assign",
    "assign_add",
    "assign_sub",
    "constant_initializer",
    "data",
    "disable_control_flow_v2",
    "disable_eager_execution",
    "disable_resource_variables",
    "disable_tensor_equality",
    "disable_v2_behavior",
    "disable_v2_tensorshape",
    "enable_control_flow_v2",
    "enable_eager_execution",
    "enable_resource_variables",
    "enable_tensor_equality",
    "enable_v2_behavior",
    "enable_v2_tensorshape",
    "executing_eagerly_outside_functions",
    "get_collection",
    "get_variable",
    "get_variable_scope",
    "global_variables",
    "global_variables_initializer",
    "glorot_normal_initializer",
    "glorot_uniform_initializer",
    "initialize_all_variables",
    "layers",
    "local_variables_initializer",
    "logging",
    "losses",
    "metrics",
    "nn",
    "ones_initializer",
    "orthogonal_initializer",
    "placeholder",
    "random_normal_initializer",
    "random_uniform_initializer",
    "reset_default_graph",
    "saved_model",
    "summary",
    "tables_initializer",
    "to_double",
    "to_float",
    "to_int32",
    "to_int64",
    "train",
    "trainable_variables",
    "truncated_normal_initializer",
    "variable_scope",
    "variables_initializer",
    "variance_scaling_initializer",
    "zeros_initializer",
]
__all__ += _RENAMED  # pyright: ignore[reportUnsupportedDunderAll]

_missing_name = _missing.getter(__name__, _LAZY)


def __getattr__(name: str) -> _Any:
    # TensorFlow 1's flags are absl's own module.
    if name == "flags" and _util.find_spec("absl"):
        return _importlib.import_module("absl.flags")
    if name in _SETTINGS:
        return getattr(_importlib.import_module("lockstep.estimator._session_config"), name)
    if name in _LAZY or name.startswith("__") or f"tf.compat.v1.{name}" in _missing.ADVICE:
        return _missing_name(name)
    try:
        # All other names of TensorFlow 2 are in compat.v1, too.
        return _find_in_tf(_RENAMED.get(name, name))
    except AttributeError:
        if f"tf.{name}" in _missing.ADVICE:
            raise
    return _missing_name(name)


def _find_in_tf(path: str) -> _Any:
    value: _Any = _importlib.import_module(_ROOT)
    for part in path.split("."):
        value = getattr(value, part)
    return value


__dir__ = _missing.lister(globals(), {**_LAZY, **_RENAMED, **dict.fromkeys(_SETTINGS, "")})
