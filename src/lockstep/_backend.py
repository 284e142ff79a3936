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
        _check_imported(keras.config.backend())
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


def _check_imported(backend: str) -> None:
    if backend == _BACKEND:
        return
    asked = os.environ.get(_VARIABLE)
    cause = f"{_VARIABLE} is {asked!r}" if asked else f"{_VARIABLE} is not set"
    raise StartupOrderError(
        f"lockstep trains on Keras' JAX backend. Received: Keras, already imported, with {backend!r} ({cause}). Put "
        f"`import lockstep` above `import keras`, and leave {_VARIABLE} out; or set {_VARIABLE}={_BACKEND}."
    )
