"""Keras' savers on several workers: each file takes its place whole, by a rename.

All workers of a job that run the same program save to the same path. Each writes beside it, under a name of its own,
and renames: whoever reads finds the whole file of one of them, at any time. Nobody waits for anybody, so one worker may
save alone.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import keras
from keras.src.legacy.saving import legacy_h5_format
from keras.src.saving import saving_lib

from lockstep._engine.keras.ownership import ownership
from lockstep._types import Model
from lockstep.checkpoint.internal import atomic as _atomic
from lockstep.checkpoint.internal import naming

# Files whose directory Keras does not make.
_IN_A_DIRECTORY = (".keras", ".weights.h5", ".weights.json")


def install() -> None:
    """Wraps what `model.save`, `save_weights`, `export` and the functions of `keras.saving` write with."""
    model: Any = keras.Model
    model.export = _whole(model.export)
    for module, name in (
        (saving_lib, "save_model"),
        (saving_lib, "save_weights_only"),
        (legacy_h5_format, "save_model_to_hdf5"),
    ):
        setattr(module, name, _whole(getattr(module, name)))


def _whole(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def write(model: Model, filepath: Any, *args: Any, **kwargs: Any) -> Any:
        path = _shared_path(model, filepath)
        if path is None:
            return theirs(model, filepath, *args, **kwargs)
        with naming(os.fspath(filepath)):
            directory = os.path.dirname(path)
            if not path.endswith(_IN_A_DIRECTORY):
                os.makedirs(directory, exist_ok=True)
            if os.path.isdir(directory):
                _atomic.remove_leftovers(directory)
            with _atomic.staged(path) as temporary:
                return theirs(model, temporary, *args, **kwargs)

    return write


def _shared_path(model: Model, filepath: Any) -> str | None:
    """Returns where several workers may be writing at once, or `None` for what Keras writes as it always does.

    That is what belongs to no strategy, or to one of this process alone; open files; addresses of remote storage; and
    what is no file, such as a pipe.
    """
    owned = ownership(model)
    if owned is None or owned.replicas.runtime.is_alone or not isinstance(filepath, (str, os.PathLike)):
        return None
    path = os.path.realpath(filepath)
    is_special = os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
    return None if "://" in os.fspath(filepath) or is_special else path
