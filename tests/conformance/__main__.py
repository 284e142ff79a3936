"""Runs files of TensorFlow's tests, judges each test and prints tables.

python -m tests.conformance /path/to/tensorflow/python/data/kernel_tests/batch_test.py
python -m tests.conformance DIR --jobs 2 --json results.json
python -m tests.conformance DIR --tensorflow /path/to/python    the same on TensorFlow: which tests it passes
python -m tests.conformance DIR --passed-by tensorflow.json     counts those tests alone
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conformance.one_file import root_of
from tests.conformance.verdicts import VERDICTS, judge

# TensorFlow also has linear_test_v2.py and the like.
_NAME = re.compile(r"_test(_\w+)?\.py$")
_SHARED = ("_test_base", "_test_lib", "_test_util", "_test_utils")
_CHECKOUT = Path(__file__).resolve().parents[2]
# A process that has written nothing for this long hangs where no signal reaches it.
_SILENCE = 240


def main() -> None:
    """Runs what the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description="TensorFlow's tests on lockstep.")
    parser.add_argument("paths", nargs="+", type=Path, help="files of tests, or directories of them")
    parser.add_argument("--tensorflow", metavar="PYTHON", help="run on the TensorFlow of this Python instead")
    parser.add_argument("--passed-by", type=Path, metavar="JSON", help="count the tests that this result passed alone")
    parser.add_argument("--only", metavar="WORDS", help="tests whose names hold these words")
    parser.add_argument("--jobs", type=int, default=1, help="files at once")
    parser.add_argument("--file-seconds", type=float, default=1200, help="for one file, all tests together")
    parser.add_argument("--json", type=Path, help="where to write all results")
    parser.add_argument("--causes", type=int, default=40, help="how many causes to print")
    parser.add_argument("-v", action="store_true", help="print every test that does not pass")
    arguments = parser.parse_args()
    files = sorted({f.resolve() for path in arguments.paths for f in _files_of(path)})
    passed = json.loads(arguments.passed_by.read_text()) if arguments.passed_by else None
    results: dict[Path, dict[str, Any]] = {}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for file, tests in zip(files, pool.map(lambda f: _run_and_count(f, arguments), files), strict=True):
            results[file] = tests if passed is None else _of_those(tests, passed.get(str(file), {}))
            for result in results[file].values():
                result["verdict"], result["cause"] = judge(result)
            # After each file: who ends a run of hours keeps what it has found.
            if arguments.json:
                arguments.json.write_text(json.dumps({str(f): found for f, found in results.items()}, indent=1))
    _print(results, arguments.causes, arguments.v)


def _of_those(tests: dict[str, Any], by_tensorflow: dict[str, Any]) -> dict[str, Any]:
    """Returns the results of tests that TensorFlow passes; a file that cannot be imported stands for all of its own."""
    good = {name for name, result in by_tensorflow.items() if result["outcome"] == "pass"}
    if "(import)" in tests:
        return dict.fromkeys(good, tests["(import)"])
    return {name: result for name, result in tests.items() if name in good}


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(f for f in path.rglob("*_test*.py") if _NAME.search(f.name) and not f.stem.endswith(_SHARED))


