"""Options of `tf.saved_model`, which say how TensorFlow writes its graphs."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["LoadOptions", "SaveOptions", "VariablePolicy"]


class VariablePolicy(enum.Enum):
    """How a variable of several replicas is saved: always once. Source: tf.saved_model.experimental.VariablePolicy."""

    NONE = None
    """Chooses TensorFlow's default."""
    SAVE_VARIABLE_DEVICES = "save_variable_devices"
    """Devices are those of the machine that loads it."""
    EXPAND_DISTRIBUTED_VARIABLES = "expand_distributed_variables"
    """The values of all replicas are one here."""


def _policy(value: object) -> VariablePolicy:
    name = value.lower() if isinstance(value, str) else value
    try:
        return VariablePolicy(None if name == "none" else name)
    except ValueError:
        raise ArgumentError(
            f"A policy is one of tf.saved_model.experimental.VariablePolicy. Received: {value!r:.60}."
        ) from None


class SaveOptions:
    """How an export is written: none of these changes what it computes. Source: tf.saved_model.SaveOptions."""

    def __init__(
        self,
        namespace_whitelist: Any = None,
        save_debug_info: bool = False,
        function_aliases: Mapping[str, Any] | None = None,
        experimental_debug_stripper: bool = False,
        experimental_io_device: str | None = None,
        experimental_variable_policy: Any = None,
        experimental_custom_gradients: bool = True,
        experimental_image_format: bool = False,
        experimental_skip_saver: bool = False,
    ) -> None:
        """Creates options.

        Args:
            namespace_whitelist: Names of TensorFlow's operations, which exports have none of.
            save_debug_info: Of TensorFlow's graphs.
            function_aliases: Of TensorFlow's graphs.
            experimental_debug_stripper: Of TensorFlow's graphs.
            experimental_io_device: Files are written by this process.
            experimental_variable_policy: Each variable is saved once.
            experimental_custom_gradients: An export is not trained further.
            experimental_image_format: One file holds any size.
            experimental_skip_saver: Of TensorFlow's graphs.
        """
        self.experimental_io_device = experimental_io_device
        self.experimental_variable_policy = _policy(experimental_variable_policy)
        self.experimental_custom_gradients = experimental_custom_gradients
        self.function_aliases = dict(function_aliases or {})
        self.save_debug_info = save_debug_info


class LoadOptions:
    """How an export is read: none of these changes what it computes. Source: tf.saved_model.LoadOptions."""

    def __init__(
        self,
        allow_partial_checkpoint: bool = False,
        experimental_io_device: str | None = None,
        experimental_skip_checkpoint: bool = False,
        experimental_variable_policy: Any = None,
        experimental_load_function_aliases: bool = False,
    ) -> None:
        """Creates options.

        Raises:
            UnsupportedError: If the variables are to be left out.
        """
        if experimental_skip_checkpoint or allow_partial_checkpoint:
            raise UnsupportedError("An export is read whole. Received: options that leave variables out.")
        self.experimental_io_device = experimental_io_device
        self.experimental_variable_policy = _policy(experimental_variable_policy)
        self.experimental_load_function_aliases = experimental_load_function_aliases
