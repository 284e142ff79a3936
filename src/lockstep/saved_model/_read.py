"""Reader of the files of an export, which may be damaged, or made to do harm.

Nothing is unpickled or evaluated; what is not as `write` leaves it is refused.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import export
from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lockstep.errors import ArgumentError
from lockstep.saved_model import _arrays, _names
from lockstep.saved_model._description import Description, FileInfo, InvalidDescription, TensorInfo, check_file, decode

_CUSTOM_CALL = "stablehlo.custom_call"
# They wait for a host, or another process, that takes part.
_OF_OTHERS = frozenset(f"stablehlo.{name}" for name in ("infeed", "outfeed", "send", "recv"))
# What programs for any number of examples, on any kind of device, hold; jax or XLA replaces each by operations with
# checked shapes before it compiles.
_EXPANDED = frozenset(
    {
        "Sharding",
        "annotate_device_placement",
        "shape_assertion",
        "stablehlo.dynamic_approx_top_k",
        "stablehlo.dynamic_reduce_window",
        "stablehlo.dynamic_rng_bit_generator",
        "stablehlo.dynamic_top_k",
    }
)
_Array = np.ndarray[Any, np.dtype[Any]]


def find_foreign_operation(program: export.Exported) -> str | None:
    """Returns the first operation of a program that may reach beyond its arrays, for a message, or `None`.

    XLA checks the shapes of what it compiles itself. A custom call it only passes on, by name, to code that is
    registered in the process, with whatever arrays the program says: `lapack_sgetrf_ffi` with a result smaller than its
    operand writes beyond it. So those names are allowed that jax and XLA expand by themselves, and no others.
    """
    with mlir.make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, program.mlir_module_serialized)
        return next(filter(None, map(_foreign_name, _operations(module.operation))), None)


def _operations(operation: Any) -> Iterator[Any]:
    yield operation
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield from _operations(inner.operation)


def _foreign_name(operation: Any) -> str | None:
    if operation.name in _OF_OTHERS:
        return operation.name
    if operation.name != _CUSTOM_CALL:
        return None
    target = ir.StringAttr(operation.attributes["call_target_name"]).value
    return None if target in _EXPANDED else f"a custom call of {target!r}"


@dataclass(frozen=True)
class Files:
    """Contents of an export: its description, stored values by name, programs by file."""

    description: Description
    variables: dict[str, _Array]
    programs: dict[str, export.Exported]


def maybe_saved_model_directory(export_dir: str | bytes | os.PathLike[str]) -> bool:
    """Returns whether a directory looks like an export; its files are not read.

    Args:
        export_dir: The directory.

    Source: tf.compat.v1.saved_model.maybe_saved_model_directory.
    """
    return (Path(os.fsdecode(export_dir)) / _names.DESCRIPTION_FILE).is_file()


def contains_saved_model(export_dir: str | bytes | os.PathLike[str]) -> bool:
    """Returns whether a directory looks like an export; its files are not read.

    Args:
        export_dir: The directory.

    Source: tf.saved_model.contains_saved_model.
    """
    return maybe_saved_model_directory(export_dir)


def read(directory: Path, safe_mode: bool = True) -> Files:
    """Reads an export; raises `ArgumentError` for whatever `load` does not take."""
    try:
        description = decode(_read_description(directory))
        opened = {name: _read_file(directory, name, info) for name, info in description.files.items()}
        variables = _read_variables(opened, description.variables)
        programs = {p.file: _read_program(opened, p.file) for s in description.signatures.values() for p in s.programs}
    except InvalidDescription as problem:
        raise unusable_error(directory, str(problem)) from problem
    for name, program in programs.items() if safe_mode else ():
        if found := find_foreign_operation(program):
            raise ArgumentError(
                f"A program of an export computes with its own arrays. Received: {directory}/{name}, which holds "
                f"{found}: one that was made to do harm writes elsewhere in the memory of this process. If you know "
                "who made the export, as of functions of linear algebra, load it with safe_mode=False (lockstep "
                "export: --no-safe-mode)."
            )
    return Files(description, variables, programs)


def read_variables(directory: str | os.PathLike[str]) -> dict[str, _Array]:
    """Reads the values of an export's variables, by name."""
    # The programs are not run, and need not be safe.
    return read(Path(directory), safe_mode=False).variables


def unusable_error(directory: Path, why: str) -> ArgumentError:
    """Returns the error about an export that cannot be used."""
    return ArgumentError(f"{directory} is not a usable export: {why}. Export the model again, or load another export.")


def _read_description(directory: Path) -> bytes:
    try:
        return (directory / _names.DESCRIPTION_FILE).read_bytes()
    except OSError as error:
        # The usual mistakes: an export of TensorFlow's, a wrong path, the directory above the versions.
        if (directory / "saved_model.pb").exists() or (directory / "saved_model.pbtxt").exists():
            why = "it was made by TensorFlow, whose programs only TensorFlow can run"
        elif not directory.exists():
            why = "there is no such directory"
        else:
            versions = sorted(str(path.parent) for path in directory.glob(f"*/{_names.DESCRIPTION_FILE}"))
            inside = f"; there are exports in it, the newest is {versions[-1]}" if versions else ""
            why = f"it has no {_names.DESCRIPTION_FILE} ({error.strerror}){inside}"
        raise InvalidDescription(why) from error


def _read_file(directory: Path, name: str, info: FileInfo) -> bytes:
    # Before it is opened: a description that was made to do harm may name any file.
    check_file(name)
    try:
        data = (directory / name).read_bytes()
    except OSError as error:
        raise InvalidDescription(
            f"its file {name} cannot be read ({error.strerror}); it may have been removed"
        ) from error
    # Against damage, not against harm: who can change a file can change its digest.
    if len(data) != info.size or hashlib.sha256(data).hexdigest() != info.sha256:
        raise InvalidDescription(f"its file {name} is damaged: not the {info.size} bytes that were written")
    return data


def _read_variables(opened: Mapping[str, bytes], infos: Mapping[str, TensorInfo]) -> dict[str, _Array]:
    if _names.VARIABLES_FILE not in opened:
        raise InvalidDescription(f"its file {_names.VARIABLES_FILE} is not among its files")
    looks = {name: (tuple(size or 0 for size in info.shape), jnp.dtype(info.dtype)) for name, info in infos.items()}
    try:
        return _arrays.read(opened[_names.VARIABLES_FILE], looks)
    except Exception as error:
        raise InvalidDescription(f"its variables cannot be read ({error})") from error


def _read_program(opened: Mapping[str, bytes], name: str) -> export.Exported:
    if name not in opened:
        raise InvalidDescription(f"its file {name} is not among its files")
    try:
        return export.deserialize(bytearray(opened[name]))
    except Exception as error:
        raise InvalidDescription(
            f"its program {name} is not understood ({error}); was it made by a newer jax?"
        ) from error
