"""Status files of trainer and evaluator in `model_dir/.lockstep`: each publishes its own and watches the other's.

The two share nothing else. They need not start together, each may be restarted alone, and files of earlier runs stay in
the directory; so a reader has to tell which run a status belongs to, and whether its writer is alive.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import Any

from lockstep._engine.runtime.environment import attempt
from lockstep.checkpoint.internal import remove_leftovers, replacing

_DIRECTORY = ".lockstep"
_RUN_ID = "LOCKSTEP_RUN_ID"
RENEWAL_SECONDS = 2.0
"""Seconds between renewals of a status file by its living writer."""

Status = dict[str, Any]


class StatusFile:
    """A process' own status file ("trainer" or "evaluator"), renewed while it is alive.

    Attributes:
        run: A random name of this process' run; a restarted process has another one.
        former: The status of an earlier process; empty if there is none.
    """

    def __init__(self, model_dir: str, name: str) -> None:
        self.run = uuid.uuid4().hex
        self._path = Path(model_dir) / _DIRECTORY / f"{name}.json"
        self._identity: Status = {"run": self.run, "run_id": _run_id(), "generation": attempt()}
        self._lock = threading.Lock()
        self._published: bytes | None = None
        observed = _read(self._path)
        self.former: Status = {} if observed is None else observed[1]

    def publish(self, status: Status) -> None:
        """Replaces the file atomically by a status that names this run."""
        with self._lock:
            if self._published is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                # Of processes that were killed while they wrote.
                remove_leftovers(str(self._path.parent))
            # The generation tells a restarted run from the one before it under the same id.
            self._published = json.dumps({**self._identity, **status}).encode()
            self._write()

    @contextlib.contextmanager
    def renew_in_background(self) -> Generator[None]:
        """Renews the published file from a thread, within the context."""
        if self._published is None:
            yield
            return
        ended = threading.Event()

        def renew() -> None:
            # By touching the file, which works on a full disk, too; it is written again if it was removed. Nothing else
            # can be done about other errors from a thread: the reader sees a silent writer.
            while not ended.wait(RENEWAL_SECONDS):
                with self._lock, contextlib.suppress(OSError):
                    try:
                        os.utime(self._path)
                    except FileNotFoundError:
                        self._path.parent.mkdir(parents=True, exist_ok=True)
                        self._write()

        thread = threading.Thread(target=renew, name="lockstep-status", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _write(self) -> None:
        assert self._published is not None
        with replacing(str(self._path)) as file:
            file.write(self._published)


class StatusWatch:
    """A watch of another process' status file, from construction on.

    A status belongs to this run if it carries this run's id (`LOCKSTEP_RUN_ID`), and no lower generation. Where the
    writer or this process has no id, it belongs to this run once the file has changed under this watch: then its writer
    is alive. A change is a new fingerprint, timed by this process' monotonic clock: clocks of two machines may differ.

    Attributes:
        latest: The status that was read last, of any run; empty if there is none.
        first: The status at construction.
    """

    def __init__(self, model_dir: str, name: str) -> None:
        self._path = Path(model_dir) / _DIRECTORY / f"{name}.json"
        self._run_id = _run_id()
        self._generation = attempt()
        self._fingerprint, self.latest = _read(self._path) or (None, {})
        self._changed_at = time.monotonic()
        self._has_changed = False
        self.first = self.latest

    @property
    def silent_seconds(self) -> float:
        """Returns the seconds since the file was last seen to change, or since construction."""
        return time.monotonic() - self._changed_at

    @property
    def may_be_of_this_run(self) -> bool:
        """Returns whether neither id nor generation of the latest status names another run."""
        run_id, number = self.latest.get("run_id"), self.latest.get("generation")
        # One without an id may be started by hand beside a launched job.
        if run_id and self._run_id and run_id != self._run_id:
            return False
        return bool(self.latest) and not (isinstance(number, int) and number < self._generation)

    def look(self) -> Status:
        """Reads the file; returns the status if it is of this run, else an empty one."""
        observed = _read(self._path)
        if observed is not None and observed[0] != self._fingerprint:
            self._fingerprint, self.latest = observed
            self._changed_at = time.monotonic()
            self._has_changed = True
        has_id = self._run_id is not None and self.latest.get("run_id") == self._run_id
        return self.latest if self.may_be_of_this_run and (has_id or self._has_changed) else {}

    def wait_for_renewal(self) -> Status:
        """Waits for a few renewals of a writer that may be alive; returns the result of `look`."""
        # Three, so that one late renewal does not count as silence.
        deadline = time.monotonic() + 3 * RENEWAL_SECONDS
        while not (status := self.look()) and self.may_be_of_this_run and time.monotonic() < deadline:
            time.sleep(0.1)
        return status


def _run_id() -> str | None:
    return os.environ.get(_RUN_ID) or None


def _read(path: Path) -> tuple[Any, Status] | None:
    """Returns a fingerprint of the file that each renewal changes, and the status in it; `None` without a file."""
    # Opening the file makes a network file system ask its server, where `stat` may answer from a cache.
    try:
        with path.open("rb") as file:
            content, about = file.read(), os.fstat(file.fileno())
    except OSError:
        return None
    try:
        # Replaced atomically, so a file that is no JSON was written by something else.
        status = json.loads(content)
    except ValueError:
        status = None
    return (content, about.st_mtime_ns), status if isinstance(status, dict) else {}
