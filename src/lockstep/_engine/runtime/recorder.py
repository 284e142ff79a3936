"""The record of this task in the log directory of its run: who it is, how far it is, and where its time goes.

A thread writes a line a second at first and fewer later, so that the main thread only sets attributes. A day of
training leaves a record of about a megabyte. `benchmarks/report_cost.py` measures what all this costs the training.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import platform
import sys
import threading
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lockstep._engine.runtime import local_devices, progress
from lockstep._engine.runtime.progress import Progress, is_done
from lockstep.errors import LockstepError, Preempted
from lockstep.report.internal import RecordFile, path_of, settings

_log = logging.getLogger("lockstep")
_LOG_DIR = "LOCKSTEP_LOG_DIR"
_RUN_ID = "LOCKSTEP_RUN_ID"
_LAUNCHER_FILE = "LOCKSTEP_PROGRESS_FILE"
_FIRST_SECONDS = 1.0
# Of a training that has taken T seconds, the next sample comes T / 600 seconds later: about 600 samples for each time
# that the training gets 2.7 times as long, some 4,000 in a day.
_SAMPLES = 600
# Values of a step that are drawn; a step may return hundreds, whose curves nobody would look at.
_MOST_VALUES = 16
# The page is written while the training runs, too, as long as that takes less than this part of the time.
_PAGE_SHARE = 1e-3
_PAGE_SECONDS = 60.0
_MEMORY_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PACKAGES = ("lockstep", "jax", "jaxlib", "keras", "numpy")


def log_directory(given: str | os.PathLike[str] | None) -> Path | None:
    """Returns the log directory of this run: `LOCKSTEP_LOG_DIR`, or else `given`, or `None`.

    Args:
        given: What the program names: `log_dir` of a TensorBoard or RunReport callback, an Estimator's model_dir.
    """
    found = os.environ.get(_LOG_DIR) or given
    return Path(found).absolute() if found else None


@contextlib.contextmanager
def recording(
    account: Progress,
    task: str,
    given: str | os.PathLike[str] | None,
    call: str,
    about: Mapping[str, Any],
    *,
    is_chief: bool,
) -> Generator[Recorder | None]:
    """Records a call that trains, if the run has a log directory, and leaves its report; yields the recorder.

    Args:
        account: The progress of the main thread.
        task: The name of this task.
        given: See `log_directory`.
        call: The name of the call, such as "fit".
        about: What the report tells about it: epochs, batch size, model.
        is_chief: Whether this task writes the page.
    """
    directory = log_directory(given)
    if directory is None:
        yield None
        return
    recorder = _recorder_of(directory, task, account, is_chief)
    account.log_dir = str(directory)
    recorder.begin(call, about)
    error: BaseException | None = None
    try:
        yield recorder
    except BaseException as raised:
        error = raised
        raise
    finally:
        recorder.end(error)


_recorders: dict[tuple[Path, str], Recorder] = {}


def _recorder_of(directory: Path, task: str, account: Progress, is_chief: bool) -> Recorder:
    """Returns this process' recorder of a directory: a program may call `fit` many times, in one record."""
    # A process that has left its cluster and trains alone is another task, with a record of its own.
    key = directory, task
    if key not in _recorders or _recorders[key].account is not account:
        _recorders[key] = Recorder(directory, task, account, is_chief)
    return _recorders[key]


