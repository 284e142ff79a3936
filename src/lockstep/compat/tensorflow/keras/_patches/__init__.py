"""Changes of Keras' own classes; README.md of `lockstep.compat.tensorflow` lists them, and says why each is needed."""

from __future__ import annotations

from lockstep.compat.tensorflow.keras._patches import layers, metrics, models, optimizers, saving, variable

__all__ = ["install"]

_is_installed = False


def install() -> None:
    """Makes all changes, once per process."""
    global _is_installed
    # Each change wraps the method that it finds: made twice, it would wrap its own wrapper.
    if _is_installed:
        return
    _is_installed = True
    for part in (layers, metrics, models, optimizers, saving, variable):
        part.install()
