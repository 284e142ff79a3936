"""`Model.save`, `save_weights` and `load_weights` with the formats, paths and arguments of Keras 2."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import h5py
import keras
from keras.src.legacy.saving import legacy_h5_format
from keras.src.utils import io_utils

from lockstep._types import Model
from lockstep.compat.tensorflow._saved_options import SaveOptions
from lockstep.compat.tensorflow._spec import TensorSpec
from lockstep.compat.tensorflow._types import Argument, PathLike
from lockstep.compat.tensorflow.keras._own_models import note_lambdas
from lockstep.compat.tensorflow.keras._patches._patch import adds, replaces
from lockstep.compat.tensorflow.keras._saves import (
    load_into,
    make_ready,
    read_checkpoint,
    save_directory,
    whole_file,
    write_checkpoint,
)
from lockstep.compat.tensorflow.keras._text_inputs import functional_of
from lockstep.errors import ArgumentError, DataNotFoundError, UnsupportedError

# Endings that Keras 2 writes as HDF5.
_HDF5 = (".h5", ".hdf5")
_FORMATS = (None, "tf", "h5", "keras")
# Endings that Keras 3 writes by itself.
_KERAS_3 = (".weights.h5", ".weights.json", ".keras")


@replaces(keras.Model, "save")
def _save(
    original: Callable[..., None],
    self: Model,
    filepath: PathLike,
    overwrite: bool = True,
    *args: Argument,
    **kwargs: Argument,
) -> None:
    form = _choose_form(filepath, args, kwargs)
    if form is None:
        original(self, filepath, overwrite, *args, **kwargs)
        return
    with_optimizer = kwargs.pop("include_optimizer", True)
    if kwargs:
        raise ArgumentError(f"model.save() of a {form} has no argument {', '.join(kwargs)}. Leave it out.")
    if not overwrite and Path(filepath).exists() and not io_utils.ask_to_proceed_with_overwrite(filepath):
        return
    target = Path(os.path.abspath(filepath))
    if form == "HDF5 file":
        with whole_file(target, ".h5") as temporary:
            legacy_h5_format.save_model_to_hdf5(self, str(temporary), True, with_optimizer)
        return
    with contextlib.nullcontext() if with_optimizer else _without_optimizer(self):
        if form == "directory":
            save_directory(self, target)
            return
        with whole_file(target, target.suffix) as temporary:
            original(self, temporary)
        note_lambdas(self)


def _choose_form(filepath: PathLike, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Returns what is written here, or None if Keras' own method is to; removes Keras 2's arguments from `kwargs`."""
    asked = kwargs.pop("save_format", None)
    if asked not in _FORMATS:
        raise ArgumentError(f"save_format is 'tf', 'h5' or 'keras': received {asked!r}.")
    kwargs.pop("save_traces", None)  # A configuration is saved, never a trace; code is not needed to load it.
    if kwargs.pop("signatures", None) is not None:
        raise UnsupportedError("model.save() writes no SavedModel: signatures= was given. Use tf.saved_model.save().")
    options = kwargs.pop("options", None)
    if options is not None and not isinstance(options, SaveOptions):
        raise ArgumentError(f"options is a tf.saved_model.SaveOptions. Received: {options!r:.80}.")
    path = os.fspath(filepath) if isinstance(filepath, os.PathLike) else filepath
    # Keras' own: its newer arguments, and remote paths, which are no files that could be replaced.
    if args or kwargs.get("zipped") is not None or not isinstance(path, str) or "://" in path:
        return None
    if path.endswith(_HDF5) or (path.endswith(".keras") and asked in (None, "keras")):
        return "file"
    # No ending: Keras 3 refuses it, Keras 2 writes a directory.
    return {"keras": None, "h5": "HDF5 file"}.get(str(asked), "directory")


@contextlib.contextmanager
def _without_optimizer(model: Model) -> Generator[None]:
    """Hides that `model` is compiled while it is open."""
    # Through the instance's dict: Keras' __setattr__ would track the optimizer anew.
    held = vars(model)
    before = {name: held[name] for name in ("optimizer", "compiled") if name in held}
    held.update(optimizer=None, compiled=False)
    try:
        yield
    finally:
        del held["optimizer"]
        held.update(before)


@replaces(keras.Model, "save_weights")
def _save_weights(
    original: Callable[..., None],
    self: Model,
    filepath: PathLike,
    overwrite: bool = True,
    *args: Argument,
    **kwargs: Argument,
) -> None:
    asked = kwargs.pop("save_format", None)
    # Keras 2's third argument is the format, Keras 3's a size.
    if args and isinstance(args[0], str):
        asked, args = args[0], args[1:]
    if asked not in _FORMATS:
        raise ArgumentError(f"save_format is 'tf', 'h5' or 'keras': received {asked!r}.")
    _check_options(kwargs)
    path = os.fspath(filepath)
    is_file = path.endswith(".weights.h5")
    if args or kwargs or "://" in path or (path.endswith(_KERAS_3) and not is_file):
        original(self, filepath, overwrite, *args, **kwargs)
        return
    is_hdf5 = asked in ("h5", "keras") or path.endswith(_HDF5)
    there = Path(path if is_hdf5 else f"{path}.index")
    if not overwrite and there.exists() and not io_utils.ask_to_proceed_with_overwrite(path):
        return
    target = Path(os.path.abspath(path))
    if is_file:
        with whole_file(target, ".weights.h5") as temporary:
            original(self, temporary)
    elif is_hdf5:
        with whole_file(target, ".h5") as temporary, h5py.File(temporary, "w") as file:
            legacy_h5_format.save_weights_to_hdf5_group(file, self)
    else:
        write_checkpoint(self, path)


def _check_options(kwargs: dict[str, Any]) -> None:
    if kwargs.pop("options", None) is not None:
        raise UnsupportedError("Weights are written by this process alone: options= was given. Leave it out.")


@replaces(keras.Model, "load_weights")
def _load_weights(
    original: Callable[..., None],
    self: Model,
    filepath: PathLike,
    skip_mismatch: bool = False,
    *args: Argument,
    **kwargs: Argument,
) -> Any:
    _check_options(kwargs)
    if args:
        # Keras 2's second argument.
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
    # Keras refuses an optimizer's values before the first step; Keras 2 kept them until then.
    if path.name.endswith(".weights.h5") and path.exists():
        make_ready(self, path)
    return original(self, filepath, skip_mismatch, *args, **kwargs)


@adds(keras.Model, "save_spec")
def _save_spec(self: Model, dynamic_batch: bool = True) -> Any:
    """Returns specs of the inputs that the model was built for, as (args, kwargs); `None` before it is built."""

    def spec(shape: tuple[int | None, ...], dtype: str) -> TensorSpec:
        return TensorSpec((None, *shape[1:]) if dynamic_batch else shape, dtype)

    if not self.built:
        return None
    if getattr(self, "inputs", None):
        struct = functional_of(self)._inputs_struct
        return (keras.tree.map_structure(lambda tensor: spec(tuple(tensor.shape), tensor.dtype), struct),), {}
    shapes = getattr(self, "_build_shapes_dict", None)
    if not shapes:
        return None
    return (
        keras.tree.map_shape_structure(lambda s: spec(tuple(s), self.compute_dtype), next(iter(shapes.values()))),
    ), {}
