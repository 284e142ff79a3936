"""Chooses Keras' JAX backend when lockstep is imported, and does nothing else."""

from __future__ import annotations

import os
import sys

from lockstep.errors import ArgumentError, StartupOrderError

_VARIABLE = "KERAS_BACKEND"
_BACKEND = "jax"


def choose_backend() -> None:
    """Sets KERAS_BACKEND for the import of Keras that follows, or checks the backend of a Keras that is there.

    Raises:
        ArgumentError: If the environment asks for another backend, and Keras is not imported yet.
        StartupOrderError: If Keras is imported, with another backend.
    """
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "config"):
        if (backend := keras.config.backend()) != _BACKEND:
            asked = os.environ.get(_VARIABLE)
            cause = f"{_VARIABLE} is {asked!r}" if asked else f"{_VARIABLE} is not set"
            raise StartupOrderError(
                "lockstep trains on Keras' JAX backend. Received: Keras, already imported, with "
                f"{backend!r} ({cause}). Put `import lockstep` above `import keras`, and leave {_VARIABLE} out; or set "
                f"{_VARIABLE}={_BACKEND}."
            )
        return
    # Keras writes a keras.json with its default, "tensorflow", at its first import: that file is nobody's choice.
    # The variable is somebody's, so another value is refused and not replaced.
    asked = os.environ.get(_VARIABLE) or _BACKEND
    if asked != _BACKEND:
        raise ArgumentError(
            f"lockstep trains on Keras' JAX backend: {_VARIABLE} must be {_BACKEND}, or not set. Received: {asked!r}. "
            f"Remove it (`unset {_VARIABLE}`, or the line of the program that sets it)."
        )
    os.environ[_VARIABLE] = _BACKEND
