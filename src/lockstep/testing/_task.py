"""A task of a test's cluster: runs the functions that the test asks for, one after the other."""

from __future__ import annotations

import faulthandler
import functools
import importlib
import json
import os
import queue
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from lockstep.testing import _values


class _Requests:
    """The requests on standard input, until it ends.

    They are read by a thread: where the test goes away while a function runs, nobody waits for that function.
    """

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.is_busy = False
        threading.Thread(target=self._read, name="requests of the test", daemon=True).start()

    def _read(self) -> None:
        for line in self._source:
            self._lines.put(line)
        # Standard input has ended in the middle of a function: the test is gone, and nobody waits for it.
        if self.is_busy:
            os._exit(1)
        self._lines.put(b"")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while line := self._lines.get():
            self.is_busy = True
            yield json.loads(line)


def main() -> None:
    """Serves requests until standard input ends."""
    source, answers = _take_pipes()
    requests = _Requests(source)
    for request in requests:
        try:
            _run(request)
        except BaseException as error:
            # The traceback that Python prints comes after what the function has printed.
            _send(answers, {"error": _format_error(error), "printed": os.lseek(2, 0, os.SEEK_CUR)})
            # The process ends as a program does, and so tells the other tasks.
            raise
        requests.is_busy = False
        _send(answers, {"done": True})


def _take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Takes the pipes to the test from standard input and output: what functions print is for the log."""
    source, answers = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, answers


def _run(request: dict[str, Any]) -> None:
    # The test waits a little longer, so that the log says where the function stood.
    faulthandler.dump_traceback_later(request["seconds"], exit=False)
    try:
        module = importlib.import_module(request["module"])
        function: Any = functools.reduce(getattr, request["function"].split("."), module)
        positional, named = _values.load(Path(request["arguments"]))
        _values.save(Path(request["result"]), function(*positional, **named), "the result")
    finally:
        faulthandler.cancel_dump_traceback_later()


def _format_error(error: BaseException) -> str:
    """Returns the traceback of an error without the frames of this file."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _send(answers: IO[bytes], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
