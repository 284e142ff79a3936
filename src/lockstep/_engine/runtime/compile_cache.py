"""Turns on JAX's persistent cache of compiled programs, in a directory that nobody else can write in.

The store, its keys and its settings are JAX's. `examples/mnist.py` on 2 cores came to its first step after 2.1 s with
it, and after 4.3 s or more without. Compiled programs are machine code: a user who can write there, or put another
directory in its place, can run code as this user.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_log = logging.getLogger("lockstep")
DIRECTORY = "LOCKSTEP_CACHE_DIR"
_SECONDS = "jax_persistent_cache_min_compile_time_secs"
# JAX's default: programs that were compiled faster are not kept.
_DEFAULT_SECONDS = 1.0
# Of a file while it is written; what is older was left by a process that was killed.
_UNFINISHED, _ABANDONED_SECONDS = ".unfinished", 3600.0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# As many as Linux follows.
_MAX_LINKS = 40

_is_enabled = False
# The cache's, if it is one of lockstep's.
_directory: str | None = None


class UnsafeDirectory(Exception):  # A reason to do without a cache, not an error.
    """A directory that another user may write in, or replace; the message says which, and why."""


def enable(process: int) -> None:
    """Sets JAX's cache directory, once per process, unless the program or its environment has, or has switched it off.

    It is `compiled` in `$LOCKSTEP_CACHE_DIR`, by default in the user's cache directory. There is no cache where that
    cannot be made, or others can write there.
    """
    global _is_enabled
    if _is_enabled or not hasattr(os, "geteuid"):
        return
    _is_enabled = True
    import jax

    settings: Any = jax.config
    if settings.jax_compilation_cache_dir or not settings.jax_enable_compilation_cache:
        return
    found = _find_directory()
    if found is None:
        return
    use(str(found))
    if process:
        write_on_this_process(str(found))
    _log.debug("Compiled programs are kept in %s.", found)


def use(path: str) -> None:
    """Sets JAX's cache directory."""
    global _directory
    import jax

    _directory = path
    settings: Any = jax.config
    jax.config.update("jax_compilation_cache_dir", path)
    if getattr(settings, _SECONDS) == _DEFAULT_SECONDS:
        # A start compiles dozens of small programs: reading one takes 1 ms, compiling it 10.
        jax.config.update(_SECONDS, 0.0)
    store_in_whole_files(path)


def directory() -> str | None:
    """Returns the directory of the cache, if this module has set it and it still is JAX's."""
    import jax

    settings: Any = jax.config
    return _directory if settings.jax_compilation_cache_dir == _directory else None


class _Store:
    """Compiled programs in the files of one directory, each of which is whole or not there."""

    def __init__(self, directory: str) -> None:
        self._path = Path(directory)  # JAX prints it.
        self._has_tidied = False

    def get(self, key: str) -> bytes | None:
        """Returns the program of a key, or `None`."""
        try:
            return self._file(key).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, key: str, value: bytes) -> None:
        """Writes the program of a key. JAX does so when there was none, or one that could not be read."""
        handle, unfinished = tempfile.mkstemp(_UNFINISHED, dir=self._path)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(value)
                self._tidy(os.fstat(handle).st_mtime)
            os.replace(unfinished, self._file(key))
        except BaseException:  # Also KeyboardInterrupt.
            os.unlink(unfinished)
            raise

    def _tidy(self, now: float) -> None:
        """Removes what processes that were killed have left, once; `now` is by the clock of the file system."""
        if self._has_tidied:
            return
        self._has_tidied = True
        for leftover in self._path.glob(f"*{_UNFINISHED}"):
            with contextlib.suppress(OSError):  # Another process removes it, too.
                if now - leftover.stat().st_mtime > _ABANDONED_SECONDS:
                    leftover.unlink()

    def _file(self, key: str) -> Path:
        return self._path / f"{key}-cache"  # As JAX names it.


def store_in_whole_files(directory: str) -> None:
    """Replaces JAX's store of compiled programs in `directory`, unless the user has it bounded or verified."""
    # JAX writes a program in place, and never again. A process that is killed meanwhile leaves the half of it, which
    # costs every later start a warning and the compilation; and so do other processes that read it meanwhile.
    import jax
    from jax._src import compilation_cache

    cache: Any = compilation_cache
    settings: Any = jax.config
    theirs = cache.get_file_cache

    def get_file_cache(path: str) -> tuple[Any, str] | None:
        is_bounded = settings.jax_compilation_cache_max_size != -1
        if path != directory or is_bounded or settings.jax_compilation_cache_check_contents:
            return theirs(path)
        return _Store(path), path

    cache.get_file_cache = get_file_cache


