"""Options of a launch, checked at construction, and the program that each task runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.cluster_resolver.internal import Field, check_address
from lockstep.errors import ArgumentError

_LAST_PORT = 65535
# Options of `lockstep run` that take no value.
_FLAGS = frozenset({"--chief", "--evaluator", "--help"})
_GRACE_VARIABLE = "LOCKSTEP_GRACE"
# Seconds that a task gives itself to end in order, unless LOCKSTEP_GRACE says otherwise.
_TASKS_GRACE = 25.0
# Beyond the tasks' own grace, so that they end by themselves and say why.
_SPARE = 5.0
# After a failure nothing is saved any more: the others only have to report.
_AFTER_FAILURE = 5.0


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a launch: `workers` tasks, maybe a chief, servers and an evaluator, and the settings of each."""

    workers: int
    chief: bool = False
    servers: int = 0
    evaluator: bool = False
    devices_per_worker: int | None = None
    port_base: int | None = None
    log_dir: Path | None = None
    join_timeout: float | None = None
    # Seconds for the others to fail by themselves: the root cause may report later than its consequences.
    settle: float = 1.0
    grace: float | None = None
    max_restarts: int = 0
    max_preemptions: int | None = None
    restart_delay: float = 1.0
    report: Path | None = None
    nnodes: int = 1
    node_rank: int | None = None
    rendezvous: str | None = None
    node_address: str | None = None

    @property
    def restarts(self) -> bool:
        """Returns whether tasks are started again after any failure."""
        return self.max_restarts > 0 or self.preemptions > 0

    @property
    def preemptions(self) -> int:
        """The number of restarts after the tasks were asked to end."""
        return self.max_restarts if self.max_preemptions is None else self.max_preemptions

    @property
    def failure_grace(self) -> float:
        """Seconds from asking a task to end, because another one has failed, until it is killed."""
        return _AFTER_FAILURE if self.grace is None else self.grace

    @property
    def end_grace(self) -> float:
        """Seconds from asking a task to end, because somebody wants it to, until it is killed."""
        if self.grace is not None:
            return self.grace
        try:
            return float(os.environ.get(_GRACE_VARIABLE, _TASKS_GRACE)) + _SPARE
        except ValueError:
            return _TASKS_GRACE + _SPARE  # The tasks refuse it, and say so.

    def __post_init__(self) -> None:
        """Refuses options that cannot be honoured."""
        _check_nodes(self)
        _check_count("--workers", self.workers, "the number of worker tasks")
        _check_not_negative("--ps", self.servers, "the number of parameter servers")
        _check_count("--devices-per-worker", self.devices_per_worker, "the number of devices of each worker")
        _check_seconds("--join-timeout", self.join_timeout)
        _check_seconds("--grace", self.grace)
        _check_not_negative("--max-restarts", self.max_restarts, "how often to start all tasks again after a failure")
        _check_not_negative("--max-preemptions", self.max_preemptions, "how often to do so after exit code 143")
        _check_not_negative("--restart-delay", self.restart_delay, "the seconds before the first repeated restart")
        count = self.workers + self.chief + self.servers + self.evaluator
        last = _LAST_PORT + 1 - count
        if self.port_base is not None and not 1 <= self.port_base <= last:
            raise ArgumentError(
                f"--port-base must leave {count} ports between 1 and {_LAST_PORT}, received {self.port_base}. "
                f"Give a port from 1 to {last}, or leave it out to have free ports picked."
            )


def _check_nodes(options: Options) -> None:
    """Refuses a place among machines that is not one."""
    _check_count("--nnodes", options.nnodes, "the number of machines")
    given = {
        "--node-rank": options.node_rank,
        "--rendezvous": options.rendezvous,
        "--node-address": options.node_address,
    }
    if options.nnodes == 1:
        if without := [f"{name} {value}" for name, value in given.items() if value is not None]:
            raise ArgumentError(
                "--node-rank, --rendezvous and --node-address are for several machines, received "
                f"{', '.join(without)} without --nnodes. Give the number of machines, --nnodes 2, or leave them out."
            )
        return
    if options.servers:
        raise ArgumentError(
            f"--ps starts servers beside the workers of one machine, received --ps {options.servers} with --nnodes "
            f"{options.nnodes}. Leave out --nnodes, or start each task with its own TF_CONFIG (lockstep template)."
        )
    if options.node_rank is None or not 0 <= options.node_rank < options.nnodes:
        raise ArgumentError(
            f"--node-rank must be this machine's own number, from 0 to {options.nnodes - 1}, received "
            f"{options.node_rank}. Give another one on each machine; 0 on that of --rendezvous."
        )
    if options.rendezvous is None:
        raise ArgumentError(
            "--nnodes needs a place where the machines meet, received no --rendezvous. Give the same on all: the name "
            "of the machine of --node-rank 0, and a free port there, such as --rendezvous host1:29400."
        )
    check_address(Field("--rendezvous", options.rendezvous))


def _check_count(name: str, count: int | None, meaning: str) -> None:
    if count is not None and count < 1:
        raise ArgumentError(f"{name} must be at least 1, received {count}. Give {meaning}.")


def _check_not_negative(name: str, number: float | None, meaning: str) -> None:
    if number is not None and not 0 <= number < float("inf"):
        raise ArgumentError(f"{name} must be at least 0, received {number}. Give {meaning}.")


def _check_seconds(name: str, seconds: float | None) -> None:
    if seconds is not None and not 0 < seconds < float("inf"):
        raise ArgumentError(f"{name} must be more than 0 seconds, received {seconds}. Leave it out for the default.")


def shield_module(arguments: Sequence[str]) -> list[str]:
    """Puts `--` before the `-m` of `lockstep run`, so that, as with Python, what follows is not read as options."""
    # Typer would take an option of the module, such as --workers, for one of its own.
    position = 1
    while position < len(arguments) and arguments[position].startswith("-") and arguments[position] != "--":
        if arguments[position] == "-m":
            return [*arguments[:position], "--", *arguments[position:]]
        position += 1 if arguments[position] in _FLAGS or "=" in arguments[position] else 2
    return list(arguments)


def command_of(program: Sequence[str]) -> list[str]:
    """Returns the command of a task, this interpreter running `program`; refuses a program that is not there."""
    if not program:
        raise ArgumentError("A task needs a program to run, received none. Give a script, or -m and a module.")
    if program[0] == "-m":
        if len(program) < 2:
            raise ArgumentError(
                "-m must be followed by the name of a module, received nothing. Give -m package.module."
            )
    elif not Path(program[0]).exists():
        raise ArgumentError(
            f"The script must be an existing file, received {program[0]!r}, looked for in {Path.cwd()}. "
            "Check its path; options of lockstep run come before the script."
        )
    return [sys.executable, *program]
