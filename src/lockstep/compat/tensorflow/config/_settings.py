"""Settings of tf.config that JAX has, too."""

from __future__ import annotations

from typing import Any

import jax

from lockstep.errors import UnsupportedError

__all__ = ["functions_run_eagerly", "get_soft_device_placement", "run_functions_eagerly", "set_soft_device_placement"]


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Makes JAX carry out each operation by itself, for debugging, or compile again.

    It sets JAX's `jax_disable_jit`. Training under a strategy compiles all the same.

    Source: tf.config.run_functions_eagerly.
    """
    jax.config.update("jax_disable_jit", bool(run_eagerly))


def functions_run_eagerly() -> bool:
    """Returns whether JAX carries out each operation by itself. Source: tf.config.functions_run_eagerly."""
    return bool(getattr(jax.config, "jax_disable_jit"))  # noqa: B009  A setting that jax's types leave out.


def set_soft_device_placement(enabled: bool) -> None:
    """Accepts true: JAX computes where the values are. Raises `UnsupportedError` for false.

    Source: tf.config.set_soft_device_placement.
    """
    if not enabled:
        raise UnsupportedError("JAX computes where the values are, and never refuses a device. Leave the call out.")


def get_soft_device_placement() -> bool:
    """Returns true: JAX computes where the values are. Source: tf.config.get_soft_device_placement."""
    return True


def set_jit(enabled: Any) -> None:
    """Accepts true and "autoclustering": XLA compiles everything. Raises `UnsupportedError` for false.

    Source: tf.config.optimizer.set_jit.
    """
    # TensorFlow 2.15 takes both.
    if enabled not in (True, "autoclustering"):
        raise UnsupportedError("XLA compiles whatever JAX compiles. Leave the call out.")


def get_jit() -> str:
    """Returns "autoclustering": XLA compiles everything. Source: tf.config.optimizer.get_jit."""
    return "autoclustering"


def enable_tensor_float_32_execution(enabled: bool) -> None:
    """Lets GPUs multiply matrices in TensorFloat-32, which they do by default, or not. Source: tf.config.experimental.

    It sets JAX's `jax_default_matmul_precision`.
    """
    # None leaves it to XLA, which takes TensorFloat-32 where a GPU has it.
    jax.config.update("jax_default_matmul_precision", None if enabled else "float32")


def tensor_float_32_execution_enabled() -> bool:
    """Returns whether GPUs may multiply matrices in TensorFloat-32. Source: tf.config.experimental."""
    return jax.config.read("jax_default_matmul_precision") is None
