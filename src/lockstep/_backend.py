"""Chooses Keras' backend, on import of lockstep."""

from __future__ import annotations

import os
import sys

from lockstep._runtime import failure, keras_import, memory
from lockstep.errors import StartupOrderError


def _choose_jax() -> None:
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "config") and keras.config.backend() != "jax":
        raise StartupOrderError(
            f"lockstep trains on Keras' JAX backend. Keras is already imported with {keras.config.backend()!r}. Put "
            "`import lockstep` above `import keras`, or set KERAS_BACKEND=jax in the environment."
        )
    os.environ["KERAS_BACKEND"] = "jax"


_choose_jax()
# Before XLA starts its threads, because each gets a heap of its own.
memory.keep()
keras_import.install()
failure.install()
