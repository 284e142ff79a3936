"""A server, in a process of its own, whose file system is slow: each of the first writes to a file takes its time."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, BinaryIO

import lockstep  # noqa: F401  Above Keras: it chooses Keras' JAX backend.

# isort: split
from lockstep._engine.runtime import authentication
from lockstep._engine.runtime.limits import Limits
from lockstep._engine.runtime.rendezvous import Roster
from lockstep._engine.servers import cut
from lockstep._engine.servers.connection import Listener
from lockstep._engine.servers.server import ServerService
from lockstep.checkpoint import _atomic

NOTES, GO_ON = "notes", "go-on"
Replacing = Callable[[str], contextlib.AbstractContextManager[BinaryIO]]


class _SlowFile:
    """A file of which so many writes take so many seconds; `None` for until a file `go-on` is there."""

    def __init__(self, file: BinaryIO, folder: Path, writes: int, seconds: float | None) -> None:
        self._file, self._folder, self._left, self._seconds = file, folder, writes, seconds

    def write(self, data: Any) -> int:
        if self._left:
            self._left -= 1
            self._pause()
        return self._file.write(data)

    def _pause(self) -> None:
        if self._seconds is not None:
            time.sleep(self._seconds)
            return
        while not (self._folder / GO_ON).exists():
            time.sleep(0.01)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _slow(replacing: Replacing, folder: Path, writes: int, seconds: float | None) -> Replacing:
    @contextlib.contextmanager
    def slow(path: str) -> Generator[Any]:
        _note(folder, "begins")
        with replacing(path) as file:
            yield _SlowFile(file, folder, writes, seconds)
        _note(folder, "ends")

    return slow


def _note(folder: Path, text: str) -> None:
    with (folder / NOTES).open("a") as file:
        file.write(f"{text}\n")


def main() -> None:
    """Serves until it is killed, as options, a JSON object on the command line, say."""
    options = json.loads(sys.argv[1])
    folder, address = Path(options["folder"]), options["address"]
    slow = _slow(_atomic.replacing, folder, options["writes"], options["seconds"])
    _atomic.replacing = cut.replacing = slow
    service = ServerService(0, limits=Limits(silence=options["silence"], progress=options["progress"]))
    roster = Roster(("ps 0",), (address,))
    Listener(roster, options["agreed"], service, authentication.secret_from_environment(), 60.0)
    while True:
        service.wait_for_failure(60.0)


if __name__ == "__main__":
    main()
