"""`Model.save_weights` and `load_weights` of prefixes (`cp.ckpt`) and of HDF5 files of Keras 2."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
from keras.src.legacy.saving import legacy_h5_format
from keras.src.utils import io_utils

from lockstep.compat.tensorflow.keras._saves import load_into, make_ready, read_checkpoint, whole_file, write_checkpoint
from lockstep.errors import ArgumentError, DataNotFoundError, UnsupportedError

_KERAS_3 = (".weights.h5", ".weights.json", ".keras")
_HDF5 = (".h5", ".hdf5")


def install() -> None:
    """Completes `keras.Model`."""
    model: Any = keras.Model
    model.save_weights = _saving(model.save_weights)
    model.load_weights = _loading(model.load_weights)


def _saving(theirs: Callable[..., None]) -> Callable[..., None]:
    def as_keras(model: Any, path: str) -> None:
        with whole_file(Path(os.path.abspath(path)), ".weights.h5") as temporary:
            theirs(model, temporary)

    @functools.wraps(theirs)
    def save_weights(self: Any, filepath: Any, overwrite: bool = True, *args: Any, **kwargs: Any) -> None:
        args, asked = _asked_format(args, kwargs)
        path = os.fspath(filepath)
        is_file = path.endswith(".weights.h5")
        if args or kwargs or "://" in path or (path.endswith(_KERAS_3) and not is_file):
            theirs(self, filepath, overwrite, *args, **kwargs)
            return
        is_hdf5 = asked in ("h5", "keras") or path.endswith(_HDF5)
        there = Path(path if is_hdf5 else f"{path}.index")
        if overwrite or not there.exists() or io_utils.ask_to_proceed_with_overwrite(path):
            (as_keras if is_file else _write_hdf5 if is_hdf5 else write_checkpoint)(self, path)

    return save_weights


def _asked_format(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], str | None]:
    """Takes Keras 2's arguments out; its third one is the format, Keras 3's a size."""
    asked = kwargs.pop("save_format", None)
    if args and isinstance(args[0], str):
        asked, args = args[0], args[1:]
    if asked not in (None, "tf", "h5", "keras"):
        raise ArgumentError(f"save_format is 'tf', 'h5' or 'keras': received {asked!r}.")
    _refuse_options(kwargs)
    return args, asked


def _refuse_options(kwargs: dict[str, Any]) -> None:
    if kwargs.pop("options", None) is not None:
        raise UnsupportedError("Weights are written by this process alone: options= was given. Leave it out.")


def _write_hdf5(model: Any, path: str) -> None:
    with whole_file(Path(os.path.abspath(path)), ".h5") as temporary, h5py.File(temporary, "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, model)


def _loading(theirs: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def load_weights(self: Any, filepath: Any, skip_mismatch: bool = False, *args: Any, **kwargs: Any) -> Any:
        _refuse_options(kwargs)
        if args:
            kwargs["by_name"], args = args[0], args[1:]
        if not kwargs.get("by_name", True):
            del kwargs["by_name"]
        path = Path(os.fspath(filepath))
        if (path / "model.weights.h5").exists() and (path / "config.json").exists():
            load_into(self, path / "model.weights.h5", skip_mismatch=skip_mismatch, **kwargs)
            return None
        if path.with_name(f"{path.name}.index").exists() or path.with_name(f"{path.name}.weights.h5").exists():
            return read_checkpoint(self, path, skip_mismatch=skip_mismatch, **kwargs)
        if not path.exists() and not path.name.endswith((*_KERAS_3, *_HDF5)) and "://" not in str(filepath):
            raise DataNotFoundError(f"No weights were saved at {path}: neither a file nor {path.name}.index is there.")
        if path.name.endswith(".weights.h5") and path.exists():
            make_ready(self, path)
        return theirs(self, filepath, skip_mismatch, *args, **kwargs)

    return load_weights
