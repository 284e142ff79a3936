"""Reading the files of an export, which may be damaged, or made to do harm.

Nothing is unpickled or evaluated; what is not as `write` leaves it is refused.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import export

from lockstep.errors import ArgumentError
from lockstep.saved_model import _arrays, _json, _names, _operations
from lockstep.saved_model._description import Description, FileInfo, TensorInfo

_Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Files:
    """What an export holds.

    Attributes:
        description: What it says about itself.
        variables: The stored values, by name.
        programs: By file.
    """

    description: Description
    variables: dict[str, _Array]
    programs: dict[str, export.Exported]


def maybe_saved_model_directory(export_dir: str | bytes | os.PathLike[str]) -> bool:
    """Whether a directory looks like an export; its files are not read.

    Args:
        export_dir: The directory.

    Source: tf.compat.v1.saved_model.maybe_saved_model_directory.
    """
    return (Path(os.fsdecode(export_dir)) / _names.DESCRIPTION_FILE).is_file()


def contains_saved_model(export_dir: str | bytes | os.PathLike[str]) -> bool:
    """Whether a directory looks like an export; its files are not read.

    Args:
        export_dir: The directory.

    Source: tf.saved_model.contains_saved_model.
    """
    return maybe_saved_model_directory(export_dir)


def read(directory: Path, safe_mode: bool = True) -> Files:
    """Reads an export.

    Args:
        directory: Where it is.
        safe_mode: Whether programs may hold no operations that reach beyond their own arrays.

    Raises:
        ArgumentError: If there is none, or it is damaged, or of another version; or, in safe mode, holds such
            operations.
    """
    try:
        description = _json.decoded(_description(directory))
        opened = {name: _verified(directory, name, info) for name, info in description.files.items()}
        variables = _variables(opened, description.variables)
        programs = {p.file: _program(opened, p.file) for s in description.signatures.values() for p in s.programs}
    except _json.Misunderstood as problem:
        raise unusable(directory, str(problem)) from problem
    if safe_mode:
        _demand_own_arrays(directory, programs)
    return Files(description, variables, programs)


def unusable(directory: Path, why: str) -> ArgumentError:
    """Returns the error about an export that cannot be used."""
    return ArgumentError(f"{directory} is not a usable export: {why}. Export the model again, or load another export.")


def _demand_own_arrays(directory: Path, programs: Mapping[str, export.Exported]) -> None:
    for name, program in programs.items():
        if found := _operations.foreign(program):
            raise ArgumentError(
                f"A program of an export computes with its own arrays. Received: {directory}/{name}, which holds "
                f"{found}: one that was made to do harm writes elsewhere in the memory of this process. If you know "
                "who made the export, as of functions of linear algebra, load it with safe_mode=False."
            )


def _description(directory: Path) -> bytes:
    try:
        return (directory / _names.DESCRIPTION_FILE).read_bytes()
    except OSError as error:
        raise _json.Misunderstood(_not_there(directory, error)) from error


def _not_there(directory: Path, error: OSError) -> str:
    if (directory / "saved_model.pb").exists() or (directory / "saved_model.pbtxt").exists():
        return "it was made by TensorFlow, whose programs only TensorFlow can run"
    if not directory.exists():
        return "there is no such directory"
    versions = sorted(str(path.parent) for path in directory.glob(f"*/{_names.DESCRIPTION_FILE}"))
    inside = f"; there are exports in it, the newest is {versions[-1]}" if versions else ""
    return f"it has no {_names.DESCRIPTION_FILE} ({error.strerror}){inside}"


def _verified(directory: Path, name: str, info: FileInfo) -> bytes:
    """Returns the bytes of a file."""
    _json.check_file(name)
    try:
        data = (directory / name).read_bytes()
    except OSError as error:
        raise _json.Misunderstood(
            f"its file {name} cannot be read ({error.strerror}); it may have been removed"
        ) from error
    if len(data) != info.size or hashlib.sha256(data).hexdigest() != info.sha256:
        raise _json.Misunderstood(f"its file {name} is damaged: not the {info.size} bytes that were written")
    return data


def _variables(opened: Mapping[str, bytes], infos: Mapping[str, TensorInfo]) -> dict[str, _Array]:
    if _names.VARIABLES_FILE not in opened:
        raise _json.Misunderstood(f"its file {_names.VARIABLES_FILE} is not among its files")
    looks = {name: (tuple(size or 0 for size in info.shape), jnp.dtype(info.dtype)) for name, info in infos.items()}
    try:
        return _arrays.read(opened[_names.VARIABLES_FILE], looks)
    except Exception as error:
        raise _json.Misunderstood(f"its variables cannot be read ({error})") from error


def _program(opened: Mapping[str, bytes], name: str) -> export.Exported:
    if name not in opened:
        raise _json.Misunderstood(f"its file {name} is not among its files")
    try:
        return export.deserialize(bytearray(opened[name]))
    except Exception as error:
        raise _json.Misunderstood(
            f"its program {name} is not understood ({error}); was it made by a newer jax?"
        ) from error
