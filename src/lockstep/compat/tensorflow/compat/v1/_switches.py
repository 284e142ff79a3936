"""Switches between TensorFlow 1 and 2, and casts."""

from __future__ import annotations

from typing import Any

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import float32, float64, int32, int64
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.create import cast
from lockstep.compat.tensorflow._ops.make import describe

__all__ = ["disable_control_flow_v2", "disable_eager_execution", "disable_resource_variables"]
__all__ += ["disable_tensor_equality", "disable_v2_behavior", "disable_v2_tensorshape", "enable_control_flow_v2"]
__all__ += ["enable_eager_execution", "enable_resource_variables", "enable_tensor_equality", "enable_v2_behavior"]
__all__ += ["enable_v2_tensorshape", "executing_eagerly_outside_functions", "reset_default_graph", "to_double"]
__all__ += ["to_float", "to_int32", "to_int64"]


def _switch(name: str, effect: str) -> Any:
    # No error: programs call these first, and what they ask for is so, or has no meaning.
    def switch() -> None:
        return None

    return describe(switch, f"tf.compat.v1.{name}", f"Changes nothing: {effect}")


_MODE = "there are no graphs to switch to; Estimator compiles model functions by itself"
_ONLY = "there is one behaviour, that of TensorFlow 2"

disable_control_flow_v2 = _switch("disable_control_flow_v2", _ONLY)
disable_eager_execution = _switch("disable_eager_execution", _MODE)
disable_resource_variables = _switch("disable_resource_variables", _ONLY)
disable_tensor_equality = _switch("disable_tensor_equality", _ONLY)
disable_v2_behavior = _switch("disable_v2_behavior", _MODE)
disable_v2_tensorshape = _switch("disable_v2_tensorshape", _ONLY)
enable_control_flow_v2 = _switch("enable_control_flow_v2", _ONLY)
enable_eager_execution = _switch("enable_eager_execution", "operations are carried out where they are written")
enable_resource_variables = _switch("enable_resource_variables", _ONLY)
enable_tensor_equality = _switch("enable_tensor_equality", _ONLY)
enable_v2_behavior = _switch("enable_v2_behavior", _ONLY)
enable_v2_tensorshape = _switch("enable_v2_tensorshape", _ONLY)
reset_default_graph = _switch("reset_default_graph", "there is no graph")


def executing_eagerly_outside_functions() -> bool:
    """Returns whether values are known here. Source: tf.compat.v1.executing_eagerly_outside_functions."""
    return not dispatch.is_traced()


def to_float(x: Tensor, name: str | None = None) -> Any:
    """Converts to float32. Source: tf.compat.v1.to_float."""
    return cast(x, float32)


def to_double(x: Tensor, name: str | None = None) -> Any:
    """Converts to float64, which is float32 unless `jax_enable_x64` is set. Source: tf.compat.v1.to_double."""
    return cast(x, float64)


def to_int32(x: Tensor, name: str | None = None) -> Any:
    """Converts to int32. Source: tf.compat.v1.to_int32."""
    return cast(x, int32)


def to_int64(x: Tensor, name: str | None = None) -> Any:
    """Converts to int64, which is int32 unless `jax_enable_x64` is set. Source: tf.compat.v1.to_int64."""
    return cast(x, int64)