class Recorder:
    """Appends the lines of one task to its record, from a thread that runs while a call trains."""

    def __init__(self, directory: Path, task: str, account: Progress, is_chief: bool) -> None:
        self.account = account
        self._directory = directory
        self._file = RecordFile(path_of(directory, task))
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_marks = False
        self._memory_at, self._memory_bytes = -math.inf, dict[str, int | None]()
        # Outputs that were not computed yet when they were looked at, and their step.
        self._pending: tuple[Any, int] | None = None
        self._value_step: int | None = None
        # The first and the last step that the program itself has named.
        self._told: tuple[int, int] | None = None
        # The launcher, if there is one, writes the page when all tasks have ended, also those that were killed.
        self._writes_page = is_chief and not os.environ.get(_LAUNCHER_FILE)
        self._page_at, self._page_cost = self._began, 0.0
        self._page_is_old = False
        # A process may have trained before, for another directory.
        self._steps_before, self._spent_before = account.steps, account.charged()
        self._file.append({"event": "start", **_now(), "task": task, **_about_process()})
        if self._writes_page:
            atexit.register(self._finish)

    def begin(self, call: str, about: Mapping[str, Any]) -> None:
        """Begins a call that trains."""
        self._file.keep({"event": "train", **_now(), "call": call, "about": dict(about), **self._place()})
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="lockstep-recorder", daemon=True)
        self._thread.start()

    def restored(self) -> None:
        """Notes that the call goes on with a checkpoint, so that this run is the same as the one that wrote it."""
        self._file.append({"event": "restored", **_now(), **self._place()})

    def epoch(self, epoch: int, logs: Mapping[str, Any]) -> None:
        """Notes the results of an epoch, counted from 0."""
        self._file.keep({"event": "epoch", **_now(), "epoch": epoch, "values": _scalars(logs), **self._place()})

    def values(self, step: int, values: Mapping[str, Any]) -> None:
        """Notes values of a step that the program itself has computed."""
        found = _scalars(values)
        first = step if self._told is None else self._told[0]
        self._told = min(first, step), step
        # Not a sample: a loop may tell values of each step, and where its time goes is known by the second.
        self._file.keep({"event": "values", **_now(), "value_step": step, "values": found})

    def end(self, error: BaseException | None) -> None:
        """Ends the call, with the error that has ended it, if any."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        if error is None:
            # The last outputs count, also when earlier ones were not computed yet when the thread looked.
            self._pending = None
            self._write_sample()
        self._note_marks()
        self.account.outputs = self._pending = None
        told = None if error is None else {"type": type(error).__name__, "message": str(error)[:2000]}
        self._file.append({"event": "end", **_now(), "error": told, "spent": self._spent(), **self._place()})
        self._file.close()
        self._page_is_old = True
        # An error ends most programs, and one that is killed after it would leave no page.
        self._write_page(at_once=error is not None and not isinstance(error, Preempted))

    def _run(self) -> None:
        wait = _FIRST_SECONDS
        while not self._stop.wait(wait):
            self._write_sample()
            self._write_page()
            wait = max(_FIRST_SECONDS, (time.monotonic() - self._began) / _SAMPLES)

    def _write_sample(self) -> None:
        self._note_marks()
        notes = self.account.notes
        while notes:
            self._file.keep({"event": "note", **_now(), "text": notes.popleft()})
        self._file.append({**self._sample(), **self._outputs()})

    def _sample(self) -> dict[str, Any]:
        account = self.account
        return {
            "event": "sample",
            **_now(),
            "where": account.phase or account.where,
            "seconds": round(account.seconds(), 1),
            "spent": self._spent(),
            **self._memory(),
            **self._place(),
        }

    def _memory(self) -> dict[str, int | None]:
        """Returns bytes of the process and of its first device, of this second: short calls of fit end many in it."""
        now = time.monotonic()
        if now - self._memory_at >= _FIRST_SECONDS / 2:
            self._memory_at = now
            self._memory_bytes = {"rss": _resident_bytes(), "device": _device_bytes()}
        return self._memory_bytes

    def _place(self) -> dict[str, Any]:
        if self._told is not None:
            first, last = self._told
            return {"step": last, "steps": last - first + 1}
        return {"step": self.account.last_step, "steps": self.account.steps - self._steps_before}

    def _spent(self) -> dict[str, float]:
        charged, before = self.account.charged(), self._spent_before
        return {place: round(seconds - before.get(place, 0.0), 3) for place, seconds in charged.items()}

    def _outputs(self) -> dict[str, Any]:
        """Returns values of a step that is computed: reading one that is not would wait for the devices."""
        if self._pending is None:
            self._pending = self.account.outputs
        if self._pending is None:
            return {}
        outputs, step = self._pending
        leaves = _scalars_of(outputs)
        if not all(is_done(array) for array, _ in leaves.values()):
            return {}
        # The next look takes the newest outputs again.
        self._pending = None
        if step == self._value_step:
            return {}
        self._value_step = step
        values: dict[str, float] = {}
        for name, (array, slot) in leaves.items():
            # Donated to a later step meanwhile: it cannot be read any more.
            with contextlib.suppress(RuntimeError):
                value = np.asarray(array)
                values[name] = float(value if slot is None else value[slot])
        return {"value_step": step, "values": values} if values else {}

    def _note_marks(self) -> None:
        if not self._has_marks and progress.has_mark("stepped"):
            self._has_marks = True
            self._file.keep({"event": "marks", **_now(), "marks": progress.marks()})

    def _finish(self) -> None:
        # A directory that was moved or deleted since has no records to show.
        if self._page_is_old and self._file.path.exists():
            self._write_page(at_once=True)

    def _write_page(self, at_once: bool = False) -> None:
        """Writes the page, if this is the task that does, and it has not cost too much of the time."""
        now = time.monotonic()
        pause = max(_PAGE_SECONDS, self._page_cost / _PAGE_SHARE)
        if not self._writes_page or (not at_once and now - self._page_at < pause):
            return
        # Drawing is imported by the task that draws, when it does.
        from lockstep.report.internal import write_report

        try:
            write_report(self._directory)
            self._page_is_old = False
        except (OSError, LockstepError) as error:
            _log.warning(
                "The report of this run could not be written: %s. Write it later with lockstep report %s.",
                str(error).removesuffix("."),
                self._directory,
            )
        self._page_at = time.monotonic()
        self._page_cost = self._page_at - now


def _now() -> dict[str, float]:
    return {"at": round(time.time(), 3)}


def _scalars_of(outputs: Any) -> dict[str, tuple[Any, int | None]]:
    """Returns the scalars of a dispatch's outputs by name: the array, and the slot in it if it is a stack of steps."""
    slots = outputs.slots
    tree = outputs.all
    if not isinstance(tree, Mapping):
        tree = {"loss": tree}
    dimensions = 0 if slots is None else 1
    found: dict[str, tuple[Any, int | None]] = {}
    for name, array in tree.items():
        if getattr(array, "ndim", None) == dimensions and len(found) < _MOST_VALUES:
            found[str(name)] = array, None if slots is None else slots[-1]
    return found


