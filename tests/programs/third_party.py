"""Runs programs of third parties on TensorFlow and on lockstep, with only their import lines changed.

    python -m tests.programs.third_party DIRECTORY [--only TEXT] [--tensorflow PYTHON] [--results FILE] [--table FILE]

DIRECTORY holds repositories as `owner+name`; `third_party_programs.py` lists what is run of them. To both sides the
same is done: epochs and steps are capped, downloads are files of small random numbers (`_stand_ins.py`), shuffling and
dropout are off, and initial weights are a function of their shapes (`_equal_conditions.py`); lines of IPython's own are
left out. What TensorFlow cannot run there is no measure of lockstep: a program runs whole if each cell that ran on
TensorFlow runs.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

from tests.programs._third_party_table import causes, table
from tests.programs.third_party_programs import PROGRAMS, Entry

_CHILD = Path(__file__).with_name("_third_party_child.py")
_SECONDS = {"tensorflow": (120, 240), "lockstep": (150, 300)}
# The first line of a cell that is Python all the same.
_PYTHON_MAGIC = re.compile(r"%%(?:time|timeit|capture|prun)\b[^\n]*")
_CAPPED = re.compile(
    r"(?i)(?:(?:num|n|max|training|train|total|number_of)_?)*(?:(?P<epochs>epochs?)|(?P<steps>training_steps|num_steps|"
    r"iterations?|n_iterations|episodes))"
)


def shorten(code: str) -> str:
    """Returns a program with smaller constants where it says how long it trains, and prints."""
    lines = code.splitlines(keepends=True)
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return code
    for node in sorted((n for n in ast.walk(tree) if isinstance(n, ast.Assign)), key=lambda n: -n.lineno):
        target, value = node.targets[0], node.value
        if not (isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, int)):
            continue
        found, most = _CAPPED.fullmatch(target.id), 0
        if found:
            most = 2 if found["epochs"] else 20
        elif target.id in ("display_step", "display_steps", "eval_step") or target.id == "max_episodes":
            most = 5
        if most and value.value > most and value.lineno == value.end_lineno:
            line = lines[value.lineno - 1].encode()
            new = line[: value.col_offset] + str(most).encode() + line[value.end_col_offset :]
            lines[value.lineno - 1] = new.decode()
    code = "".join(lines)
    # Loops that say it where they begin.
    return re.sub(r"(for (?:epoch|i_epoch|episode|step|i|iteration)\w* in (?:t\.)?range\()(\d{2,})\)", _smaller, code)


def _smaller(found: re.Match[str]) -> str:
    most = 2 if "epoch" in found[1] else 20
    return f"{found[1]}{min(int(found[2]), most)})"


def cells_of(entry: Entry, path: Path, mode: str) -> list[dict[str, Any]]:
    """Returns what is run of a notebook, in order, as it is for one side."""
    document = json.loads(path.read_text("utf-8"))
    cells: list[dict[str, Any]] = []
    for number, cell in enumerate(document["cells"], start=1):
        text = "".join(cell["source"])
        if cell["cell_type"] != "code" or not text.strip():
            continue
        text = _PYTHON_MAGIC.sub("pass", text.lstrip(), count=1)
        head = text.split("\n", 1)
        if head[0].startswith("%%writefile"):
            code = change(head[1] if len(head) > 1 else "", mode)
            cells.append({"kind": "file", "name": head[0].split()[-1], "code": code, "number": number})
        elif head[0].startswith("%%"):
            cells.append({"kind": "shell", "code": text, "number": number})
        else:
            from lockstep._migrate._sources import _python_of

            cells.append({"kind": "code", "code": change(_python_of(text), mode), "number": number})
    return cells


def change(code: str, mode: str) -> str:
    """Returns code that trains for a short time, with lockstep's import lines if it is for lockstep."""
    code = shorten(code)
    if mode == "lockstep":
        from lockstep._migrate._imports import rewrite

        try:
            return rewrite(code, code)
        except SyntaxError:
            return code
    return code


def run(
    entry: Entry, directory: Path, mode: str, python: str, server: subprocess.Popen[str], verbose: bool
) -> dict[str, Any]:
    """Runs one program on one side, and returns its report."""
    source = directory / entry.repository / entry.path
    cell_seconds, program_seconds = _SECONDS[mode]
    for outside in map(Path, entry.outside):
        if outside.is_dir():
            shutil.rmtree(outside)
        outside.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as work:
        job: dict[str, Any] = {"mode": mode, "full": entry.full, "verbose": verbose}
        job |= {"cell_seconds": cell_seconds, "program_seconds": program_seconds}
        if source.suffix == ".ipynb":
            job["cells"] = cells_of(entry, source, mode)
        else:
            root = directory / entry.repository / (entry.root or Path(entry.path).parent)
            files = root.rglob("*") if entry.root else [source]
            for file in files:
                if file.is_file() and ".git" not in file.parts and file.stat().st_size < 2**20:
                    new = Path(work) / file.relative_to(root)
                    new.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, new)
                    if file.suffix == ".py":
                        new.write_text(change(file.read_text("utf-8"), mode), "utf-8")
            name = entry.module or str(source.relative_to(root))
            kind = "module" if entry.module else "script"
            job["cells"] = [{"kind": kind, "name": name, "number": 1}]
        job["argv"] = [source.name, *(argument.replace("{work}", work) for argument in entry.arguments)]
        count, configs = max(entry.workers, 1), _configs(entry.workers)
        paths: list[Path] = []
        for rank in range(count):
            environment = _environment(mode, Path(work))
            if entry.workers:
                environment["TF_CONFIG"] = configs[rank]
            paths.append(Path(work) / f".job{rank}.json")
            own = {"out": str(Path(work) / f".report{rank}"), "environment": environment, "work": work}
            paths[-1].write_text(json.dumps(job | own))
        codes = [0] if not entry.workers else _together(python, paths, program_seconds)
        if not entry.workers:
            assert server.stdin is not None and server.stdout is not None
            server.stdin.write(f"{paths[0]}\n")
            server.stdin.flush()
            while server.stdout.readline() not in ("done\n", ""):
                pass
        try:
            report = json.loads((Path(work) / ".report0").read_text())
        except (OSError, ValueError):
            report = {"cells": len(job["cells"]), "failures": [[0, "the process ended", ""]], "ran": 0}
        if any(codes) and not report["failures"]:
            report["failures"].append([0, f"the processes ended with {codes}", ""])
        return report


