"""Tasks of a launch: their names, addresses and environments."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

from lockstep._launch.options import Options
from lockstep.errors import AddressError

# The exit code of a task that was asked to end, and has: 128 + SIGTERM.
PREEMPTED = 143
# Threads of XLA's pool, however few devices: it runs the operations of all of them.
_SMALLEST_POOL = 16
_SHARE_OF_GRACE = 0.8
LOCAL_HOST = "127.0.0.1"
# XLA allocates the memory of a program anew each time that it runs on the CPU, and glibc gives large blocks back to the
# system at once, which then has to clear their pages again: half of the time of a step of MobileNetV2 at batch 16. Here
# blocks come from a heap that does not shrink, in pages of 2 MB. One for all threads: glibc's other heaps have no room
# for more than 64 MB, and map what is larger, whatever `mmap_max` says. Steps in ms with a heap a core and with one, on
# a 2-core EPYC: VGG16 440 and 385, a vision transformer 210 and 187, MobileNetV2 on pictures of 224x224 520 and 376,
# ConvNeXtTiny 183 and 172; MLPs of 0.1 and 0.5 ms, a GRU and an encoder took the same. Threads keep blocks of at most
# 64 bytes for themselves: glibc cuts 96 off an aligned block, and without them the next one would not fit where the
# last one was (`host_memory.separate_large_blocks`).
_TUNABLES = {
    "hugetlb": 1,
    "mmap_max": 0,
    "trim_threshold": 1 << 40,
    "top_pad": 1 << 26,
    "arena_max": 1,
    "tcache_max": 64,
}


@dataclass(frozen=True)
class Task:
    """A task of the cluster."""

    kind: str
    index: int

    def __str__(self) -> str:
        """Returns the name in labels and messages, `worker 0`."""
        return f"{self.kind} {self.index}"

    @property
    def stem(self) -> str:
        """The name in file names, `worker-0`."""
        return f"{self.kind}-{self.index}"

    @property
    def is_evaluator(self) -> bool:
        """Returns whether the task stands beside the training: its failure does not stop the others."""
        return self.kind == "evaluator"


def tasks_of(options: Options) -> list[Task]:
    """Returns the tasks to start, those that train first, and of them the one that writes."""
    chief = [Task("chief", 0)] if options.chief else []
    workers = [Task("worker", index) for index in range(options.workers)]
    servers = [Task("ps", index) for index in range(options.servers)]
    evaluator = [Task("evaluator", 0)] if options.evaluator else []
    return [*chief, *workers, *servers, *evaluator]


def error_file(task: Task, directory: Path) -> Path:
    """Returns the path of the file for the error of `task`."""
    return directory / f"{task.stem}.json"


def progress_file(task: Task, directory: Path) -> Path:
    """Returns the path of the file for the progress of `task`."""
    return directory / f"{task.stem}.progress.json"


def environment(
    task: Task,
    cluster: Mapping[str, Sequence[str]],
    options: Options,
    directory: Path,
    inherited: Mapping[str, str],
    attempt: int = 1,
    secret: str = "",
    run_id: str = "",
    restarts: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Returns the environment of `task`: the inherited one, with the settings of this launch over it.

    `cluster` has the addresses of all tasks by kind. Each start of all tasks is a new attempt: a task of an earlier one
    that still runs is refused by the others. The id of the run tells what this launch leaves in a directory from what
    others have left there. A task that is started again by itself has settings that say how often.
    """
    settings = {
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task.kind, "index": task.index}}),
        "PYTHONUNBUFFERED": "1",
        "LOCKSTEP_ERROR_FILE": str(error_file(task, directory)),
        "LOCKSTEP_PROGRESS_FILE": str(progress_file(task, directory)),
        "LOCKSTEP_GENERATION": str(attempt),
        "LOCKSTEP_RUN_ID": run_id,
    }
    if (devices := options.devices_per_worker) is not None:
        # XLA sizes its CPU thread pool by NPROC; collectives between virtual devices deadlock in a pool too small.
        given = inherited.get("NPROC", "")
        pool = max(int(given) if given.isdecimal() else 0, _SMALLEST_POOL, 4 * devices, os.cpu_count() or 1)
        settings |= {"JAX_NUM_CPU_DEVICES": str(devices), "NPROC": str(pool)}
    if options.log_dir is not None:
        # Where tasks leave the records of the run's report, wherever they change their directory to.
        settings["LOCKSTEP_LOG_DIR"] = str(options.log_dir.absolute())
    if options.join_timeout is not None:
        settings["LOCKSTEP_JOIN_TIMEOUT"] = f"{options.join_timeout:g}"
    # Tasks must end before the launcher kills them, so their grace is a part of the launcher's.
    if options.grace is not None and "LOCKSTEP_GRACE" not in inherited:
        settings["LOCKSTEP_GRACE"] = f"{_SHARE_OF_GRACE * options.grace:g}"
    # Other users of this machine can reach the tasks' ports: only tasks with the secret of this launch can join.
    given = inherited.get("LOCKSTEP_CLUSTER_SECRET") or inherited.get("LOCKSTEP_CLUSTER_SECRET_FILE")
    if secret and not given:
        settings["LOCKSTEP_CLUSTER_SECRET"] = secret
    return {**inherited, **malloc_settings(inherited), **settings, **restarts}


def malloc_settings(inherited: Mapping[str, str]) -> dict[str, str]:
    """Returns settings by which glibc keeps the memory of a step for the next one, unless the user has set some."""
    is_set_up = "GLIBC_TUNABLES" in inherited or any(name.startswith("MALLOC_") for name in inherited)
    if is_set_up:
        return {}
    return {"GLIBC_TUNABLES": ":".join(f"glibc.malloc.{name}={value}" for name, value in _TUNABLES.items())}


class Reservation:
    """Holds `count` ports, from `base` on or any free ones, until they are freed for the tasks to listen on.

    Attributes:
        addresses: The ports as the other tasks reach them: at `host`, a name or an address of this machine.
    """

    def __init__(self, count: int, base: int | None, host: str = LOCAL_HOST) -> None:
        with ExitStack() as sockets:
            ports = [0] * count if base is None else range(base, base + count)
            held = [sockets.enter_context(_listen(host, port)) for port in ports]
            shown = f"[{host}]" if ":" in host else host
            self.addresses = [f"{shown}:{each.getsockname()[1]}" for each in held]
            self._held = sockets.pop_all()

    def free(self) -> None:
        """Lets others bind the ports."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.free()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise AddressError(
            f"Every task needs an address of this machine, and {host!r} does not resolve: {error.strerror}. Correct "
            "--node-address or --rendezvous, or the machine's DNS or /etc/hosts."
        ) from error
    candidate = socket.socket(family, socket.SOCK_STREAM)
    try:
        if port:
            # A given port may still wait for packets of an earlier run; one that another process listens on is refused.
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        candidate.bind(where)
        candidate.listen(1)
    except OSError as error:
        candidate.close()
        raise AddressError(
            f"Every task needs a free port on {host}, and port {port} cannot be used: {error.strerror}. "
            "Choose another --port-base, or leave it out to have free ports picked."
        ) from error
    return candidate
