"""How many GPUs JAX computes on, or would: JAX is not started to find out."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

_NVIDIA = Path("/proc/driver/nvidia/gpus")
_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")


def count() -> int:
    """Returns the number of GPUs of this process: those that JAX has found, or will find."""
    from jax._src import xla_bridge

    return _found() if xla_bridge.backends_are_initialized() else _usable()


def _found() -> int:
    import jax

    try:
        return len(jax.local_devices(backend="gpu"))
    except RuntimeError:
        return 0


def _usable() -> int:
    """Returns how many of NVIDIA's JAX has a plugin for, and the environment does not hide."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if not any(importlib.util.find_spec(p) for p in _PLUGINS) or (
        platforms and not {"cuda", "gpu"} & {*platforms.split(",")}
    ):
        return 0
    present = len(list(_NVIDIA.iterdir())) if _NVIDIA.is_dir() else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    named = [v for v in visible.split(",") if v.strip()]
    return min(present, len(named)) if "-1" not in named else 0
