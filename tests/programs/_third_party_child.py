"""Runs one program of `third_party`, cell by cell, in a process of its own: `python _third_party_child.py JOB.json`.

With `--serve MODE` it forks one such process for each line of its input.

It runs under TensorFlow's Python, too, so it imports nothing of lockstep by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))
_FLOAT = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
_LOSS = re.compile(r"loss\D{0,20}?(-?\d+\.\d+(?:e[-+]?\d+)?)", re.IGNORECASE)
# Progress bars of Keras, and what takes how long.
_TIMES = re.compile(r".*(?:ms/step|s/step|\bseconds?\b|\bsec\b|\d+ ?ms\b|\btime\b.*:).*", re.IGNORECASE)


class _TooLong(BaseException):
    """A cell took longer than its limit."""


class _Tee:
    """Keeps what is printed, and prints it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.text: list[str] = []

    def write(self, text: str) -> int:
        self.text.append(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _serve(mode: str) -> None:
    """Runs jobs whose files are named on standard input, each in a fork of this process, which imports but once."""
    from tests.programs import _equal_conditions

    _equal_conditions.prepare(mode)
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(Path(line.strip()).read_text())
        process = os.fork()
        if not process:
            os.setsid()
            os.environ.clear()
            os.environ.update(job["environment"])
            os.chdir(job["work"])
            if not job["verbose"]:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 2)
                os.dup2(null, 1)
            try:
                _main(job)
            finally:
                os._exit(0)
        until = time.monotonic() + job["program_seconds"] + 60
        while not os.waitpid(process, os.WNOHANG)[0]:
            time.sleep(0.2)
            if time.monotonic() > until:
                os.killpg(process, signal.SIGKILL)
                os.waitpid(process, 0)
                break
        print("done", flush=True)


def _main(job: dict[str, Any]) -> None:
    warnings.simplefilter("ignore")
    began = time.monotonic()
    from tests.programs import _equal_conditions

    report: dict[str, Any] = {"cells": len(job["cells"]), "failures": [], "printed": {}, "losses": [], "ran": 0}
    out = Path(job["out"])
    out.write_text(json.dumps(report))
    _equal_conditions.prepare(job["mode"])
    _equal_conditions.begin(job["full"])
    sys.argv = job["argv"]
    sys.path[0:0] = [os.getcwd()]
    signal.signal(signal.SIGALRM, _raise_too_long)
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    for cell in job["cells"]:
        tee = _Tee(sys.stdout)
        left = job["program_seconds"] - (time.monotonic() - began)
        signal.alarm(max(5, int(min(job["cell_seconds"], left))))
        try:
            with contextlib.redirect_stdout(tee):  # pyright: ignore[reportArgumentType]
                _run(cell, job, space)
            report["ran"] += 1
        except _TooLong:
            report["failures"].append([cell["number"], "TooLong: it ran longer than the limit", 0])
        except SystemExit as ending:
            if ending.code:
                report["failures"].append([cell["number"], f"SystemExit: {ending.code}", 0])
            else:
                report["ran"] += 1
        except Exception as error:
            report["failures"].append(_failure(cell["number"], error, job["verbose"]))
        finally:
            signal.alarm(0)
        text = "".join(tee.text)
        lines = [line for line in re.split(r"[\r\n]", text) if not _TIMES.fullmatch(line)]
        report["printed"][str(cell["number"])] = [float(v) for line in lines for v in _FLOAT.findall(line)][:2000]
        report["losses"] += [float(found[1]) for line in lines for found in _LOSS.finditer(line)][:50]
        report["results"] = _equal_conditions.RESULTS
        report["seconds"] = round(time.monotonic() - began, 1)
        out.write_text(json.dumps(report))
        if "TooLong" in str(report["failures"][-1:]) and len(job["cells"]) == 1:
            break
    with contextlib.suppress(Exception):
        root = "tensorflow" if job["mode"] == "tensorflow" else "lockstep.compat.tensorflow"
        _equal_conditions.note_models(space, sys.modules[root])
    report["drawn"] = sorted(_equal_conditions.DRAWN_OTHERWISE)
    out.write_text(json.dumps(report))


def _run(cell: dict[str, Any], job: dict[str, Any], space: dict[str, Any]) -> None:
    if cell["kind"] == "file":
        Path(cell["name"]).write_text(cell["code"])
    elif cell["kind"] == "shell":
        _shell(cell, job)
    elif cell["kind"] == "module":
        space.update(runpy.run_module(cell["name"], run_name="__main__", alter_sys=True))
    elif cell["kind"] == "script":
        space.update(runpy.run_path(cell["name"], run_name="__main__"))
    else:
        # linecache finds the text, for what inspects the source of functions as autograph does.
        name = f"<cell {cell['number']} {os.getpid()}>"
        import linecache

        linecache.cache[name] = (len(cell["code"]), None, cell["code"].splitlines(keepends=True), name)
        exec(compile(cell["code"], name, "exec"), space)


def _shell(cell: dict[str, Any], job: dict[str, Any]) -> None:
    """Runs the Python files that a cell of the shell starts; all else of it is left out."""
    for number, (script, arguments) in enumerate(
        re.findall(r"^python3? (\S+\.py)([^&>\n]*)", cell["code"], re.MULTILINE)
    ):
        inner = job | {"argv": [script, *arguments.split()], "out": f"{job['out']}.{cell['number']}.{number}"}
        inner["cells"] = [{"kind": "script", "name": script, "number": 1}]
        path = Path(f"job_{cell['number']}_{number}.json")
        path.write_text(json.dumps(inner))
        process = subprocess.Popen([sys.executable, __file__, str(path)])
        if "--bg" in cell["code"].splitlines()[0] or "&\n" in cell["code"] + "\n":
            continue
        process.wait(timeout=job["cell_seconds"])
        report = json.loads(Path(inner["out"]).read_text())
        if report["failures"]:
            raise RuntimeError(f"{script}: {report['failures'][0][1]}")


def _failure(number: int | None, error: Exception, verbose: bool) -> list[Any]:
    if verbose:
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith("<cell") or str(Path.cwd()) in frame.filename]
    line = (own[-1].line or "") if own else ""
    last = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return [number, f"{type(error).__name__}: {text[:600]}", f"{line.strip()[:120]} | {last}"]


def _raise_too_long(number: int, frame: object) -> None:
    raise _TooLong


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        _serve(sys.argv[2])
    else:
        _main(json.loads(Path(sys.argv[1]).read_text()))
    sys.stdout.flush()
    # Threads of the program may be waiting for ever.
    os._exit(0)