def write_on_this_process(directory: str) -> None:
    """Replaces JAX's writer of compiled programs, which writes on the first process alone."""
    # JAX reads the cache on all processes, but a key names the devices of one process (on CPUs), or the disk is one
    # machine's own, so that the others would compile every program at every start. Second start of `examples/mnist.py`
    # on two workers, to the first step: 5.2 CPU seconds with this, 9.8 without (2 cores, medians of two and three
    # runs). There is no public setting or hook, so this replaces a private function: `tests/project/private_parts.py`.
    import jax
    from jax._src import compilation_cache, compiler

    module: Any = compiler
    settings: Any = jax.config
    theirs = module._cache_write

    def cache_write(
        cache_key: str,
        compile_time_secs: float,
        module_name: str,
        backend: Any,
        executable: Any,
        host_callbacks: Sequence[Any] | None = None,
    ) -> None:
        # Of jax before 0.12; later ones can keep programs with callbacks, and do not pass them on.
        callbacks = () if host_callbacks is None else (host_callbacks,)
        if settings.jax_compilation_cache_dir != directory:
            theirs(cache_key, compile_time_secs, module_name, backend, executable, *callbacks)
            return
        # As in JAX: addresses of host callbacks are part of the program, and quick programs are not kept.
        if host_callbacks or compile_time_secs < settings.jax_persistent_cache_min_compile_time_secs:
            return
        try:
            compilation_cache.put_executable_and_time(
                cache_key, module_name, executable, backend, int(compile_time_secs)
            )
        except Exception as error:  # As in JAX: a program that cannot be kept is no reason to end.
            _log.debug("The compiled program %s is not kept: %s", module_name, error)

    module._cache_write = cache_write


def _find_directory() -> Path | None:
    try:
        return private_directory("compiled")
    except UnsafeDirectory as reason:
        given = os.environ.get(DIRECTORY)
        refused = f"{DIRECTORY}={given!r} is refused: " if given else ""
        _log.warning(
            "Compiled programs are kept only where no other user can write, and are not kept now: %s%s. Make it "
            "private (chmod go-w), let %s name a directory of your own, or set JAX_ENABLE_COMPILATION_CACHE=0.",
            *(refused, reason, DIRECTORY),
        )
    except (OSError, RuntimeError) as reason:  # No home directory, a read-only file system.
        _log.debug("Compiled programs cannot be kept in %s: %s", os.environ.get(DIRECTORY, "~"), reason)
    return None


def private_directory(name: str) -> Path:
    """Returns the directory `name` in `$LOCKSTEP_CACHE_DIR`, else in `lockstep` in the user's cache directory.

    Directories that are missing are made, for this user alone.

    Raises:
        UnsafeDirectory: If it can be written by others, or they can put another one in its place.
        OSError: If it cannot be made, or used.
    """
    base = _resolve(cache_root())
    found = base / name
    _make(found)
    for directory in (base, found):
        status = _status(directory)
        _check_owner(directory, status, (os.geteuid(),))
        if status.st_mode & _OTHERS_WRITE:
            raise UnsafeDirectory(f"others may write in {directory} (mode {stat.S_IMODE(status.st_mode):o})")
    return found


def cache_root() -> Path:
    """Returns the directory for `lockstep`'s caches: `$LOCKSTEP_CACHE_DIR`, or in the XDG base directory of caches."""
    if given := os.environ.get(DIRECTORY):
        return Path(given).absolute()
    standard = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(standard) if os.path.isabs(standard) else Path.home() / ".cache") / "lockstep"


def _resolve(path: Path) -> Path:
    """Returns `path` without links, after each directory above it was checked; makes directories that are missing."""
    here, links = Path(path.anchor), 0
    steps = list(reversed(path.parts[1:]))
    while steps:
        step = steps.pop()
        _check_parent(here)
        if step == os.pardir:
            here = here.parent
            continue
        found = _make(here / step)
        if stat.S_ISLNK(found.st_mode):
            # A link counts as its owner's, like a directory, and its target is walked in the same way.
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            _check_owner(here / step, found, (os.geteuid(), 0))
            target = Path(os.readlink(here / step))
            here = Path(target.anchor) if target.is_absolute() else here
            steps += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        else:
            here = here / step
    return here


def _make(path: Path) -> os.stat_result:
    """Returns the status of `path`, after making a directory there if nothing was."""
    if not os.path.lexists(path):
        with contextlib.suppress(FileExistsError):  # Another process has just made it.
            path.mkdir(mode=0o700)
    return os.lstat(path)


def _check_parent(directory: Path) -> None:
    """Raises `UnsafeDirectory` if others can replace the entries of a directory."""
    found = _status(directory)
    _check_owner(directory, found, (os.geteuid(), 0))
    # Where the sticky bit is set, as in /tmp, only the owner of an entry can replace it.
    if found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
        who = "everybody" if found.st_mode & stat.S_IWOTH else "a group"
        raise UnsafeDirectory(f"{who} may write in {directory}, which holds it (mode {stat.S_IMODE(found.st_mode):o})")


def _check_owner(path: Path, found: os.stat_result, owners: tuple[int, ...]) -> None:
    if found.st_uid not in owners:
        raise UnsafeDirectory(f"{path} belongs to another user (number {found.st_uid})")


def _status(directory: Path) -> os.stat_result:
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeDirectory(f"{directory} is not a directory")
    return found