def _run_and_count(file: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs a file, and says on stderr that it has ended, for whoever waits for many."""
    found = _run(file, arguments)
    counts = Counter(r["outcome"] for r in found.values())
    print(f"{file.name}: {dict(counts)}", file=sys.stderr, flush=True)
    return found


def _run(file: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns each test's result. What hangs is killed, and the file goes on after it."""
    results: dict[str, Any] = {}
    left = arguments.file_seconds
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "results"
        while True:
            out.write_text("")
            settings = {
                "file": str(file),
                "roots": [str(r) for r in dict.fromkeys([root_of(file), *_siblings(root_of(file))])],
                "out": str(out),
                "tensorflow": bool(arguments.tensorflow),
                "done": list(results),
                "only": arguments.only,
            }
            ended, seconds = _process(settings, arguments, out, left)
            left -= seconds
            lines = [json.loads(line) for line in out.read_text().splitlines()]
            running = None
            for line in lines:
                if line["outcome"] == "start":
                    running = line["test"]
                elif line["outcome"] == "end":
                    running, ended = None, True
                elif results.get(line["test"], {}).get("outcome") != "fail":
                    results[line["test"]] = line
            if "(import)" in results:
                return results
            finished = any(line["outcome"] == "end" for line in lines)
            if running is not None and running not in results:
                why = {"outcome": "timeout"} if not ended else {"outcome": "fail", "error": "Crash", "why": "ended"}
                results[running] = {"test": running, **why}
            if finished or left <= 0 or (running is None and not lines):
                if not finished and not lines:
                    results["(import)"] = {"test": "(import)", "outcome": "timeout"}
                return results


def _siblings(root: Path) -> list[Path]:
    # tf.estimator's tests use bases of TensorFlow's.
    return [r for r in (root.parent, root / "estimator") if (r / "tensorflow/python").is_dir()]


def _process(settings: dict[str, Any], arguments: argparse.Namespace, out: Path, seconds: float) -> tuple[bool, float]:
    """Runs a process until it ends, is silent for too long or has no time left; returns whether it ended, and when."""
    python = arguments.tensorflow or sys.executable
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        # Threads enough for the devices, on any machine.
        "NPROC": "16",
        "PYTHONPATH": str(_CHECKOUT),
    }
    environment.pop("TF_CONFIG", None)
    process = subprocess.Popen(
        ["nice", python, "-m", "tests.conformance.one_file", json.dumps(settings)],
        env=environment,
        cwd=_CHECKOUT,
        stdout=subprocess.DEVNULL,
        # Nobody reads it: a pipe that is full would stop the tests.
        stderr=subprocess.DEVNULL,
    )
    used, size, silent = 0.0, 0, 0.0
    while True:
        try:
            process.wait(2)
            return True, used
        except subprocess.TimeoutExpired:
            used += 2
        now = out.stat().st_size
        silent = 0.0 if now != size else silent + 2
        size = now
        if used > seconds or silent > _SILENCE:
            process.kill()
            process.wait()
            return False, used


def _print(results: dict[Path, dict[str, Any]], most: int, every: bool) -> None:
    if every:
        for file, tests in results.items():
            for name, result in tests.items():
                if result["verdict"] not in ("passes", "skipped"):
                    print(f"{result['verdict']:9} {file.name} {name}: {result['cause'][:200]}")
                    print(f"            {(result.get('lines') or [''])[-1]}   [{result.get('at', '')}]")
    width = max(len(f.name) for f in results)
    print(f"{'file':{width}} " + " ".join(f"{v:>8}" for v in VERDICTS))
    total: Counter[str] = Counter()
    for file, tests in results.items():
        counts = Counter(r["verdict"] for r in tests.values())
        total += counts
        mark = "  (cannot be imported)" if "(import)" in tests else ""
        print(f"{file.name:{width}} " + " ".join(f"{counts[v]:8}" for v in VERDICTS) + mark)
    print(f"{'all':{width}} " + " ".join(f"{total[v]:8}" for v in VERDICTS))
    counted = total["passes"] + total["words"] + total["differs"] + total["timeout"]
    if counted:
        every_one = counted + total["refused"]
        print(f"\nof {every_one} that need nothing internal {total['passes'] / every_one:.1%} pass")
        print(f"of {counted} that are not refused, with what to use, either {total['passes'] / counted:.1%}")
    for verdict in ("differs", "words", "refused", "internal"):
        causes = Counter(r["cause"] for tests in results.values() for r in tests.values() if r["verdict"] == verdict)
        if causes:
            print(f"\n{verdict}:")
        for cause, count in causes.most_common(most if verdict == "differs" else 12):
            print(f"{count:6} {cause}")


if __name__ == "__main__":
    main()
