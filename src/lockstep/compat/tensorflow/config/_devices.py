"""The devices of this machine, found without starting JAX, so that a strategy can still be created."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import jax

from lockstep._engine.runtime import local_devices
from lockstep.errors import ArgumentError, StartupOrderError, UnsupportedError

__all__ = ["LogicalDevice", "LogicalDeviceConfiguration", "PhysicalDevice", "get_visible_devices"]
__all__ += ["list_logical_devices", "list_physical_devices", "set_logical_device_configuration", "set_visible_devices"]

_KINDS = ("CPU", "GPU", "TPU")


class PhysicalDevice(NamedTuple):
    """A device of this machine. Source: tf.config.PhysicalDevice."""

    name: str
    device_type: str


class LogicalDevice(NamedTuple):
    """A device that JAX computes on. Source: tf.config.LogicalDevice."""

    name: str
    device_type: str


class LogicalDeviceConfiguration(NamedTuple):
    """Settings of one part of a divided device; memory cannot be limited for a part.

    Source: tf.config.LogicalDeviceConfiguration.
    """

    memory_limit: Any = None
    experimental_priority: Any = None
    experimental_device_ordinal: Any = None


def is_started() -> bool:
    """Returns whether JAX has looked for devices."""
    # Without a public name. jax.devices() would start JAX, and then no strategy could join its cluster.
    from jax._src import xla_bridge

    return xla_bridge.backends_are_initialized()


def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Returns the devices of this machine, "CPU" or "GPU" or "TPU" only if asked for.

    The CPU is one device, however it is divided.

    Source: tf.config.list_physical_devices.
    """
    # Only GPUs are counted without starting JAX; TPUs are known once it has started.
    counts = {"CPU": 1, "GPU": _count("GPU"), "TPU": _count("TPU")}
    return [
        PhysicalDevice(f"/physical_device:{k}:{i}", k) for k in _selected_kinds(device_type) for i in range(counts[k])
    ]


def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """Returns the devices that JAX computes on, which starts JAX: create strategies for several workers before.

    Source: tf.config.list_logical_devices.
    """
    # Before JAX starts: its pool takes its size then.
    local_devices.prepare_thread_pool()
    return [LogicalDevice(f"/device:{k}:{i}", k) for k in _selected_kinds(device_type) for i in range(_count_in_jax(k))]


def _selected_kinds(device_type: str | None) -> tuple[str, ...]:
    if device_type is None:
        return _KINDS
    return (device_type.upper(),) if device_type.upper() in _KINDS else ()


def _count(kind: str) -> int:
    if kind == "GPU":
        return local_devices.gpu_count()
    return _count_in_jax(kind) if is_started() else 0


def _count_in_jax(kind: str) -> int:
    try:
        return len(jax.local_devices(backend=kind.lower()))
    except RuntimeError:
        return 0


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Hides the other GPUs from JAX, or all with an empty list.

    Args:
        devices: Of `list_physical_devices`.
        device_type: "GPU"; the CPU is always there.

    Raises:
        ArgumentError: If devices are named that do not exist.
        StartupOrderError: If JAX has looked for devices already.

    Source: tf.config.set_visible_devices.
    """
    chosen: list[Any] = [devices] if isinstance(devices, PhysicalDevice) else list(devices)
    kinds = {device_type.upper()} if device_type else {d.device_type for d in chosen}
    # The CPU cannot be hidden, so that showing it changes nothing.
    if kinds <= {"CPU"} and chosen:
        return
    if kinds != {"GPU"} and kinds != {"CPU", "GPU"}:
        raise UnsupportedError(f"GPUs can be hidden, and nothing else. Received device_type {device_type!r}.")
    present = list_physical_devices("GPU")
    unknown = [d for d in chosen if d.device_type == "GPU" and d not in present]
    if unknown:
        raise ArgumentError(f"Devices must be of tf.config.list_physical_devices('GPU'). Received: {unknown}.")
    numbers = [g.name.rpartition(":")[2] for g in present if g in chosen]
    if len(numbers) == len(present):
        return
    _check_not_started("Devices are hidden")
    if numbers:
        # CUDA_VISIBLE_DEVICES would hide them from child processes, too.
        jax.config.update("jax_cuda_visible_devices", ",".join(numbers))
    else:
        jax.config.update("jax_platforms", "cpu")


def get_visible_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Returns the devices of this machine that are not hidden. Source: tf.config.get_visible_devices."""
    # All GPUs are hidden by JAX's platform, some by the list of devices.
    hidden = jax.config.read("jax_platforms") == "cpu"
    chosen = jax.config.read("jax_cuda_visible_devices")
    numbers = None if chosen in (None, "", "all") else set(str(chosen).split(","))
    devices = list_physical_devices(device_type)
    return [
        d
        for d in devices
        if d.device_type != "GPU" or (not hidden and (numbers is None or d.name.rpartition(":")[2] in numbers))
    ]


def set_logical_device_configuration(device: Any, logical_devices: Any) -> None:
    """Divides the CPU into several devices; memory limits are refused, and so are GPUs.

    Source: tf.config.set_logical_device_configuration.
    """
    if device.device_type != "CPU" or any(any(v is not None for v in c) for c in logical_devices):
        raise UnsupportedError(
            "Only the CPU can be divided, and no part has a memory limit. Received: "
            f"{device}. For GPU memory set XLA_PYTHON_CLIENT_MEM_FRACTION in the environment."
        )
    from lockstep.config import set_logical_cpu_devices

    set_logical_cpu_devices(len(logical_devices))


def set_memory_growth(device: Any, enable: bool) -> None:
    """Makes JAX take GPU memory as it needs it, or (the default) three quarters at the start; for all GPUs alike.

    It sets XLA_PYTHON_CLIENT_PREALLOCATE.

    Raises:
        StartupOrderError: If JAX has taken the memory already.

    Source: tf.config.experimental.set_memory_growth.
    """
    if device.device_type != "GPU":
        raise ArgumentError(f"Memory growth is a setting of GPUs. Received: {device}.")
    # Setting what is set already is no error after JAX has started, as programs set it for each GPU.
    if get_memory_growth(device) != bool(enable):
        _check_not_started("Memory growth is set")
        # The allocator reads it when JAX starts; there is no setting of jax.config for it.
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false" if enable else "true"


def get_memory_growth(device: Any) -> bool:
    """Returns whether JAX takes GPU memory as it needs it. Source: tf.config.experimental.get_memory_growth."""
    return os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "true").lower() in ("false", "0")


def _check_not_started(what: str) -> None:
    if is_started():
        raise StartupOrderError(f"{what} before JAX computes anything. Move the call up, right below the imports.")
