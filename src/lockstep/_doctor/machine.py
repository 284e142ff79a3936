"""Checks of the machine: memory, processors, descriptors, directories, the secret, and the clock."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lockstep._doctor.finding import Finding, error, note, ok, size, warning
from lockstep._engine.runtime import local_devices

_LOW_MEMORY = 2 << 30
_LOW_SHARED_MEMORY = 256 << 20
_FEW_DESCRIPTORS = 1024
_LOW_SPACE = 1 << 30
_PROBE_BYTES = 16 << 20
# Two machines whose clocks differ by more confuse logs and `make`, though not lockstep, which compares no clocks.
_CLOCK_SECONDS = 1.0
# File systems that one machine has for itself.
_OWN_FILE_SYSTEMS = frozenset({"tmpfs", "overlay", "ext4", "ext3", "xfs", "btrfs", "zfs", "ramfs"})


def memory() -> Iterator[Finding]:
    """Yields memory, with the limit of the container, processors, and descriptors."""
    total, available = _memory_info("MemTotal"), _memory_info("MemAvailable")
    limit = _cgroup_limit()
    # /proc/meminfo is the host's, also in a container.
    usable = available if limit is None else min(available, limit)
    text = f"{size(available)} of {size(total)} are free" + (f"; the container may use {size(limit)}" if limit else "")
    advice = "Run fewer tasks here, or smaller batches; SIGKILL (exit code 137) is what the kernel does without memory."
    figures = {"total": total, "available": available, "limit": limit}
    yield warning("memory", text, advice, **figures) if usable < _LOW_MEMORY else ok("memory", text, **figures)
    with contextlib.suppress(OSError):
        found = os.statvfs("/dev/shm")
        free = found.f_bavail * found.f_frsize
        text = f"/dev/shm has {size(free)}, through which tasks of one machine and NCCL exchange gradients"
        remedy = "In a container: --shm-size=2g, or an emptyDir with medium: Memory at /dev/shm."
        yield warning("memory", text, remedy, shm=free) if free < _LOW_SHARED_MEMORY else ok("memory", text, shm=free)
    cores = local_devices.bound_cores()
    yield ok("memory", f"{cores} of {os.cpu_count()} processors", processors=cores)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} open files at most"
    if soft < _FEW_DESCRIPTORS:
        yield warning("memory", text, f"ulimit -n {hard}: each task of a job is a connection of the first.", files=soft)


def _memory_info(key: str) -> int:
    try:
        found = re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(found[1]) << 10 if found else pages


def _cgroup_limit() -> int | None:
    """Returns the bytes that the container may use, `None` without a limit; of cgroups 2 and 1."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limit = int(Path(path).read_text())
            # Version 1 writes a number near 2**63 for no limit.
            return limit if limit < 1 << 60 else None
    return None


def compile_cache() -> Iterator[Finding]:
    """Yields the directory of compiled programs."""
    from lockstep._engine.runtime import compile_cache as cache

    try:
        directory = cache.private_directory("compiled")
    except cache.UnsafeDirectory as reason:
        text = f"Compiled programs are not kept: {reason}"
        yield warning("compile cache", text, f"chmod go-w, or let {cache.DIRECTORY} name a directory of your own.")
        return
    except (OSError, RuntimeError) as reason:
        text = f"Compiled programs are not kept: {reason}"
        yield warning("compile cache", text, f"Let {cache.DIRECTORY} name a directory that can be written to.")
        return
    sizes = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
    text = f"{directory}: {len(sizes)} files, {size(sum(sizes))}"
    free = shutil.disk_usage(directory).free
    if free < _LOW_SPACE:
        yield warning("compile cache", f"{text}; {size(free)} left", f"rm -r {directory}", free=free)
    else:
        yield ok("compile cache", text, directory=str(directory), files=len(sizes), bytes=sum(sizes))


