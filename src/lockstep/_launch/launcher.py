"""Starts the tasks of a cluster on this machine and sees them through."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

from lockstep._launch.child import adopting_orphans
from lockstep._launch.console import Console
from lockstep._launch.gang import Alone, Gang
from lockstep._launch.options import Options, command_of
from lockstep._launch.output import open_logs
from lockstep._launch.restarts import Attempts
from lockstep._launch.supervisor import Interrupts, Launch
from lockstep._launch.task import Reservation
from lockstep._launch.task_files import Workspace
from lockstep._launch.warden import Warden
from lockstep.errors import MismatchError, MissingTaskError, PeerError


def launch(
    program: Sequence[str],
    *,
    workers: int,
    chief: bool = False,
    servers: int = 0,
    evaluator: bool = False,
    devices_per_worker: int | None = None,
    port_base: int | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    join_timeout: float | None = None,
    settle: float = 1.0,
    grace: float | None = None,
    max_restarts: int = 0,
    max_preemptions: int | None = None,
    restart_delay: float = 1.0,
    report: str | os.PathLike[str] | None = None,
    nnodes: int = 1,
    node_rank: int | None = None,
    rendezvous: str | None = None,
    node_address: str | None = None,
) -> int:
    """Runs `program` as the tasks of one cluster, show their output, and return the exit code of the run.

    Args:
        program: A script, or "-m" and a module, followed by its arguments.
        workers: The number of worker tasks.
        chief: Whether to start a chief task beside them, which trains as they do, and writes.
        servers: The number of parameter servers. With some, a task that has failed is started again by itself.
        evaluator: Whether to start an evaluator task beside them.
        devices_per_worker: The number of virtual CPU devices of each task.
        port_base: The port of the first task, followed by those of the others; free ports by default.
        log_dir: A directory to write each task's raw output to. Logs of earlier runs are renamed, not overwritten.
        join_timeout: Seconds that a task waits for the others to arrive.
        settle: Seconds from the first failure until the other tasks are asked to end: what they do of themselves tells
            cause from consequence.
        grace: Seconds from asking a task to end until it is killed. Default: what LOCKSTEP_GRACE leaves the tasks (25),
            and 5 more; 5 after a failure.
        max_restarts: How often to start all tasks again after one has failed, and an evaluator after it has.
        max_preemptions: How often to do so after a task was asked to end (exit code 143). Default: `max_restarts`.
        restart_delay: Seconds before a restart after a generation that made no new step; twice as many before the
            next, up to 60.
        report: A file to which to append a line of JSON for each failure, each return to training, and the end.
        nnodes: The number of machines, each with a launcher and `workers` of its own.
        node_rank: This machine's number among them; worker 0 is on the first.
        rendezvous: The "host:port" where the launchers meet, on the machine of rank 0.
        node_address: A name or address of this machine at which the others reach its tasks. Default: that from which it
            reaches the rendezvous.

    Returns:
        0 if every task exited with 0; the exit code of the task that failed first, or 128 + n if signal n killed it;
        128 + n if signal n (Ctrl-C, SIGTERM, SIGHUP) asked the launcher to end; 143 if somebody asked the tasks to;
        1 if another machine does not come, has other versions, or is gone.

    Raises:
        ArgumentError: An argument is wrong, or there is no such script.
        AddressError: A port from `port_base` on is in use.
        JoinError: Another machine has another secret.
    """
    options = Options(
        workers=workers,
        chief=chief,
        servers=servers,
        evaluator=evaluator,
        devices_per_worker=devices_per_worker,
        port_base=port_base,
        log_dir=None if log_dir is None else Path(log_dir),
        join_timeout=join_timeout,
        settle=settle,
        grace=grace,
        max_restarts=max_restarts,
        max_preemptions=max_preemptions,
        restart_delay=restart_delay,
        report=None if report is None else Path(report),
        nnodes=nnodes,
        node_rank=node_rank,
        rendezvous=rendezvous,
        node_address=node_address,
    )
    command = command_of(program)
    console = Console(os.environ)
    # Closed in reverse order. The warden goes first: it kills processes that are left, before their files are removed;
    # orphans are adopted until then, and a signal is collected until all is closed.
    with (
        Interrupts() as interrupts,
        _gang(options, interrupts, console) as gang,
        Reservation(len(gang.tasks), options.port_base, gang.host) as ports,
    ):
        try:
            placement = gang.place(ports.addresses)
            if placement is None:
                return 128 + (interrupts.take() or 0)
            with (
                adopting_orphans(),
                open_logs(options.log_dir, placement.tasks) as logs,
                Workspace() as workspace,
                Warden(workspace.path) as warden,
            ):
                shared = Launch(options, command, console, logs, warden, interrupts, _own_command())
                return Attempts(shared, gang, workspace).run(ports, placement)
        # Of the meetings of several machines: no argument is wrong, as exit code 2 would say.
        except (MissingTaskError, MismatchError, PeerError) as error:
            console.failure("lockstep: the machines cannot go on together", str(error))
            return 1


def _gang(options: Options, interrupts: Interrupts, console: Console) -> AbstractContextManager[Gang]:
    if options.nnodes == 1:
        return nullcontext(Alone(options))
    from lockstep._launch.nodes import Nodes

    return closing(Nodes(options, interrupts, console))


def _own_command() -> list[str]:
    """Returns the command of this process, for who wants to start the same again."""
    return [sys.executable, *sys.orig_argv[1:]]
