"""tf.saved_model's options: exports have none, so that each must be left as it is."""

from __future__ import annotations

from typing import Any, ClassVar

from lockstep.errors import UnsupportedError

__all__ = ["LoadOptions", "SaveOptions"]


def _check_defaults(kind: str, given: dict[str, Any], defaults: dict[str, Any]) -> None:
    for name, value in given.items():
        if name not in defaults:
            raise TypeError(f"{kind}() got an unexpected keyword argument {name!r}")
        if value != defaults[name] and value not in (None, [], {}):
            raise UnsupportedError(
                f"Exports hold a program for all devices, without graphs. {kind} must be left as it is. Received: "
                f"{name}={value!r}."
            )


class SaveOptions:
    """Options of tf.saved_model.save, none of which an export needs. Source: tf.saved_model.SaveOptions."""

    _DEFAULTS: ClassVar[dict[str, Any]] = {
        "namespace_whitelist": None,
        "save_debug_info": False,
        "function_aliases": None,
        # Where files are written: all of this process's are local.
        "experimental_io_device": "/job:localhost",
        "experimental_variable_policy": None,
        "experimental_custom_gradients": True,
        "experimental_image_format": False,
        "experimental_skip_saver": False,
    }

    def __init__(self, **kwargs: Any) -> None:
        _check_defaults("SaveOptions", kwargs, self._DEFAULTS)


class LoadOptions:
    """Options of tf.saved_model.load, none of which an export needs. Source: tf.saved_model.LoadOptions."""

    _DEFAULTS: ClassVar[dict[str, Any]] = {
        "allow_partial_checkpoint": False,
        "experimental_io_device": "/job:localhost",
        "experimental_skip_checkpoint": False,
        "experimental_variable_policy": None,
        "experimental_load_function_aliases": False,
    }

    def __init__(self, **kwargs: Any) -> None:
        _check_defaults("LoadOptions", kwargs, self._DEFAULTS)
