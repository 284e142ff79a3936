"""`lockstep.launch`: a function of a notebook on several workers of this machine."""

from __future__ import annotations

import codecs
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep._launch.options import Options
from lockstep._notebook import task as notebook_task
from lockstep._notebook.source import Program, program_of
from lockstep._notebook.values import load, save
from lockstep.errors import ArgumentError, LaunchError

_POLL_SECONDS = 0.2
# Beyond the time that the launcher itself gives its tasks, so that it ends by itself and says how.
_SPARE_SECONDS = 10.0
_CHUNK = 1 << 16
# Definitions may need the values, such as in the body of a class. lockstep comes first: it chooses Keras' backend.
_BEGIN = """from lockstep._notebook import task as notebook_task

globals().update(notebook_task.values({directory!r}))
"""
_CALL = """
if __name__ == "__main__":
    notebook_task.call({name}, {directory!r})
"""


def launch(
    function: Callable[..., Any],
    *,
    workers: int,
    devices_per_worker: int | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    max_restarts: int = 0,
    timeout: float = 3600.0,
    log_dir: str | os.PathLike[str] | None = None,
) -> Any:
    """Runs a function on several workers of this machine, and returns what it returns on worker 0.

    For notebooks: the output of all workers appears in the cell, and an error ends it. Each worker is a process of its
    own, as under `lockstep run`; the notebook's process may have used JAX before. The function travels as source, with
    the modules, functions, classes, plain values and arrays of the notebook that it uses; strategies, models and
    datasets are made inside of it. Interrupting the cell ends all workers, and so does the end of the kernel.

    Args:
        function: A function that a cell or a module defines.
        workers: The number of workers, at least 1.
        devices_per_worker: Virtual CPU devices of each worker. Default: its own devices.
        args: Arguments: numbers, texts, arrays, and lists, tuples and dicts of them.
        kwargs: Arguments by name.
        max_restarts: How often to start all workers again after one has failed.
        timeout: Seconds for all of it, after which all workers are ended.
        log_dir: The log directory of the run: the output of each worker, the script, and the report are left there.

    Returns:
        The result on worker 0: of the same kinds as arguments.

    Raises:
        ArgumentError: If the function, or something that it uses, cannot be shipped, or an argument is wrong.
        LaunchError: If a worker fails, or the time is over.
        KeyboardInterrupt: If the cell is interrupted; after all workers have ended.

    Examples:
        >>> def train():
        ...     strategy = ls.distribute.MultiWorkerMirroredStrategy()
        ...     with strategy.scope():
        ...         model = build()
        ...     return model.fit(x, y, epochs=3, verbose=2).history
        >>> history = ls.launch(train, workers=2)
    """
    # Checks the numbers before anything is written.
    options = Options(workers=workers, devices_per_worker=devices_per_worker, max_restarts=max_restarts)
    if not 0 < timeout < float("inf"):
        raise ArgumentError(f"timeout is a number of seconds above 0: received {timeout!r}.")
    program = program_of(function)
    # Private to this user: the script and the arrays are nobody else's business.
    directory = Path(tempfile.mkdtemp(prefix="lockstep-launch-"))
    try:
        save(
            directory / notebook_task.INPUT,
            (program.values, tuple(args), dict(kwargs or {})),
            f"the arguments of {function.__name__}",
        )
        script = _write_script(program, function, directory, log_dir)
        report = directory / "report.jsonl"
        command = [*_command(options, log_dir), "--report", str(report), str(script)]
        code = _run(command, time.monotonic() + timeout, options.end_grace + _SPARE_SECONDS)
        if code is None:
            raise LaunchError(
                f"launch must end within {timeout:g} s (timeout). {function.__name__} was still running then on "
                f"{workers} workers, and all were ended. Give it more time, or less to do."
            )
        if code != 0:
            raise LaunchError(_cause(report, code))
        return load(directory / notebook_task.RESULT)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _write_script(
    program: Program, function: Callable[..., Any], directory: Path, log_dir: str | os.PathLike[str] | None
) -> Path:
    script = directory / f"{function.__name__}.py"
    text = script_text(program, function.__name__, directory)
    script.write_text(text, encoding="utf-8")
    if log_dir is not None:
        # What ran, for who reads the logs later.
        Path(log_dir).mkdir(parents=True, exist_ok=True)
        (Path(log_dir) / script.name).write_text(program.text(), encoding="utf-8")
    return script


def script_text(program: Program, name: str, directory: Path) -> str:
    """Returns the whole script of a function by its name, whose values and arguments are in a directory."""
    where = str(directory)
    return _BEGIN.format(directory=where) + program.text() + _CALL.format(name=name, directory=where)


def _command(options: Options, log_dir: str | os.PathLike[str] | None) -> list[str]:
    # By way of `owned`, which sees to it that tasks end with this process: a kernel that is killed runs no `finally`.
    command = [sys.executable, "-m", "lockstep._launch.owned", str(os.getpid()), "run"]
    command += [f"--workers={options.workers}", f"--max-restarts={options.max_restarts}"]
    if options.devices_per_worker is not None:
        command.append(f"--devices-per-worker={options.devices_per_worker}")
    return command if log_dir is None else [*command, f"--log-dir={os.fspath(log_dir)}"]


def _run(command: Sequence[str], deadline: float, grace: float) -> int | None:
    """Runs the launcher, with its output in the cell; returns its exit code, or `None` if the time was over."""
    # Modules beside the notebook can be imported there, too.
    path = os.pathsep.join([os.getcwd(), *(entry for entry in sys.path if entry)])
    # A session of its own: Ctrl-C in a terminal must come once, from here.
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    # Incremental: what is read may end within a character.
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    try:
        with process.stdout:
            while (left := deadline - time.monotonic()) > 0:
                if not select.select([process.stdout], [], [], min(_POLL_SECONDS, left))[0]:
                    continue
                # Not `process.stdout.read`, which returns only when so many bytes have come, and so holds lines back.
                data = os.read(process.stdout.fileno(), _CHUNK)
                if not data:
                    return process.wait(grace)
                sys.stdout.write(decode(data))
                sys.stdout.flush()
        return None
    finally:
        _end(process, grace)


def _end(process: subprocess.Popen[bytes], grace: float) -> None:
    """Ends the launcher, and with it all tasks, if it still runs."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        # The warden kills the tasks.
        process.kill()
        process.wait()


def _cause(report: Path, code: int) -> str:
    """Returns the message for a launch that has failed: the first failure, from the launcher's own report."""
    lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
    failures = [line for line in map(json.loads, lines) if line["event"] == "failure"]
    if not failures:
        return f"The workers could not be started (exit code {code}). The output above says why."
    # Those before it were each followed by a restart.
    last = failures[-1]
    return f"{last['task']} failed first: {last['cause']}. The output above has its traceback."
