"""Compiles `products.c` for this machine, once, and keeps the result for the user's next processes."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path

import jax

from lockstep._runtime import processor
from lockstep._runtime.cache_directory import UnsafeDirectory, private_directory
from lockstep._runtime.signed_files import PARTIAL, SignedFiles

_log = logging.getLogger(__name__)
_SOURCE, _UPDATE = "products.c", "update.h"
_FLAGS = (
    *("-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC"),
    # XLA computes so, too: no errno, no traps. NaN, infinities and the order of sums are as they are written.
    *("-fno-math-errno", "-fno-trapping-math"),
)
# Compilers avoid the widest vectors, which slow down what lies between. Here nothing does. Not all know the flag.
_WIDE = "-mprefer-vector-width=512"
_SECONDS = 60
# Of the kept files.
_VERSION = "2"
# As Linux calls them; `products.c` is written for these. Without them no compiler need be started to find out.
_INSTRUCTIONS = {"avx2", "fma"}


@cache
def library(update: str = "") -> ctypes.CDLL | None:
    """Returns the compiled products, with an update or without; `None` where they cannot be compiled.

    Args:
        update: The text of `update.h`; none if empty.
    """
    try:
        return _compiled(update)
    except (OSError, RuntimeError, subprocess.SubprocessError, UnsafeDirectory) as reason:
        _log.debug("Products of matrices are left to XLA: %s", reason)
        return None


def key(update: str) -> str:
    """Names an update: the same text for the same processor, compiler and jax has the same name."""
    parts = (_VERSION, _source(), update, *_command(), *_FLAGS, processor.description(), jax.__version__)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _compiled(update: str) -> ctypes.CDLL:
    if not _command():
        raise RuntimeError("there is no C compiler (CC, cc, gcc, clang)")
    if not set(processor.description().split()) >= _INSTRUCTIONS:
        raise RuntimeError(f"the processor does not have all of {sorted(_INSTRUCTIONS)}, or does not tell")
    directory = private_directory("kernels")
    kept, files = directory / f"{key(update)}.so", SignedFiles(directory)
    code = files.read(kept)
    if code is None:
        with tempfile.TemporaryDirectory(dir=directory) as made:
            code = _compile(Path(made), update)
        files.write(kept, code)
    return _load(code, directory)


def _load(code: bytes, directory: Path) -> ctypes.CDLL:
    """Loads a library from a copy that nobody else has: a file that is cut short later ends who has mapped it."""
    with tempfile.NamedTemporaryFile(prefix=PARTIAL, dir=directory) as copy:
        copy.write(code)
        copy.flush()
        return ctypes.CDLL(copy.name)


def _compile(directory: Path, update: str) -> bytes:
    (directory / _SOURCE).write_text(_source(), encoding="utf-8")
    if update:
        (directory / _UPDATE).write_text(update, encoding="utf-8")
    target = directory / "products.so"
    command = [*_command(), *_FLAGS, f"-I{jax.ffi.include_dir()}", "-o", str(target), str(directory / _SOURCE), "-lm"]
    for flags in ([_WIDE], []):
        done = subprocess.run(
            [*command, *flags],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode == 0:
            return target.read_bytes()
    raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()[-2000:]}")


@cache
def _command() -> tuple[str, ...]:
    """The C compiler: what CC names, or the system's."""
    given = os.environ.get("CC", "").split()
    names = [given, ["cc"], ["gcc"], ["clang"]]
    return next(((path, *rest) for name, *rest in filter(None, names) if (path := shutil.which(name))), ())


@cache
def _source() -> str:
    return (resources.files("lockstep._native") / _SOURCE).read_text(encoding="utf-8")
