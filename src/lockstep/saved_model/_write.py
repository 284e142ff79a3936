"""Writing exports."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lockstep
from lockstep.errors import ArgumentError
from lockstep.saved_model import _arrays, _directories, _host_functions, _names, _parsing
from lockstep.saved_model._description import (
    TEXT,
    Description,
    FileInfo,
    Lookup,
    OutputInfo,
    ProgramInfo,
    SignatureInfo,
    TensorInfo,
    encode,
)
from lockstep.saved_model._function import SignatureFunction, input_infos, program_infos_by_path
from lockstep.saved_model._programs import BATCH, Lowered, Traced, lower_signature

_Array = np.ndarray[Any, np.dtype[Any]]
Functions = Mapping[str, SignatureFunction]


def write(
    directory: str | bytes | os.PathLike[str],
    functions: Functions,
    variables: Mapping[str, Any],
    assets: Mapping[str, str | os.PathLike[str]] | None = None,
    as_text: bool = False,
) -> str:
    """Exports functions with their variables to a directory, which appears when it is complete.

    Args:
        directory: The new directory; it must not exist, or be empty.
        functions: The signatures, by name.
        variables: Arrays, by name; functions take all of them.
        assets: Files to copy to the directory's `assets.extra`: source by name, which may be a relative path.
        as_text: Write each program as text, too: StableHLO, in files that end with ".mlir".

    Returns:
        The directory.

    Raises:
        ArgumentError: If an argument is wrong.
        UnsupportedError: If a function cannot be exported.
        CheckpointError: If a file cannot be written, such as on a full disk.
        Exception: Whatever a function raises while it is traced.

    Source: tf.saved_model.save.
    """
    content = _Content(functions, variables, assets, as_text)
    return _directories.create(os.fsdecode(directory), content.fill)


def write_version(
    base: str | bytes | os.PathLike[str],
    functions: Functions,
    variables: Mapping[str, Any],
    assets: Mapping[str, str | os.PathLike[str]] | None = None,
    as_text: bool = False,
) -> str:
    """Exports to a new directory in `base` whose name is the time, in seconds since 1970.

    Args:
        base: The directory above it.
        functions: As for `write`.
        variables: As for `write`.
        assets: As for `write`.
        as_text: As for `write`.

    Returns:
        The directory.

    Raises:
        ArgumentError: As `write`.
        UnsupportedError: As `write`.
        CheckpointError: As `write`.

    Source: how tf.estimator.Estimator.export_saved_model names directories.
    """
    content = _Content(functions, variables, assets, as_text)
    return _directories.create_version(os.fsdecode(base), content.fill)


class _Content:
    """Content of an export directory; everything is computed before anything is written."""

    def __init__(
        self, functions: Functions, variables: Mapping[str, Any], assets: Mapping[str, Any] | None, as_text: bool
    ) -> None:
        if not functions and not assets:
            raise ArgumentError("An export has at least one signature, or files of assets. Received neither.")
        for kind, names in (("variable", variables), ("signature", functions)):
            for name in names:
                if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise ArgumentError(f"The name of a {kind} is text. Received: {name!r}.")
        self._variables = _arrays.as_variables(variables)
        self._assets = {name: Path(os.fsdecode(source)) for name, source in (assets or {}).items()}
        # Before anything is traced, which may take minutes.
        for name, source in self._assets.items():
            _check_asset(name, source)
        self._programs: dict[str, bytes] = {}
        self._made: dict[tuple[int, str], tuple[Traced, list[Lowered], tuple[ProgramInfo, ...]]] = {}
        self._as_text = as_text
        self._signatures = {n: self._signature(n, f) for n, f in functions.items()}

    def fill(self, directory: Path) -> None:
        """Writes all files."""
        # The description comes last; the directory appears after that, and so has all it names.
        for name, data in self._programs.items():
            _file(directory, name).write_bytes(data)
        with _file(directory, _names.VARIABLES_FILE).open("wb") as file:
            _arrays.write(file, self._variables)
        needed = [_names.VARIABLES_FILE, *(p.file for s in self._signatures.values() for p in s.programs)]
        for name, source in self._assets.items():
            shutil.copyfile(source, _file(directory, f"{_names.ASSETS_DIRECTORY}/{name}"))
        description = Description(
            self._signatures,
            {name: TensorInfo(array.shape, array.dtype.name) for name, array in self._variables.items()},
            {name: _file_info(directory / name) for name in needed},
            {"lockstep": lockstep.__version__, "jax": jax.__version__},
        )
        _file(directory, _names.DESCRIPTION_FILE).write_bytes(encode(description))

    def _signature(self, name: str, signature: SignatureFunction) -> SignatureInfo:
        inputs = input_infos(signature)
        infos = program_infos_by_path(inputs, signature.parse)
        # The same function of the same inputs under another name is the same program: Estimators export one head as
        # "serving_default" and "predict". An id is good while the function lives, which the caller's mapping sees to.
        key = (id(signature.function), str(infos))
        if key not in self._made:
            trace, programs = lower_signature(name, signature, self._variables)
            self._made[key] = (trace, programs, tuple(self._program(name, program) for program in programs))
        trace, programs, program_infos = self._made[key]
        return SignatureInfo(
            tags=tuple(signature.tags),
            method=signature.method,
            inputs=inputs,
            outputs=_outputs(trace, programs[-1], infos),
            parse={name: _parsing.as_json(spec) for name, spec in signature.parse.items()},
            lookups=tuple(Lookup(a.path, _host_functions.as_json(a.function), a.dtype) for a in trace.asked),
            programs=program_infos,
            tied=trace.tied,
            x64=jax.dtypes.canonicalize_dtype(np.float64) == np.float64,
        )

    def _program(self, name: str, program: Lowered) -> ProgramInfo:
        file = f"{_names.PROGRAMS_DIRECTORY}/{self._unique(name, program)}"
        self._programs[file + _names.PROGRAM_SUFFIX] = bytes(program.exported.serialize())
        if self._as_text:
            self._programs[file + _names.TEXT_SUFFIX] = program.exported.mlir_module().encode()
        # The text is for people; what is loaded is the serialised form, which jax promises to read for six months.
        wanted = program.range
        platforms = tuple(program.exported.platforms)
        return ProgramInfo(file + _names.PROGRAM_SUFFIX, platforms, program.left_out, wanted.least, wanted.most)

    def _unique(self, name: str, program: Lowered) -> str:
        """Returns the name of a file: that of the signature, as far as files may be called so."""
        # Compared without case: some file systems do not tell "A" from "a".
        plain = "_" if not name or name[0] in ".-" else ""
        plain += re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:100] + (f".{program.range.most}" if program.range.most else "")
        taken = {PurePosixPath(file).stem.lower() for file in self._programs}
        number = next(i for i in range(len(taken) + 1) if f"{plain}{i or ''}".lower() not in taken)
        return f"{plain}{number or ''}"


def _check_asset(name: str, source: Path) -> None:
    path = PurePosixPath(name)
    # Nothing may land outside of the export, whoever chose the name.
    if not name or path.is_absolute() or ".." in path.parts:
        raise ArgumentError(
            f"A file of assets gets a relative path inside of the export. Received: {name!r}. Example: "
            "{'vocabulary.txt': '/data/vocabulary.txt'}"
        )
    if not source.is_file():
        raise ArgumentError(f"A file of assets is copied from where it is. Received for {name!r}: {source}, no file.")


def _file(directory: Path, name: str) -> Path:
    # Names of assets may have directories of their own.
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _file_info(path: Path) -> FileInfo:
    # Of the file as it was written: a short write shows when the export is read, not when it is served.
    with path.open("rb") as file:
        return FileInfo(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _outputs(trace: Traced, program: Lowered, infos: Mapping[str, TensorInfo]) -> dict[str, OutputInfo]:
    avals = jax.tree.unflatten(program.exported.out_tree, program.exported.out_avals)
    outputs: dict[str, OutputInfo] = {}
    for name, note in trace.notes.items():
        # Text that is an input goes round the program, which takes no text.
        if note.source is not None:
            info = infos[note.source]
            outputs[name] = OutputInfo(info, info.shape[:1] == (None,), source=note.source)
            continue
        shape = tuple(size if isinstance(size, int) else None for size in avals[name].shape)
        batched = bool(shape) and str(avals[name].shape[0]) == BATCH
        dtype = jnp.dtype(avals[name].dtype).name if note.vocabulary is None else TEXT
        outputs[name] = OutputInfo(TensorInfo(shape, dtype), batched, vocabulary=note.vocabulary)
    return outputs
