"""`Model.save` with the formats and arguments of Keras 2."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import keras
from keras.src.legacy.saving import legacy_h5_format
from keras.src.utils import io_utils

from lockstep.compat.tensorflow.keras._saves import save_directory, whole_file
from lockstep.errors import ArgumentError, UnsupportedError

_HDF5 = (".h5", ".hdf5")
_FORMATS = (None, "tf", "h5", "keras")


def install() -> None:
    """Completes `keras.Model.save`."""
    model: Any = keras.Model
    model.save = _saving(model.save)


def _saving(theirs: Callable[..., None]) -> Callable[..., None]:
    writers = {
        "directory": _write_directory,
        "HDF5 file": _write_hdf5,
        "file": functools.partial(_write_as_keras, theirs),
    }

    @functools.wraps(theirs)
    def save(self: Any, filepath: Any, overwrite: bool = True, *args: Any, **kwargs: Any) -> None:
        form = _format(filepath, args, kwargs)
        if form is None:
            theirs(self, filepath, overwrite, *args, **kwargs)
            return
        with_optimizer = kwargs.pop("include_optimizer", True)
        if kwargs:
            raise ArgumentError(f"model.save() of a {form} has no argument {', '.join(kwargs)}. Leave it out.")
        if overwrite or not Path(filepath).exists() or io_utils.ask_to_proceed_with_overwrite(filepath):
            writers[form](self, os.path.abspath(filepath), with_optimizer)

    return save


def _format(filepath: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Returns which of our writers is to write, or None for Keras' own; takes Keras 2's arguments out of `kwargs`."""
    asked = kwargs.pop("save_format", None)
    if asked not in _FORMATS:
        raise ArgumentError(f"save_format is 'tf', 'h5' or 'keras': received {asked!r}.")
    kwargs.pop("save_traces", None)  # A configuration is saved, never a trace; code is not needed to load it.
    for name in ("signatures", "options"):
        if kwargs.pop(name, None) is not None:
            raise UnsupportedError(f"model.save() writes no SavedModel: {name}= was given. Use model.export().")
    path = os.fspath(filepath) if isinstance(filepath, os.PathLike) else filepath
    if args or kwargs.get("zipped") is not None or not isinstance(path, str) or "://" in path:
        return None
    if path.endswith(_HDF5) or (path.endswith(".keras") and asked in (None, "keras")):
        return "file"
    return {"keras": None, "h5": "HDF5 file"}.get(str(asked), "directory")


def _write_as_keras(theirs: Callable[..., None], model: Any, filepath: str, with_optimizer: bool) -> None:
    with (
        contextlib.nullcontext() if with_optimizer else _without_optimizer(model),
        whole_file(Path(filepath), Path(filepath).suffix) as temporary,
    ):
        theirs(model, temporary)


def _write_directory(model: Any, filepath: str, with_optimizer: bool) -> None:
    with contextlib.nullcontext() if with_optimizer else _without_optimizer(model):
        save_directory(model, filepath)


def _write_hdf5(model: Any, filepath: str, with_optimizer: bool) -> None:
    with whole_file(Path(filepath), ".h5") as temporary:
        legacy_h5_format.save_model_to_hdf5(model, str(temporary), True, with_optimizer)


@contextlib.contextmanager
def _without_optimizer(model: Any) -> Generator[None]:
    """While open, `model` looks as if it were not compiled."""
    held = vars(model)
    before = {name: held[name] for name in ("optimizer", "compiled") if name in held}
    held.update(optimizer=None, compiled=False)
    try:
        yield
    finally:
        del held["optimizer"]
        held.update(before)
