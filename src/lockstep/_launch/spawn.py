"""Starts the process of a task, in a session of its own, with its output in pipes or on a pseudo-terminal."""

from __future__ import annotations

import os
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence

from lockstep._launch.kinship import die_with
from lockstep._launch.warden import Warden
from lockstep.errors import LockstepError


def spawn(
    command: Sequence[str], environment: Mapping[str, str], warden: Warden, columns: int | None
) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start `command` and return its process and the reading ends of its stdout and stderr.

    With `columns`, stdout is a terminal of that width, on which programs animate their progress.
    """
    out, out_writer = os.pipe() if columns is None else _terminal(columns)
    err, err_writer = os.pipe()
    try:
        process = _start(command, environment, out_writer, err_writer, _preparation(warden))
    except (OSError, subprocess.SubprocessError) as error:
        os.close(out)
        os.close(err)
        raise LockstepError(f"A task could not be started: {error}. Start fewer tasks, or free resources.") from error
    finally:
        os.close(out_writer)
        os.close(err_writer)
    return process, out, err


def _start(
    command: Sequence[str], environment: Mapping[str, str], out: int, err: int, prepare: Callable[[], None]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
        preexec_fn=prepare,
    )


def _preparation(warden: Warden) -> Callable[[], None]:
    """Return what the forked process does before it runs the command, when it leads its group already."""
    launcher = os.getpid()

    def prepare() -> None:
        warden.enlist()
        die_with(launcher)

    return prepare


def _terminal(columns: int) -> tuple[int, int]:
    """Open a pseudo-terminal that passes bytes on unchanged."""
    reader, writer = os.openpty()
    attributes = termios.tcgetattr(writer)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(writer, termios.TCSANOW, attributes)
    termios.tcsetwinsize(writer, (24, columns))
    return reader, writer
