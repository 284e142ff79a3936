"""TensorFlow's device names, as devices of this process."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lockstep import _platforms
from lockstep._engine.runtime import local_devices
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep._engine.step.replicas import Device

_log = logging.getLogger("lockstep")
# "/gpu:0", "GPU:0", "cpu:1", "/device:GPU:0", "/job:localhost/replica:0/task:0/device:GPU:0"
# A job and a task may be named, as in TensorFlow, and are not looked at: a strategy's names are of its own process.
_NAME = re.compile(r"(?:/?job:[^/]+)?(?:/replica:\d+)?(?:/task:\d+)?/?(?:device:)?(cpu|gpu|tpu):(\d+)", re.IGNORECASE)
# JAX's names of platforms, where TensorFlow has others.
_KINDS = {"cuda": "gpu", "rocm": "gpu"}
_EXAMPLE = 'Examples: "/gpu:0", "GPU:1", "cpu:0".'


def ready_device(name: str) -> Device:
    """Returns the device that `device_or_host` finds, once a replica can run on it."""
    return _ready([device_or_host(name)])[0]


def devices_named(names: Sequence[str]) -> list[Device]:
    """Returns the local devices called `names`."""
    if isinstance(names, str) or not names:
        raise ArgumentError(f"devices must be a list of at least one device name. Received: {names!r}. {_EXAMPLE}")
    found = _hosts_for(names) or [device_named(n) for n in names]
    if len(set(found)) < len(found):
        raise ArgumentError(f"Each device can hold one replica. Received a device twice: {list(names)!r}. {_EXAMPLE}")
    return _ready(found)


def device_or_host(name: str) -> Device:
    """Returns the local device called `name`; the CPU, with a warning, in place of an accelerator that is not there.

    Raises:
        ArgumentError: If the name is malformed.
    """
    match = _NAME.fullmatch(name.strip()) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if match is not None and match[1].lower() != "cpu" and not _of_kind(match[1].lower()):
        _warn_of_host(name)
        return _of_kind("cpu")[0]
    return device_named(name)


def _hosts_for(names: Sequence[str]) -> list[Device]:
    """Returns CPU devices in place of accelerators none of which are there, as many as there are; else none."""
    matches = [_NAME.fullmatch(name.strip()) for name in names if isinstance(name, str)]  # pyright: ignore[reportUnnecessaryIsInstance]
    kinds = {"cpu" if match is None else match[1].lower() for match in matches}
    if "cpu" in kinds or len(set(names)) < len(names) or any(map(_of_kind, kinds)):
        return []
    for name in names:
        _warn_of_host(name)
    return _of_kind("cpu")[: len(names)]


@functools.cache
def _warn_of_host(name: str) -> None:
    # Once for each name: a program may make its strategy in a loop.
    _log.warning("There is no %s on this machine; the CPU is used, as TensorFlow does.", name)


def device_named(name: str) -> Device:
    """Returns the local device called `name`; raises `ArgumentError` if it is malformed or there is none."""
    match = _NAME.fullmatch(name.strip()) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if match is None:
        raise ArgumentError(f"A device must be named by type and number. Received: {name!r}. {_EXAMPLE}")
    kind, number = match[1].lower(), int(match[2])
    available = _of_kind(kind)
    if number >= len(available):
        raise ArgumentError(_absent(name, kind, len(available)))
    return available[number]


def name_of(device: Device, task: object = None) -> str:
    """Returns TensorFlow's full name of a device of this process.

    Args:
        device: A device of JAX.
        task: The task of a cluster that this process is, as "worker 1" or `None` for a process alone.
    """
    job, _, number = ("localhost 0" if task is None else str(task)).partition(" ")
    platform = str(device.platform)
    kind = _KINDS.get(platform, platform).upper()
    # JAX numbers all processes' devices through; TensorFlow those of one task.
    return f"/job:{job}/replica:0/task:{number or 0}/device:{kind}:{device.local_hardware_id or 0}"


def default_devices() -> list[Device]:
    """Returns this process' accelerators, or its CPU devices if it has none."""
    import jax

    local_devices.prepare_thread_pool()
    # Asked for after the pool is prepared: this starts the backend, and XLA reads NPROC then and never again.
    return _ready(jax.local_devices())


def _ready(devices: list[Device]) -> list[Device]:
    """Returns devices of one kind, once replicas can run on them: every strategy gets its devices from here."""
    platform = devices[0].platform
    local_devices.check_thread_pool(len(devices) if platform == "cpu" else 1)
    # Here and not with an import, which must have no effect; and which platform counts is known only now.
    _platforms.register(platform)
    return devices


def _of_kind(kind: str) -> list[Device]:
    import jax

    local_devices.prepare_thread_pool()
    try:
        return jax.local_devices(backend=kind)
    # jax's answer where the machine, or jax's build, has no such backend.
    except RuntimeError:
        return []


def _absent(name: str, kind: str, count: int) -> str:
    have = f"{count} {kind.upper()} device{'s' if count != 1 else ''}"
    advice = (
        "Split the CPU with lockstep.config.set_logical_cpu_devices, right after `import lockstep`."
        if kind == "cpu"
        else "Leave `devices` out to use whatever there is, or check the driver and jax's build for it (jax[cuda])."
    )
    return f"A device must exist on this machine. Received: {name!r}; JAX finds {have} here. {advice}"
