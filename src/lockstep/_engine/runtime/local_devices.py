"""Local devices: virtual CPU devices with a thread pool that is large enough, and the number of GPUs.

XLA's CPU client runs the devices of a process on one thread pool, as large as the machine has cores. The devices of a
collective operation wait for each other on its threads: with 2 devices on 2 cores a step with collectives hung until
XLA aborted the process after 60 s; with `NPROC`, from which XLA sizes the pool, at twice the number of devices, 4, 8,
16 and 32 devices ran on 2 cores. We take four times.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import Any

from lockstep.errors import ArgumentError, StartupOrderError

_POOL = "NPROC"
_THREADS_PER_DEVICE = 4
_MIN_THREADS_PER_DEVICE = 2


def pool_size(devices: int) -> int:
    """Returns the thread pool that `devices` virtual CPU devices need, on top of the machine's cores."""
    return max(os.cpu_count() or 1, devices * _THREADS_PER_DEVICE)


def set_logical_cpu_devices(count: int) -> None:
    """Splits this machine's CPU into `count` devices, as TensorFlow's `set_logical_device_configuration` does.

    Args:
        count: Number of devices, at least 1. More devices than cores are fine: they share them.

    Raises:
        ArgumentError: If `count` is not a positive integer.
        StartupOrderError: If JAX has started already; call this right after `import lockstep`.
    """
    if type(count) is not int or count < 1:
        raise ArgumentError(f"The number of CPU devices must be a positive integer. Received: {count!r}. Example: 4")
    import jax
    from jax._src import xla_bridge

    if xla_bridge.backends_are_initialized():
        raise StartupOrderError(
            f"CPU devices must be set before JAX computes anything. Received: {count} after its start. Call "
            "lockstep.config.set_logical_cpu_devices right after `import lockstep`, or start the program with "
            f"`lockstep run --workers 1 --devices-per-worker {count}`."
        )
    jax.config.update("jax_num_cpu_devices", count)
    prepare_thread_pool()


def prepare_thread_pool() -> None:
    """Enlarges XLA's thread pool for the CPU devices that are configured; once the backend runs, it is too late."""
    from jax._src import xla_bridge

    devices = configured_devices()
    if devices > 1 and _pool() < pool_size(devices) and not xla_bridge.backends_are_initialized():
        os.environ[_POOL] = str(pool_size(devices))


def share_machine(tasks: int) -> None:
    """Gives XLA's thread pool this task's part of the machine, which so many tasks of the job share.

    With three tasks on two cores, each with a pool of two threads, handing work over between threads took 12 % of the
    CPU time of a step of 5 ms. A pool that the environment sets stays, and once the backend runs it is too late.
    """
    from jax._src import xla_bridge

    is_free = _POOL not in os.environ and configured_devices() == 1 and not xla_bridge.backends_are_initialized()
    if tasks > 1 and is_free:
        os.environ[_POOL] = str(-(-(os.cpu_count() or 1) // tasks))


def compute_where_called() -> None:
    """Has XLA compute in the thread that calls a program, for tasks that wait for each program at once.

    The threads to hand work over to, and back, would have to be woken: two workers and a server on two cores made 9 %
    fewer updates so. Several devices need threads of their own, and once the backend runs it is too late.
    """
    import jax

    if configured_devices() == 1:
        jax.config.update("jax_cpu_enable_async_dispatch", False)


def bound_cores() -> int:
    """Returns how many cores this process is bound to; where that cannot be known, the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_cores() -> int:
    """Returns how many cores this process may compute on: those that it is bound to, and its part of the machine."""
    return min(bound_cores(), _pool())


def check_thread_pool(devices: int) -> None:
    """Raises `StartupOrderError` if the pool, now that the backend runs, is too small for `devices`."""
    if devices > 1 and _pool() < devices * _MIN_THREADS_PER_DEVICE:
        raise StartupOrderError(
            f"{devices} virtual CPU devices need a thread pool of at least {devices * _MIN_THREADS_PER_DEVICE} in XLA, "
            f"which has {_pool()}: their collective operations would wait for each other for ever. Create the strategy "
            "before JAX computes anything, use lockstep.config.set_logical_cpu_devices, or start the program with "
            f"{_POOL}={pool_size(devices)} in its environment."
        )


def configured_devices() -> int:
    """Returns how many CPU devices JAX has, or will have once it starts."""
    import jax

    settings: Any = jax.config
    # The flag came before the setting, and still works.
    flag = re.search(r"--xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return max(int(settings.jax_num_cpu_devices), int(flag[1]) if flag else 1)


def _pool() -> int:
    text = os.environ.get(_POOL, "")
    return int(text) if text.isdecimal() and int(text) > 0 else os.cpu_count() or 1


_NVIDIA = Path("/proc/driver/nvidia/gpus")
_DEVICES = Path("/dev")
_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")


def gpu_count() -> int:
    """Returns the number of GPUs of this process: those that JAX has found, or will find."""
    from jax._src import xla_bridge

    # To ask JAX would start it, and it must not start before a cluster is joined.
    if not xla_bridge.backends_are_initialized():
        return _usable_gpus()
    import jax

    try:
        return len(jax.local_devices(backend="gpu"))
    except RuntimeError:
        return 0


def nvidia_gpus() -> int:
    """Returns how many GPUs of NVIDIA this machine has, whether or not JAX can use them."""
    # Some sandboxes show the devices, and not the driver's own list of them.
    listed = len(list(_NVIDIA.iterdir())) if _NVIDIA.is_dir() else 0
    return listed or len([d for d in _DEVICES.glob("nvidia*") if d.name.removeprefix("nvidia").isdecimal()])


def _usable_gpus() -> int:
    """Returns how many of NVIDIA's GPUs JAX has a plugin for, and the environment does not hide."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if not any(importlib.util.find_spec(p) for p in _PLUGINS) or (
        platforms and not {"cuda", "gpu"} & {*platforms.split(",")}
    ):
        return 0
    present = nvidia_gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    named = [v for v in visible.split(",") if v.strip()]
    return min(present, len(named)) if "-1" not in named else 0
