"""Where the time of a network's step goes on lockstep: XLA's operations, beside what the memory could do.

A process of its own: XLA writes its programs only if it is told so before it starts.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.environments import ROOT

_LINES, _TITLE, _ORIGIN = 40, 44, 70
_BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "s8": 1, "u8": 1, "pred": 1}


@dataclass(frozen=True)
class Operation:
    """An operation of a step.

    Attributes:
        name: XLA's.
        milliseconds: In a step, of all its calls.
        calls: In a step.
        megabytes: What its operands and its result have, each once.
        origin: Where the program has it from.
    """

    name: str
    milliseconds: float
    calls: float
    megabytes: float
    origin: str


def show(name: str, python: str) -> None:
    """Profiles a network in a process of its own, and prints its operations, the longest first."""
    with tempfile.TemporaryDirectory() as directory:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={directory}/hlo --xla_dump_hlo_as_text"
        variables = {**os.environ, "XLA_FLAGS": flags, "JAX_ENABLE_COMPILATION_CACHE": "false"}
        command = [python, "-m", "benchmarks.zoo.profile", name, directory]
        done = subprocess.run(command, cwd=ROOT, env=variables, check=True, stdout=subprocess.PIPE, text=True)
        steps, seconds, bandwidth = json.loads(done.stdout.splitlines()[-1])
        print(table(operations(Path(directory), steps), seconds, bandwidth))


def operations(directory: Path, steps: int) -> list[Operation]:
    """Reads a trace of so many steps and the programs beside it."""
    (path,) = directory.glob("plugins/profile/*/*.trace.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    micros, calls = Counter[str](), Counter[str]()
    for event in events:
        name = event.get("args", {}).get("hlo_op")
        if event.get("ph") == "X" and name:
            micros[name] += event["dur"]
            calls[name] += 1
    defined = _definitions(directory / "hlo")
    return [
        Operation(name, time / 1e3 / steps, calls[name] / steps, *_describe(name, defined))
        for name, time in micros.most_common()
    ]


def table(found: list[Operation], seconds: float, bandwidth: float) -> str:
    """Returns the operations as lines of text.

    Args:
        found: The operations.
        seconds: Of a step without the trace.
        bandwidth: GB/s of a copy.
    """
    total = sum(o.milliseconds for o in found)
    lines = [
        f"A step takes {seconds * 1e3:.1f} ms; operations take {total:.1f} ms of all threads.",
        f"A copy of large arrays moves {bandwidth:.1f} GB/s: `limit` is what an operation's arrays would take at that.",
        "",
        f"{'ms':>9} {'calls':>6} {'MB':>8} {'limit, ms':>9}  {'operation':{_TITLE}} of",
    ]
    for o in found[:_LINES]:
        limit = o.calls * o.megabytes / bandwidth
        row = f"{o.milliseconds:9.3f} {o.calls:6.1f} {o.megabytes:8.2f} {limit:9.3f}  {o.name:{_TITLE}} {o.origin}"
        lines.append(row)
    rest = found[_LINES:]
    if rest:
        lines.append(f"{sum(o.milliseconds for o in rest):9.3f} {'':25} {len(rest)} others")
    return "\n".join(lines)


def _definitions(directory: Path) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for path in directory.glob("*after_optimizations.txt"):
        for line in path.read_text().splitlines():
            match = re.match(r"\s*(?:ROOT )?%?([\w.\-]+) = (.*)", line)
            if match:
                found.setdefault(match[1], match[2])
    return found


def _describe(name: str, defined: Mapping[str, str]) -> tuple[float, str]:
    """Returns the MB of an operation's arrays, and where the program has it from."""
    text = defined.get(name, "")
    operands = re.search(r"\w\(([^)]*)\)", text)
    names = re.findall(r"%([\w.\-]+)", operands[1]) if operands else []
    size = sum(_size(t) for t in (text, *(defined.get(n, "") for n in names)))
    origin = re.search(r'op_name="([^"]*)"', text)
    return size / 1e6, origin[1].partition("/")[2][-_ORIGIN:] if origin else ""


def _size(text: str) -> float:
    """Returns the bytes of the array that a definition begins with."""
    match = re.match(r"(\w+)\[([\d,]*)\]", text)
    if not match:
        return 0.0
    size = float(_BYTES.get(match[1], 4))
    for part in filter(None, match[2].split(",")):
        size *= int(part)
    return size


def _measure(name: str, directory: str) -> None:
    """Trains for an epoch under a trace; prints steps, seconds of a step without it, and GB/s of a copy."""
    import jax
    import numpy as np

    from benchmarks.zoo.measure import compiled, networks

    network = networks()[name]
    _, model = compiled("lockstep", network)
    x, y = network.examples(network.batch * network.steps)
    settings = {"batch_size": network.batch, "shuffle": False, "verbose": 0}
    model.fit(x, y, epochs=2, **settings)
    start = time.perf_counter()
    model.fit(x, y, epochs=1, **settings)
    seconds = (time.perf_counter() - start) / network.steps
    with jax.profiler.trace(directory):
        model.fit(x, y, epochs=1, **settings)
    source = np.ones(25_000_000, np.float32)
    target = np.empty_like(source)
    copies: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        np.copyto(target, source)
        copies.append(time.perf_counter() - start)
    print(json.dumps([network.steps, seconds, 2 * source.nbytes / min(copies) / 1e9]))


if __name__ == "__main__":
    _measure(*sys.argv[1:])