def _scalars(values: Mapping[str, Any]) -> dict[str, float]:
    """Returns what is a number, by name."""
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, float):
            found[name] = value
            continue
        with contextlib.suppress(TypeError, ValueError):
            if np.ndim(value) == 0:
                found[name] = float(value)
    return found


def _about_process() -> dict[str, Any]:
    """Returns what a report tells about this process."""
    import jax

    devices = jax.local_devices()
    return {
        "run_id": os.environ.get(_RUN_ID, ""),
        "generation": os.environ.get("LOCKSTEP_GENERATION", "0"),
        "pid": os.getpid(),
        "host": platform.node(),
        "launched_at": _launched_at(),
        "command": _command(),
        "cwd": os.getcwd(),
        "environment": settings(os.environ),
        "versions": {"python": platform.python_version(), **_versions()},
        "platform": platform.platform(),
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "cpus": local_devices.bound_cores(),
        "memory": _total_memory(),
    }


def _command() -> list[str]:
    """Returns the command of this process, with the interpreter by its path."""
    original = list(getattr(sys, "orig_argv", sys.argv))
    return [sys.executable, *original[1:]] if original else [sys.executable]


def _versions() -> dict[str, str]:
    # Of what is imported anyway: importlib.metadata would read the files of each package.
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in _PACKAGES}
    return {name: version for name, version in found.items() if version}


def _launched_at() -> float | None:
    """Returns when this process was started, in seconds since the epoch; `None` where there is no /proc."""
    try:
        with open("/proc/self/stat", "rb") as file:
            # The name in parentheses may hold spaces; field 22, counted from 1, is the start in ticks since the boot.
            ticks = int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return round(time.time() - age, 3)


def _total_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _resident_bytes() -> int | None:
    """Returns the memory that this process has in RAM; `None` where there is no /proc."""
    try:
        # Without Python's buffers, which take twice the time of the reading.
        descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(descriptor, 200).split()[1]) * _MEMORY_PAGE_BYTES
        finally:
            os.close(descriptor)
    except (OSError, ValueError, IndexError):
        return None


def _device_bytes() -> int | None:
    """Returns the bytes in use on the first device of this process; `None` on CPUs, which do not count."""
    import jax

    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return None
    stats = device.memory_stats()
    return None if stats is None else stats.get("bytes_in_use")
