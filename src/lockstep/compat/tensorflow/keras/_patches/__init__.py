"""What importing this package changes in Keras' own classes; `keras/__init__.py` lists it for users."""

from __future__ import annotations

from lockstep.compat.tensorflow.keras._patches import (
    compiling,
    generators,
    inference,
    layer,
    losses,
    metric,
    optimizer,
    pictures,
    saving,
    sequential,
    variable,
    weights,
)

__all__ = ["install"]

_installed = False


def install() -> None:
    """Makes all changes, once per process."""
    global _installed
    if _installed:
        return
    _installed = True
    for part in (layer, sequential, optimizer, metric, losses, compiling):
        part.install()
    for part in (generators, inference, pictures, saving, variable, weights):
        part.install()
