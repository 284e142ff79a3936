"""tf.compat.v1: what programs of TensorFlow 1 use that has a meaning here; other names are those of tf itself."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

import importlib as _importlib
import importlib.util as _util
from typing import Any as _Any

from lockstep.compat.tensorflow import _missing
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

_ROOT = "lockstep.compat.tensorflow"
_LAZY = {name: f"{__name__}.{name}" for name in ("app", "logging", "train")}
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
    "app",
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
    "logging",
    "reset_default_graph",
    "to_double",
    "to_float",
    "to_int32",
    "to_int64",
    "train",
]
__all__ += _RENAMED  # pyright: ignore[reportUnsupportedDunderAll]

_own = _missing.getter(__name__, _LAZY)


def __getattr__(name: str) -> _Any:
    if name == "flags" and _util.find_spec("absl"):
        return _importlib.import_module("absl.flags")
    if name in _LAZY or name.startswith("__") or f"tf.compat.v1.{name}" in _missing.ADVICE:
        return _own(name)
    try:
        return _of_tf(_RENAMED.get(name, name))
    except AttributeError:
        if f"tf.{name}" in _missing.ADVICE:
            raise
    return _own(name)


def _of_tf(path: str) -> _Any:
    found: _Any = _importlib.import_module(_ROOT)
    for part in path.split("."):
        found = getattr(found, part)
    return found


__dir__ = _missing.lister(globals(), {**_LAZY, **_RENAMED})
