"""Recovery times: how long it takes from a failure to the first new step, by stages."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep._launch.console import Console
from lockstep._launch.task_files import ProgressRecord
from lockstep.report.internal import RecordFile, path_of

# Times of marks are exact; this only bounds how late the note is.
_LOOK_SECONDS = 0.2
# Names of stages, with the mark of the tasks that ends each; "restored" is not there without a checkpoint.
_STAGES = (("restart", "joined"), ("build", "restored"), ("restore", "called"), ("compile", "stepped"))


class Recovery:
    """Times each restart, notes it on the console, and writes it as a line of JSON to a report, if there is one."""

    def __init__(self, console: Console, report: Path | None) -> None:
        self._console = console
        self._report = report
        self._run_id = ""
        # The same lines for the report of the run, kept until its log directory is known.
        self._record: RecordFile | None = None
        self._lines: list[dict[str, Any]] = []
        self._failure: dict[str, Any] = {"generation": 1}
        self._failed_at: float | None = None
        self._noticed_at = self._started_at = 0.0
        self._next_look = 0.0
        self._is_complete = True

    def record_in(self, log_dir: Path, name: str) -> None:
        """Records what has happened, and what will, in the log directory of the run, under this name."""
        if self._record is None:
            self._record = RecordFile(path_of(log_dir, name))
            for line in self._lines:
                self._record.append(line)

    def launched(self, run_id: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Notes the run and the command of the launch, for who wants to repeat it."""
        self._run_id = run_id
        self._note_line({"event": "launch", "command": [*command], "cwd": os.getcwd(), "environment": {**environment}})

    def failed(self, failed_at: float, failure: Mapping[str, Any]) -> None:
        """Notes that an attempt has ended because of a failure at `failed_at` (seconds since the epoch)."""
        self._failed_at, self._noticed_at = failed_at, time.time()
        self._failure = {**failure, "failed_at": round(failed_at, 3)}
        self._write({"event": "failure", **self._failure})

    def started(self) -> None:
        """Notes that an attempt starts."""
        self._started_at = time.time()
        self._is_complete = self._failed_at is None

    def ended(self, code: int) -> None:
        """Notes that the launch ends with this exit code."""
        self._write({"event": "end", "code": code, "at": round(time.time(), 3)})

    def poll(self, progress: Callable[[], Sequence[ProgressRecord]], now: float) -> None:
        """Looks, five times a second, whether the tasks train again."""
        if self._is_complete or now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        for record in progress():
            if (stepped := record.time("stepped")) is not None:
                self._is_complete = True
                self._note(record, stepped)
                return

    def _note(self, record: ProgressRecord, stepped: float) -> None:
        assert self._failed_at is not None
        total = stepped - self._failed_at
        parts = {"detect": self._noticed_at - self._failed_at, "wait": self._started_at - self._noticed_at}
        before = self._started_at
        for name, mark in _STAGES:
            # One worker alone joins nobody: its first run ends the stage.
            at = record.time(mark) or (record.time("run") if mark == "joined" else None)
            if at is not None:
                parts[name] = at - before
                before = at
        shown = ", ".join(f"{name} {seconds:.1f}" for name, seconds in parts.items())
        self._console.note(f"Training again {total:.1f} s after the failure ({shown}).")
        rounded = {name: round(seconds, 3) for name, seconds in parts.items()}
        self._write({"event": "recovery", **self._failure, "step": record.step, "seconds": round(total, 3), **rounded})

    def _note_line(self, line: Mapping[str, Any]) -> None:
        whole = {**line, "at": round(time.time(), 3), "run_id": self._run_id}
        self._lines.append(whole)
        if self._record is not None:
            self._record.append(whole)

    def _write(self, line: Mapping[str, Any]) -> None:
        self._note_line(line)
        if self._report is None:
            return
        # Opened anew for each line, so that it may be moved away meanwhile.
        try:
            with self._report.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            self._console.note(f"The report cannot be written: {error.strerror}.")
            self._report = None  # Said once; training matters more.
