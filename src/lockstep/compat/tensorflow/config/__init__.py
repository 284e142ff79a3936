"""tf.config: devices, and the few settings that JAX has, too."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow.config._devices import LogicalDevice as LogicalDevice
from lockstep.compat.tensorflow.config._devices import LogicalDeviceConfiguration as LogicalDeviceConfiguration
from lockstep.compat.tensorflow.config._devices import PhysicalDevice as PhysicalDevice
from lockstep.compat.tensorflow.config._devices import get_visible_devices as get_visible_devices
from lockstep.compat.tensorflow.config._devices import list_logical_devices as list_logical_devices
from lockstep.compat.tensorflow.config._devices import list_physical_devices as list_physical_devices
from lockstep.compat.tensorflow.config._devices import (
    set_logical_device_configuration as set_logical_device_configuration,
)
from lockstep.compat.tensorflow.config._devices import set_visible_devices as set_visible_devices
from lockstep.compat.tensorflow.config._settings import functions_run_eagerly as functions_run_eagerly
from lockstep.compat.tensorflow.config._settings import get_soft_device_placement as get_soft_device_placement
from lockstep.compat.tensorflow.config._settings import run_functions_eagerly as run_functions_eagerly
from lockstep.compat.tensorflow.config._settings import set_soft_device_placement as set_soft_device_placement

_LAZY = {name: f"{__name__}.{name}" for name in ("experimental", "optimizer")}

__all__ = ["LogicalDevice", "LogicalDeviceConfiguration", "PhysicalDevice", "experimental", "functions_run_eagerly"]
__all__ += ["get_soft_device_placement", "get_visible_devices", "list_logical_devices", "list_physical_devices"]
__all__ += ["optimizer", "run_functions_eagerly", "set_logical_device_configuration", "set_soft_device_placement"]
__all__ += ["set_visible_devices"]

__getattr__ = _missing.getter(__name__, _LAZY)
__dir__ = _missing.lister(globals(), _LAZY)
