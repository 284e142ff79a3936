"""tf.debugging: checks."""

# ruff: noqa: F403

from __future__ import annotations

import logging as _logging

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._ops import checks as _checks
from lockstep.compat.tensorflow._ops.checks import *

__all__ = ["disable_traceback_filtering", "enable_traceback_filtering", "get_log_device_placement"]
__all__ += ["is_traceback_filtering_enabled", "set_log_device_placement"]
__all__ += _checks.__all__

_log_placement = False


def set_log_device_placement(enabled: bool) -> None:
    """Logs which devices there are, once, where it is true: what is compiled together runs on one of them.

    Source: tf.debugging.set_log_device_placement.
    """
    global _log_placement
    if enabled and not _log_placement:
        import jax

        _logging.getLogger("lockstep").warning("Operations run on: %s", ", ".join(map(str, jax.local_devices())))
    _log_placement = bool(enabled)


def get_log_device_placement() -> bool:
    """Returns what `set_log_device_placement` was called with. Source: tf.debugging.get_log_device_placement."""
    return _log_placement


def disable_traceback_filtering() -> None:
    """Shows JAX's own frames in tracebacks. Source: tf.debugging.disable_traceback_filtering."""
    import jax

    jax.config.update("jax_traceback_filtering", "off")


def enable_traceback_filtering() -> None:
    """Hides JAX's own frames in tracebacks, as it does by default. Source: tf.debugging.enable_traceback_filtering."""
    import jax

    jax.config.update("jax_traceback_filtering", "auto")


def is_traceback_filtering_enabled() -> bool:
    """Returns whether JAX's own frames are hidden. Source: tf.debugging.is_traceback_filtering_enabled."""
    import jax

    return jax.config.read("jax_traceback_filtering") != "off"


__getattr__ = _getter(__name__)
