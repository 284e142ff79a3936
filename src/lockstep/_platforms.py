"""Registers what is installed for a platform with the engine: the only place that imports it.

`_cpu` can be left out of an installation: then programs run on XLA and Gloo alone, and compute the same up to rounding.
"""

from __future__ import annotations


def register(platform: str) -> None:
    """Registers the backend for devices of a platform, if there is one and it is installed; once is enough."""
    if platform != "cpu":
        return
    try:
        from lockstep._cpu import register as register_cpu
    except ModuleNotFoundError as error:
        # It is there, but a part of it is not: that is a broken installation.
        if error.name != "lockstep._cpu":
            raise
        return
    register_cpu()
