"""What the trainer and the evaluator leave in `model_dir` for each other: whether they live, and what they came to.

They share nothing but this directory. Each writes a small JSON file and renews it while it lives; the other one reads
it, and goes by how long ago it changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from lockstep.checkpoint._atomic import remove_leftovers, replacing

_DIRECTORY = ".lockstep"
_RENEWED_SECONDS = 5.0


class Sign:
    """One file.

    Args:
        model_dir: Where.
        name: "trainer" or "evaluator".
    """

    def __init__(self, model_dir: str, name: str) -> None:
        self._path = Path(model_dir) / _DIRECTORY / f"{name}.json"
        self._lock = threading.Lock()
        self._is_prepared = False

    def write(self, value: Mapping[str, Any]) -> None:
        """Writes it, at once or not at all."""
        with self._lock:
            self._prepare()
            with replacing(str(self._path)) as file:
                file.write(json.dumps(dict(value)).encode())

    def _prepare(self) -> None:
        """Makes the directory, and removes what a writer left there that was killed."""
        if not self._is_prepared:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(str(self._path.parent))
            self._is_prepared = True

    def read(self) -> dict[str, Any]:
        """Returns what was written last; nothing if there is none yet."""
        try:
            found = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def age(self) -> float:
        """For how many seconds it has not been renewed; infinite if there is none."""
        try:
            return max(0.0, time.time() - self._path.stat().st_mtime)
        except OSError:
            return float("inf")

    def renew(self) -> None:
        """Says that its writer lives."""
        with contextlib.suppress(OSError):
            os.utime(self._path)

    @contextlib.contextmanager
    def renewed(self) -> Generator[None]:
        """Renews it from a thread, while open."""
        ended = threading.Event()

        def keep() -> None:
            while not ended.wait(_RENEWED_SECONDS):
                self.renew()

        thread = threading.Thread(target=keep, name="lockstep-sign", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def new_run() -> str:
    """Returns a name for a run of the trainer."""
    return uuid.uuid4().hex
