"""Other processes that use checkpoints, and files that nobody would write."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.checkpoint._format import Layout

# A program may fork many writers, on a machine that is slow for a while.
_LIMIT = 300


class Other:
    """Another Python process, which says what it does on its standard output.

    Args:
        code: What it runs, with `arguments` in `sys.argv`.
        arguments: What it is about.
    """

    def __init__(self, code: str, *arguments: object) -> None:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        """Waits for its next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process has ended with {self.process.wait(_LIMIT)}"
        return line.strip()

    def tell(self, line: str = "") -> None:
        """Sends a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def finish(self) -> list[str]:
        """Waits for its end, and returns what else it said."""
        said, _ = self.process.communicate(timeout=_LIMIT)
        return said.splitlines()


@contextmanager
def other(code: str, *arguments: object) -> Iterator[Other]:
    """Starts another process; it is killed at the end if it still runs."""
    started = Other(code, *arguments)
    try:
        yield started
    finally:
        started.process.kill()
        started.finish()


def metadata(arrays: Any, **changes: Any) -> dict[str, Any]:
    """Returns what a file says about itself; `arrays` maps names to `[dtype, shape]`."""
    fields = {"format": "lockstep checkpoint", "version": 1, "step": 1, "time": 0.0, "arrays": arrays, "extra": {}}
    return {**fields, **changes}


def forge(
    file: Path, said: Any, members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED, more: Any = None
) -> str:
    """Writes a file of given parts, and returns the checkpoint's name."""
    with zipfile.ZipFile(file, "w", compression) as archive:
        if said is not None:
            text = said if isinstance(said, bytes) else json.dumps(said).encode()
            archive.writestr(zipfile.ZipInfo("metadata.json"), text)
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, compression)
        if more is not None:
            more(archive)
    return str(file).removesuffix(".npz")


def npy(dtype: str, shape: tuple[int, ...], data: bytes) -> bytes:
    """Returns the part for an array."""
    return Layout(np.dtype(dtype), shape).header() + data