def secret(has_other_machines: bool) -> Iterator[Finding]:
    """Yields the job's secret: whether there is one, whether it is long enough, and who can read it."""
    from lockstep._engine.runtime import authentication
    from lockstep.errors import ArgumentError

    make = 'python -c "import secrets; print(secrets.token_hex(32))"'
    try:
        found = authentication.secret_from_environment()
    except ArgumentError as problem:
        yield error("secret", str(problem), f"Give all tasks the same one: {make}")
        return
    if not found.is_set:
        text = f"Neither {authentication.VARIABLE} nor {authentication.FILE_VARIABLE} is set"
        if has_other_machines:
            advice = f"Set the same on all tasks: {make}"
            yield warning("secret", f"{text}: whoever reaches the first task can join", advice, is_set=False)
        else:
            yield ok("secret", f"{text}; `lockstep run` makes one for the tasks of one machine", is_set=False)
        return
    path = os.environ.get(authentication.FILE_VARIABLE)
    if path is not None and Path(path).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        yield warning("secret", f"Others can read {path}", f"chmod go-rwx {path}", is_set=True)
    else:
        yield ok("secret", "A secret is set; all tasks must have the same", is_set=True)


def shared_directory(directory: Path | None, has_other_machines: bool) -> Iterator[Finding]:
    """Yields whether checkpoints can be kept in the directory, how fast, and whether other machines can see it."""
    if directory is None:
        if has_other_machines:
            advice = "--shared DIR checks the one that checkpoints go to."
            yield note("shared directory", "No directory was given", advice)
        return
    name = str(directory)
    try:
        speed, skew = _probe(directory)
    except OSError as problem:
        text = f"{name} cannot be used: {problem.strerror or problem}"
        yield error("shared directory", text, "Make it, mount it, or let this user write there.", directory=name)
        return
    kind, free = _file_system(directory), shutil.disk_usage(directory).free
    text = f"{name} ({kind}): {speed / 1e6:.0f} MB/s written and on disk, {size(free)} free"
    figures = {"directory": name, "kind": kind, "bytes_per_second": speed, "free": free}
    if has_other_machines and kind in _OWN_FILE_SYSTEMS:
        advice = "Every task must see the same files: mount NFS or the like there. `--cluster` finds out."
        yield warning("shared directory", f"{text}; this kind of file system is this machine's own", advice, **figures)
    elif free < _LOW_SPACE:
        advice = "Free some space: a checkpoint that does not fit ends training."
        yield warning("shared directory", text, advice, **figures)
    else:
        yield ok("shared directory", text, **figures)
    if abs(skew) > _CLOCK_SECONDS:
        way = "ahead of" if skew > 0 else "behind"
        text = f"The clock of {name}'s server is {abs(skew):.1f} s {way} this machine's"
        yield warning("clocks", text, "Let both follow one time server (chrony, systemd-timesyncd).", skew=skew)


def _probe(directory: Path) -> tuple[float, float]:
    """Writes, renames and removes a file; returns bytes a second, and how far the server's clock is ahead.

    Raises:
        OSError: If one of these is not possible.
    """
    # A name of its own: several tasks may look at the same directory at once.
    descriptor, name = tempfile.mkstemp(prefix=".lockstep-doctor-", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            began = time.perf_counter()
            file.write(os.urandom(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
            taken = time.perf_counter() - began
        # As checkpoints are made: under another name, then renamed.
        os.replace(name, f"{name}.done")
        name = f"{name}.done"
        # Without a time of ours, so that the server of a network file system sets its own.
        os.utime(name)
        skew = os.stat(name).st_mtime - time.time()
        if os.path.getsize(name) != _PROBE_BYTES:
            raise OSError(f"{name} has another size than was written")
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)
    return _PROBE_BYTES / taken, skew


def _file_system(directory: Path) -> str:
    """Returns the kind of file system that a directory is on, by the longest mount point above it."""
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return "unknown"
    here = directory.resolve()
    mounts = [line.split()[1:3] for line in lines]
    above = [(len(point), kind) for point, kind in mounts if here.is_relative_to(point.replace("\\040", " "))]
    # The last of those that are equally long is mounted over the others.
    return max(enumerate(above), key=lambda each: (each[1][0], each[0]))[1][1] if above else "unknown"
