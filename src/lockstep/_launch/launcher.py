"""Starts the tasks of a cluster on this machine and sees them through."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lockstep._launch.child import adopting_orphans
from lockstep._launch.console import Console
from lockstep._launch.options import Options, command_of
from lockstep._launch.output import open_logs
from lockstep._launch.restarts import Attempts
from lockstep._launch.supervisor import Interrupts, Launch
from lockstep._launch.task import Reservation, tasks_of
from lockstep._launch.task_files import Workspace
from lockstep._launch.warden import Warden


def launch(
    program: Sequence[str],
    *,
    workers: int,
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
) -> int:
    """Runs `program` as the tasks of one cluster, show their output, and return the exit code of the run.

    Args:
        program: A script, or "-m" and a module, followed by its arguments.
        workers: The number of worker tasks.
        evaluator: Whether to start an evaluator task beside them.
        devices_per_worker: The number of virtual CPU devices of each task.
        port_base: The port of worker 0, followed by those of the others; free ports by default.
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

    Returns:
        0 if every task exited with 0; the exit code of the task that failed first, or 128 + n if signal n killed it;
        128 + n if signal n (Ctrl-C, SIGTERM, SIGHUP) asked the launcher to end; 143 if somebody asked the tasks to.

    Raises:
        ArgumentError: An argument is wrong, or there is no such script.
        AddressError: A port from `port_base` on is in use.
    """
    options = Options(
        workers=workers,
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
    )
    command = command_of(program)
    tasks = tasks_of(options)
    # Closed in reverse order. The warden goes first: it kills processes that are left, before their files are removed;
    # orphans are adopted until then, and a signal is collected until all is closed.
    with (
        Reservation(len(tasks), options.port_base) as ports,
        Interrupts() as interrupts,
        adopting_orphans(),
        open_logs(options.log_dir, tasks) as logs,
        Workspace() as workspace,
        Warden(workspace.path) as warden,
    ):
        shared = Launch(options, command, Console(os.environ), logs, warden, interrupts)
        return Attempts(shared, workspace).run(ports)
