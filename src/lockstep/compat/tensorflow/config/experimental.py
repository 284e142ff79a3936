"""tf.config.experimental: older names of what is in tf.config, and GPU memory."""

from __future__ import annotations

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow.config._devices import LogicalDeviceConfiguration as VirtualDeviceConfiguration
from lockstep.compat.tensorflow.config._devices import get_memory_growth as get_memory_growth
from lockstep.compat.tensorflow.config._devices import get_visible_devices as get_visible_devices
from lockstep.compat.tensorflow.config._devices import list_logical_devices as list_logical_devices
from lockstep.compat.tensorflow.config._devices import list_physical_devices as list_physical_devices
from lockstep.compat.tensorflow.config._devices import (
    set_logical_device_configuration as set_virtual_device_configuration,
)
from lockstep.compat.tensorflow.config._devices import set_memory_growth as set_memory_growth
from lockstep.compat.tensorflow.config._devices import set_visible_devices as set_visible_devices
from lockstep.compat.tensorflow.config._settings import (
    enable_tensor_float_32_execution as enable_tensor_float_32_execution,
)
from lockstep.compat.tensorflow.config._settings import (
    tensor_float_32_execution_enabled as tensor_float_32_execution_enabled,
)

__all__ = ["VirtualDeviceConfiguration", "enable_tensor_float_32_execution", "get_memory_growth", "get_visible_devices"]
__all__ += ["list_logical_devices", "list_physical_devices", "set_memory_growth", "set_virtual_device_configuration"]
__all__ += ["set_visible_devices", "tensor_float_32_execution_enabled"]

__getattr__ = _getter(__name__)