def _environment(mode: str, work: Path) -> dict[str, str]:
    (work / "tmp").mkdir(exist_ok=True)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", "MPLBACKEND": "Agg"}
    environment |= {"TF_ENABLE_ONEDNN_OPTS": "0", "PYTHONUTF8": "1", "TMPDIR": str(work / "tmp")}
    # What Keras downloads; each program has its own.
    environment |= {"KERAS_HOME": str(work / "tmp" / "keras")}
    environment.pop("TF_CONFIG", None)
    if mode == "lockstep":
        environment["PYTHONPATH"] = os.environ.get("THIRD_PARTY_PATH", "")
    return environment


def _server(python: str, mode: str, work: Path, verbose: bool) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, str(_CHILD), "--serve", mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if verbose else subprocess.DEVNULL,
        env=_environment(mode, work),
        cwd=work,
        text=True,
    )


def _together(python: str, paths: list[Path], seconds: int) -> list[int]:
    """Runs workers, and returns how they ended."""
    processes: list[subprocess.Popen[bytes]] = []
    for path in paths:
        job = json.loads(path.read_text())
        output = None if job["verbose"] else subprocess.DEVNULL
        command = [python, str(_CHILD), str(path)]
        processes.append(
            subprocess.Popen(
                command, cwd=path.parent, env=job["environment"], stdout=output, stderr=output, start_new_session=True
            )
        )
    for process in processes:
        try:
            process.wait(timeout=seconds + 60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=60)
    return [process.returncode for process in processes]


def _configs(workers: int) -> list[str]:
    """Returns `TF_CONFIG` of each worker, on ports that are free."""
    sockets = [socket.socket() for _ in range(workers)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    tasks = ({"type": "worker", "index": index} for index in range(workers))
    return [json.dumps({"cluster": {"worker": addresses}, "task": task}) for task in tasks]


def main() -> None:
    """Runs what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="texts, one of which the program's name has")
    parser.add_argument("--tensorflow", default="", help="a Python that has TensorFlow 2.15")
    parser.add_argument("--results", type=Path, default=Path("third_party.jsonl"), help="a line for each run is added")
    parser.add_argument("--sides", default="tensorflow,lockstep")
    parser.add_argument("--again", action="store_true", help="runs what there is a result of, too")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--table", type=Path, help="writes the table of the results there, and runs nothing")
    parser.add_argument("--causes", type=Path, help="writes failures by their causes there, and runs nothing")
    options = parser.parse_args()
    if options.table or options.causes:
        if options.table:
            options.table.write_text(table(options.results, options.directory))
        if options.causes:
            options.causes.write_text(causes(options.results))
        return
    lines = options.results.read_text().splitlines() if options.results.exists() else []
    done = {(row["name"], row["side"]) for row in map(json.loads, lines)}
    sides = [side for side in options.sides.split(",") if side == "lockstep" or options.tensorflow]
    pythons = {"tensorflow": options.tensorflow, "lockstep": sys.executable}
    with tempfile.TemporaryDirectory() as work:
        servers = {side: _server(pythons[side], side, Path(work), options.verbose) for side in sides}
        # Not in the order of the list, so that a part of it is a sample.
        for entry in sorted(PROGRAMS, key=lambda entry: zlib.crc32(entry.name.encode())):
            if options.only and not any(text in entry.name for text in options.only):
                continue
            for side in sides:
                if (entry.name, side) in done and not options.again:
                    continue
                report = run(entry, options.directory, side, pythons[side], servers[side], options.verbose)
                with options.results.open("a") as file:
                    file.write(json.dumps({"name": entry.name, "side": side, **report}) + "\n")
                first = f"; {report['failures'][0]}" if report["failures"] else ""
                took = f"{report['ran']}/{report['cells']} {report.get('seconds')} s"
                print(f"{side} {took} {entry.name}{first}", flush=True)
        for server in servers.values():
            assert server.stdin is not None
            server.stdin.close()
            server.wait(timeout=60)


if __name__ == "__main__":
    main()
