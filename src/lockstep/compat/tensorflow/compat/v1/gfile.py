"""tf.compat.v1.gfile: tf.io.gfile under TensorFlow 1's names, whose arguments have other names, too."""

from __future__ import annotations

from collections.abc import Iterator as _Iterator
from dataclasses import dataclass as _dataclass

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._types import Argument as _Argument
from lockstep.compat.tensorflow._types import PathLike as _PathLike
from lockstep.compat.tensorflow.io import gfile as _gfile

__all__ = ["Copy", "DeleteRecursively", "Exists", "FastGFile", "GFile", "Glob", "IsDirectory", "ListDirectory"]
__all__ += ["MakeDirs", "MkDir", "Open", "Remove", "Rename", "Stat", "Walk"]

Open = FastGFile = GFile = _gfile.GFile


@_dataclass(frozen=True)
class _FileStatistics:
    length: int
    mtime_nsec: int
    is_directory: bool


def Exists(filename: _PathLike) -> bool:
    """Returns whether there is such a file or directory. Source: tf.compat.v1.gfile.Exists."""
    return _gfile.exists(filename)


def IsDirectory(dirname: _PathLike) -> bool:
    """Returns whether it is a directory. Source: tf.compat.v1.gfile.IsDirectory."""
    return _gfile.isdir(dirname)


def Glob(filename: _PathLike) -> list[str]:
    """Returns what matches a pattern, or a list of patterns, sorted. Source: tf.compat.v1.gfile.Glob."""
    return _gfile.glob(filename)


def ListDirectory(dirname: _PathLike) -> list[str]:
    """Returns the names in a directory. Source: tf.compat.v1.gfile.ListDirectory."""
    return _gfile.listdir(dirname)


def MakeDirs(dirname: _PathLike) -> None:
    """Makes a directory, and those above it; it may be there already. Source: tf.compat.v1.gfile.MakeDirs."""
    _gfile.makedirs(dirname)


def MkDir(dirname: _PathLike) -> None:
    """Makes a directory. Source: tf.compat.v1.gfile.MkDir."""
    _gfile.mkdir(dirname)


def Remove(filename: _PathLike) -> None:
    """Removes a file. Source: tf.compat.v1.gfile.Remove."""
    _gfile.remove(filename)


def DeleteRecursively(dirname: _PathLike) -> None:
    """Removes a directory and all in it. Source: tf.compat.v1.gfile.DeleteRecursively."""
    _gfile.rmtree(dirname)


def Copy(oldpath: _PathLike, newpath: _PathLike, overwrite: bool = False) -> None:
    """Copies a file; see tf.io.gfile.copy. Source: tf.compat.v1.gfile.Copy."""
    _gfile.copy(oldpath, newpath, overwrite)


def Rename(oldname: _PathLike, newname: _PathLike, overwrite: bool = False) -> None:
    """Moves a file or directory; see tf.io.gfile.rename. Source: tf.compat.v1.gfile.Rename."""
    _gfile.rename(oldname, newname, overwrite)


def Stat(filename: _PathLike) -> _FileStatistics:
    """Returns the length of a file, when it was changed, and whether it is a directory.

    Source: tf.compat.v1.gfile.Stat.
    """
    known = _gfile.stat(filename)
    return _FileStatistics(known.st_size, known.st_mtime_ns, _gfile.isdir(filename))


def Walk(top: _PathLike, in_order: bool = True, **_: _Argument) -> _Iterator[tuple[str, list[str], list[str]]]:
    """Walks through a tree of directories, each before what is in it if `in_order`.

    Source: tf.compat.v1.gfile.Walk.
    """
    return _gfile.walk(top, in_order)


__getattr__ = _getter(__name__)
