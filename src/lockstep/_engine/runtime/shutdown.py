"""Shutdown of a joined process: in order on success, at once on failure.

On success every task says that it has ended its program and waits until all have: the first task hosts the
coordination service, and a task that just goes away looks like one that died. On failure nobody waits.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
import time
from typing import Any

from lockstep._engine.runtime import failure, launcher_files
from lockstep._engine.runtime.control import Control, describe_failure
from lockstep._engine.runtime.heartbeat import HeartbeatMonitor
from lockstep._engine.runtime.limits import Limits
from lockstep.errors import Preempted

# The last task to end is waited for no longer than this by the others.
_POLL_SECONDS = 0.05
_NOTICE_SECONDS = 60.0


def install(control: Control, heartbeat: HeartbeatMonitor, limits: Limits) -> None:
    """Registers the shutdown; to be called after jax has registered its own."""
    failure.on_failure(
        lambda error: control.announce_failure(type(error).__name__, str(error), cause=failure.attached_cause(error))
    )
    atexit.register(_leave, control, heartbeat, limits)


def _leave(control: Control, heartbeat: HeartbeatMonitor, limits: Limits) -> None:
    if failure.has_failed():
        heartbeat.shut_down()
        _exit_now(1)
    heartbeat.leave()
    try:
        control.announce_leaving()
        problem = _wait_for_all(control, heartbeat, limits)
    except Exception as error:  # The service has gone with the first task.
        message = f"{control.tasks[0]}, which all others report to, has gone: {error}"
        problem = control.record("", message, 0)
    if problem:
        _report(control, problem)
        heartbeat.shut_down()
        _exit_now(Preempted.exit_code if control.preemption.has_ended else failure.exit_code() or 1)
    control.is_over = True
    heartbeat.stop()
    failure.uninstall()
    gc.unfreeze()  # A strategy froze what the imports had made.


def _report(control: Control, failed: dict[str, Any]) -> None:
    """Reports a failure after this program has ended to the launcher and the user."""
    me, code, problem = control.tasks[control.process], failure.exit_code(), describe_failure(failed)
    # A program that has ended while the others needed it is the root cause itself.
    is_cause = bool(code) or failed["process"] == control.process
    kind = "PeerError" if not is_cause else "SystemExit" if code else failed["type"] or "SystemExit"
    if not control.preemption.has_ended:
        trace = f"{kind}: {code}\n{problem}" if is_cause else f"lockstep.errors.PeerError: {problem}\n"
        launcher_files.write_error_file(me, kind, str(code) if code else problem, trace, secondary=not is_cause)
    print(f"lockstep: {me} had ended its program when this happened: {problem}", file=sys.stderr)


def _wait_for_all(control: Control, heartbeat: HeartbeatMonitor, limits: Limits) -> dict[str, Any] | None:
    """Returns the record of the failure that prevented the common end, or `None`."""
    start = time.monotonic()
    notice = start + _NOTICE_SECONDS
    while waiting := set(range(len(control.tasks))) - control.left():
        if found := control.failure():
            return found
        if silent := heartbeat.silence(waiting):
            return silent
        names = ", ".join(control.tasks[i] for i in sorted(waiting))
        now = time.monotonic()
        if now - start > limits.leave:
            message = f"{names} did not end within {limits.leave:g} s (LOCKSTEP_LEAVE_TIMEOUT)"
            return control.record("", message, min(waiting))
        if now > notice:
            print(
                f"lockstep: {control.tasks[control.process]} has finished and waits for {names}",
                file=sys.stderr,
            )
            notice = now + _NOTICE_SECONDS
        time.sleep(_POLL_SECONDS)
    return None


def _exit_now(code: int) -> None:
    """Ends the process, without jax's own shutdown, which would wait for tasks that cannot answer."""
    sys.stdout.flush()
    sys.stderr.flush()
    logging.shutdown()
    os._exit(code)
