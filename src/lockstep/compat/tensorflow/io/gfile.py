"""tf.io.gfile: files of this machine, by Python's own means."""

from __future__ import annotations

import contextlib as _contextlib
import glob as _glob
import os as _os
import shutil as _shutil
from collections.abc import Iterator as _Iterator
from pathlib import Path as _Path
from typing import IO as _IO
from typing import Any as _Any

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._types import Argument as _Argument
from lockstep.compat.tensorflow._types import PathLike as _PathLike
from lockstep.compat.tensorflow.errors import AlreadyExistsError as _AlreadyExistsError
from lockstep.compat.tensorflow.errors import PermissionDeniedError as _PermissionDeniedError
from lockstep.compat.tensorflow.io._files import path_of as _path_of
from lockstep.errors import DataNotFoundError as _DataNotFoundError

__all__ = ["GFile", "copy", "exists", "glob", "isdir", "isfile", "join", "listdir", "makedirs", "mkdir", "remove"]
__all__ += ["rename", "rmtree", "stat", "walk"]


@_contextlib.contextmanager
def _tensorflows_errors() -> _Iterator[None]:
    """Raises the system's errors as those of tf.errors, which are the system's classes, too."""
    try:
        yield
    except FileNotFoundError as error:
        raise _DataNotFoundError(f"The file must exist. Received: {error.filename}.") from None
    except PermissionError as error:
        raise _PermissionDeniedError(f"The system does not allow it. Received: {error.filename}.") from None


def GFile(name: _PathLike, mode: str = "r") -> _IO[_Any]:
    """Opens a file, as `open` does. Source: tf.io.gfile.GFile.

    Raises:
        DataNotFoundError: If it is to be read and is not there.
    """
    # Python's own file: readers that want bytes give "rb", as TensorFlow's do.
    with _tensorflows_errors():
        return open(_path_of(name), mode)


def exists(path: _PathLike) -> bool:
    """Returns whether there is such a file or directory. Source: tf.io.gfile.exists."""
    return _os.path.exists(_path_of(path))


def isdir(path: _PathLike) -> bool:
    """Returns whether it is a directory. Source: tf.io.gfile.isdir."""
    return _os.path.isdir(_path_of(path))


def isfile(path: _PathLike) -> bool:
    """Returns whether it is a file."""
    return _os.path.isfile(_path_of(path))


def glob(pattern: _PathLike) -> list[str]:
    """Returns what matches a pattern, or a list of patterns, sorted. Source: tf.io.gfile.glob."""
    # TensorFlow takes one pattern or several.
    patterns = pattern if isinstance(pattern, (list, tuple)) else [pattern]
    return [p for part in patterns for p in sorted(_glob.glob(_path_of(part)))]


def listdir(path: _PathLike) -> list[str]:
    """Returns the names in a directory. Source: tf.io.gfile.listdir."""
    with _tensorflows_errors():
        return _os.listdir(_path_of(path))


def makedirs(path: _PathLike) -> None:
    """Makes a directory, and those above it; it may be there already. Source: tf.io.gfile.makedirs."""
    # TensorFlow's succeeds if the directory is there.
    _os.makedirs(_path_of(path), exist_ok=True)


def mkdir(path: _PathLike) -> None:
    """Makes a directory. Source: tf.io.gfile.mkdir."""
    # It may be there, and it is no error.
    if not isdir(path):
        with _tensorflows_errors():
            _os.mkdir(_path_of(path))


def remove(path: _PathLike) -> None:
    """Removes a file. Source: tf.io.gfile.remove."""
    with _tensorflows_errors():
        _os.remove(_path_of(path))


def rmtree(path: _PathLike) -> None:
    """Removes a directory and all in it. Source: tf.io.gfile.rmtree."""
    with _tensorflows_errors():
        _shutil.rmtree(_path_of(path))


def copy(src: _PathLike, dst: _PathLike, overwrite: bool = False) -> None:
    """Copies a file; raises AlreadyExistsError if the target exists, unless `overwrite`. Source: tf.io.gfile.copy."""
    _refuse_existing(dst, overwrite)
    with _tensorflows_errors():
        _shutil.copyfile(_path_of(src), _path_of(dst))


def rename(src: _PathLike, dst: _PathLike, overwrite: bool = False) -> None:
    """Moves a file or directory; raises AlreadyExistsError if the target exists, unless `overwrite`.

    Source: tf.io.gfile.rename.
    """
    _refuse_existing(dst, overwrite)
    # os.rename would fail on Windows if the target is there.
    with _tensorflows_errors():
        _os.replace(_path_of(src), _path_of(dst))


def _refuse_existing(path: _PathLike, overwrite: bool) -> None:
    if not overwrite and exists(path):
        raise _AlreadyExistsError(f"{_path_of(path)} exists. Give overwrite=True to replace it.")


def join(path: _PathLike, *paths: _PathLike) -> str:
    """Joins parts of a path. Source: tf.io.gfile.join."""
    return _os.path.join(_path_of(path), *map(_path_of, paths))


def stat(path: _PathLike) -> _os.stat_result:
    """Returns what the system knows of a file. Source: tf.io.gfile.stat."""
    with _tensorflows_errors():
        return _Path(_path_of(path)).stat()


def walk(
    top: _PathLike, topdown: bool = True, onerror: _Argument = None
) -> _Iterator[tuple[str, list[str], list[str]]]:
    """Walks through a tree of directories, as `os.walk`. Source: tf.io.gfile.walk."""
    return _os.walk(_path_of(top), topdown, onerror)


__getattr__ = _getter(__name__)
