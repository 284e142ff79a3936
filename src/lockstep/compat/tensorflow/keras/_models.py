"""`tf.keras.models` and `tf.keras.saving`: loading and saving with the arguments of Keras 2."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import keras
from keras.src.legacy.saving import legacy_h5_format

from lockstep._types import Model
from lockstep.compat.tensorflow._saved_options import LoadOptions
from lockstep.compat.tensorflow._types import Argument, PathLike
from lockstep.compat.tensorflow.keras._own_models import with_own_lambdas
from lockstep.compat.tensorflow.keras._saves import recover
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["load_model", "save_model"]


def save_model(model: Model, filepath: PathLike, overwrite: bool = True, *args: Argument, **kwargs: Argument) -> None:
    """Saves a model to a `.keras` file, an HDF5 file, or a directory; the same as `model.save`.

    Source: `tf.keras.models.save_model`.
    """
    # The method has the formats of Keras 2 (see _patches/saving.py).
    model.save(filepath, overwrite, *args, **kwargs)


def load_model(
    filepath: str | os.PathLike[str],
    custom_objects: dict[str, Any] | None = None,
    compile: bool = True,
    options: object = None,
    safe_mode: bool = True,
) -> Any:
    """Loads what `model.save` saved: a `.keras` file, an HDF5 file of any name, or a directory.

    Args:
        filepath: Where the model lies.
        custom_objects: The classes and functions that its configuration names.
        compile: Whether to compile it as it was compiled.
        options: A `tf.saved_model.LoadOptions`, which changes no result.
        safe_mode: Whether to refuse lambda functions, which are code of whoever wrote the file. Those of models that
            this process has saved are the functions that they were.

    Returns:
        The model. Source: `tf.keras.models.load_model`.

    Raises:
        ArgumentError: If `options` is something else.
        UnsupportedError: If it is a SavedModel of TensorFlow.
    """
    if options is not None and not isinstance(options, LoadOptions):
        raise ArgumentError(f"options is a tf.saved_model.LoadOptions. Received: {options!r:.80}.")
    # A process that ended between two renames has left the model aside.
    recover(filepath)
    path = Path(filepath)
    if (path / "saved_model.pb").exists() and not (path / "config.json").exists():
        raise UnsupportedError(
            f"{path} is a SavedModel of TensorFlow, which only TensorFlow runs. Load it there, save it with "
            "model.save('name.keras') or model.save('name.h5'), and load that file here."
        )
    # Keras chooses the format by the ending, Keras 2 by the content.
    if not path.name.endswith((".h5", ".hdf5", ".keras")) and path.is_file() and h5py.is_hdf5(path):
        return legacy_h5_format.load_model_from_hdf5(str(path), custom_objects, compile, safe_mode=safe_mode)
    with with_own_lambdas(path) as (source, own):
        known = {**own, **(custom_objects or {})}
        return keras.models.load_model(
            source if own else filepath, custom_objects=known, compile=compile, safe_mode=safe_mode
        )
