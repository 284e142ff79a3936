"""Measures what `lockstep scan` says: of the names that it calls covered, how many run.

    python -m tests.programs.measure_scan DIRECTORY [FILE ...] > results.md

Each program of the directory is scanned, its import lines are written, and it is run in a process of its own, a
notebook cell by cell, with its lines traced. A name ran if a line that uses it was carried out, and failed if an error
was raised at such a line. Names of lines that were not reached are not counted, nor are errors of what is not here: the
network, files, and packages. So that programs are short, `fit` trains one epoch of few steps, and data sets of Keras
are random numbers; a cell that takes longer than a limit is left, and what it has reached counts.

Programs of others are fetched by hand, and not kept here: `third_party_scan.md` lists those of the last measurement.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

_CELL_SECONDS, _PROGRAM_SECONDS = 60, 200
# Errors of the surroundings, and what follows from a cell that failed before.
_AROUND = ("ConnectionError", "DataNotFoundError", "FileNotFoundError", "ModuleNotFoundError", "NameError", "URLError")
_AROUND_TEXTS = ("URL fetch failure", "No such file", "cannot be downloaded", "network", "graphviz", "pydot")


class _TooLong(BaseException):
    """A cell took longer than its limit."""


def _main(directory: str, *names: str) -> None:
    rows: list[dict[str, Any]] = []
    for path in sorted(Path(directory).iterdir()):
        if path.suffix not in (".py", ".ipynb") or (names and path.name not in names):
            continue
        with tempfile.TemporaryDirectory() as work:
            command = [sys.executable, "-m", "tests.programs.measure_scan", "--one", str(path.resolve())]
            environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": os.pathsep.join([os.getcwd(), *_EXTRA])}
            try:
                done = subprocess.run(
                    command, cwd=work, env=environment, capture_output=True, text=True, timeout=_PROGRAM_SECONDS + 60
                )
                last = done.stdout.strip().splitlines()[-1:] or [""]
                row = json.loads(last[0]) if last[0].startswith("{") else {"broken": done.stderr[-500:]}
            except subprocess.TimeoutExpired:
                row = {"broken": "it ran longer than the limit"}
        rows.append({"path": path.name, **row})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(json.dumps(rows))


_EXTRA = [path for path in os.environ.get("MEASURE_SCAN_PATH", "").split(os.pathsep) if path]


def _one(path: Path) -> dict[str, Any]:
    from lockstep._migrate._coverage import answer, names_of
    from lockstep._migrate._imports import rewrite
    from lockstep._migrate._sources import read_program
    from lockstep._migrate._uses import Scope, find_uses

    program = read_program(path)
    uses: dict[tuple[str, int], set[str]] = {}
    codes: list[tuple[str, str]] = []
    scope = Scope()
    missing: set[str] = set()
    for cell in program.cells:
        tree = _parse(cell.code)
        if tree is None:
            continue
        file = f"<{cell.number}>"
        for use in find_uses(tree, scope, names_of):
            if answer(use.name).status == "missing":
                missing.add(use.name)
            else:
                uses.setdefault((file, use.line), set()).add(use.name)
        codes.append((file, rewrite(cell.code, cell.code)))
    _make_short()
    run = _Run(codes)
    run.execute()
    ran = {name for place in run.reached for name in uses.get(place, ())}
    failed: dict[str, str] = {}
    for place, text in run.failures.items():
        for name in uses.get(place, ()):
            failed[name] = text
    others = [text for place, text in run.failures.items() if not uses.get(place)]
    covered = {name for names in uses.values() for name in names}
    return {
        "cells": len(codes),
        "ok": run.ok,
        "around": run.around,
        "cut": run.cut,
        "covered": len(covered),
        "missing": sorted(missing),
        "reached": len(ran | set(failed)),
        "failed": failed,
        "other_failures": others,
    }


def _parse(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except SyntaxError:
        return None


class _Run:
    """A run of all cells, with the lines that were reached, and where errors were raised."""

    def __init__(self, codes: list[tuple[str, str]]) -> None:
        self._codes = codes
        self._files = {file for file, _ in codes}
        self.reached: set[tuple[str, int]] = set()
        self.failures: dict[tuple[str, int], str] = {}
        self.ok = self.around = self.cut = 0

    def execute(self) -> None:
        """Runs the cells one after another, also after one that failed."""
        signal.signal(signal.SIGALRM, _raise_too_long)
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        globals_: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
        for file, code in self._codes:
            signal.alarm(_CELL_SECONDS if len(self._codes) > 1 else _PROGRAM_SECONDS)
            try:
                exec(compile(code, file, "exec"), globals_)
                self.ok += 1
            except _TooLong:
                self.cut += 1
            except (Exception, SystemExit) as error:
                self._fail(error)
            finally:
                signal.alarm(0)
        sys.settrace(None)
        threading.settrace(None)  # pyright: ignore[reportArgumentType]

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        if file not in self._files:
            return None

        def line(inner: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                self.reached.add((file, inner.f_lineno))
            return line

        return line

    def _fail(self, error: BaseException) -> None:
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if kinds & set(_AROUND) or any(part in text for part in _AROUND_TEXTS):
            self.around += 1
            return
        places = [
            (f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.filename in self._files
        ]
        if places:
            self.failures[places[-1]] = text  # pyright: ignore[reportArgumentType]


def _raise_too_long(number: int, frame: object) -> None:
    raise _TooLong


def _make_short() -> None:
    """Makes `fit` short, and data sets small random numbers."""
    import keras
    import numpy as np

    import lockstep.compat.tensorflow  # noqa: F401

    fit = keras.Model.fit

    def short(self: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs["epochs"] = min(kwargs.get("epochs", 1), kwargs.get("initial_epoch", 0) + 1)
        return fit(self, *args, **kwargs)

    keras.Model.fit = short
    draw = np.random.RandomState(0)

    def images(*shape: int, classes: int, column: bool = False) -> Any:
        def load_data(*_: Any, **__: Any) -> Any:
            label = (256, 1) if column else (256,)
            return tuple((draw.randint(0, 256, (256, *shape), "uint8"), draw.randint(0, classes, label)) for _ in "ab")

        return load_data

    sets = keras.datasets
    sets.mnist.load_data = sets.fashion_mnist.load_data = images(28, 28, classes=10)
    sets.cifar10.load_data = images(32, 32, 3, classes=10, column=True)
    sets.cifar100.load_data = images(32, 32, 3, classes=100, column=True)


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        result = _one(Path(sys.argv[2]))
        print(flush=True)
        print(json.dumps(result), flush=True)
        # Threads of the program may be waiting for ever.
        os._exit(0)
    _main(*sys.argv[1:])
