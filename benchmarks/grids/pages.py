"""What `lowerings.py` has measured, kept as JSON, and a page made of it."""

from __future__ import annotations

import fcntl
import functools
import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.environments import Pythons, versions
from benchmarks.harness.machine import machine, now

Times = tuple[float, float, float]
_TRIGONOMETRY = "sines, cosines, tangents, angles"
# How the names of cases of a kind begin and end, and what the page calls them.
_KINDS = (
    ("relu and max pool", "", "max pooling of relus"),
    ("max pool", "gradient", "max pooling, gradient"),
    ("max pool", "forward", "max pooling, forward"),
    ("sum pool", "gradient", "sum and average pooling, gradient"),
    ("sum pool", "forward", "sum and average pooling, forward"),
    ("depthwise", "forward", "depthwise convolution, forward"),
    ("depthwise", "of input", "depthwise convolution, gradient of the input"),
    ("depthwise", "of kernel", "depthwise convolution, gradient of the kernel"),
    ("conv", "forward", "other convolutions, forward"),
    ("conv", "of input", "other convolutions, gradient of the input"),
    ("conv", "of kernel", "other convolutions, gradient of the kernel"),
    ("transposed", "forward", "transposed convolutions of volumes, forward"),
    ("transposed", "of kernel", "transposed convolutions, gradient of the kernel"),
    ("recurrent", "gradient", "recurrent layers, gradient"),
    ("product", "of kernel", "dense layers, gradient of the kernel"),
    ("random", "forward and back", "dropout, forward and back"),
    ("random", "numbers", "random numbers"),
    ("bias", "", "convolutions with biases"),
    ("sum of", "", "sums over the first axis"),
    ("row updates", "", "updates of rows of tables"),
    ("transforms", "", "transformations of pictures"),
    ("batch normalization", "", "batch normalization"),
    ("layer normalization", "", "layer normalization"),
    ("argmax", "", "places of the largest"),
    ("attention", "", "attention"),
    ("gradients", "", "gradients of many small products"),
    ("resizing", "", "resizing"),
    ("gradient of resizing", "", "resizing, gradient"),
    ("sort", "", "sorts"),
    ("argsort", "", "sorts"),
    ("gradient of a sort", "", "sorts, gradient"),
    *((name, "", _TRIGONOMETRY) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "gradient of")),
)


def keep(directory: Path, case: str, found: Mapping[str, Times]) -> None:
    """Replaces what is known of a case, and writes the page; several processes may do so at once."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lowerings.json").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        before = json.loads(file.read() or '{"cases": {}}')["cases"]
        cases = {n: t for n, t in before.items() if n.removesuffix(", in a loop") != case}
        cases |= {n: [round(t, 4) for t in times] for n, times in found.items()}
        result = {"date": now(), "machine": machine(), "versions": _versions(), "cases": dict(sorted(cases.items()))}
        file.truncate(0)
        file.write(json.dumps(result, indent=1) + "\n")
        (directory / "lowerings.md").write_text(markdown(result))


@functools.cache
def _versions() -> Mapping[str, Mapping[str, str]]:
    return versions(Pythons(lockstep=sys.executable))


def markdown(result: Mapping[str, Any]) -> str:
    """Returns the page."""
    cases: Mapping[str, Times] = result["cases"]
    slower = sorted(((t, n) for n, t in cases.items() if t[2] > 1.1), key=lambda pair: -pair[0][2])
    about, jax = result["machine"], result["versions"]["lockstep"]["jax"]
    lines = [
        "# lockstep's lowerings for the CPU beside XLA's own",
        "",
        f"{result['date']}; {about['cores']} cores of {about['processor']}; jax {jax}. "
        "`python benchmarks/lowerings.py --keep`, in shards. Time of ours over XLA's, of each case whose program "
        "differs: the median of alternating rounds.",
        "",
        "| | cases | median | best | worst |",
        "|---|---|---|---|---|",
    ]
    for place in ("", ", in a loop"):
        for title in dict.fromkeys(title for _, _, title in _KINDS):
            ratios = [t[2] for n, t in cases.items() if _kind(n) == title and n.endswith(", in a loop") == bool(place)]
            if ratios:
                middle = f"{statistics.median(ratios):.2f} | {min(ratios):.3f} | {max(ratios):.2f}"
                lines.append(f"| {title}{place} | {len(ratios)} | {middle} |")
    lines += [
        "",
        f"Of {len(cases)} cases {len(slower) or 'none'} seem more than 10 % slower" + (":" if slower else "."),
    ]
    lines += ["", "| XLA, ms | ours, ms | ratio | |", "|---|---|---|---|"] if slower else []
    lines += [f"| {own:.3f} | {ours:.3f} | {ratio:.2f} | {name} |" for (own, ours, ratio), name in slower]
    return "\n".join(lines) + "\n"


def _kind(name: str) -> str:
    plain = name.removesuffix(", in a loop")
    begin = "depthwise" if _is_depthwise(plain) else plain
    return next(title for start, end, title in _KINDS if begin.startswith(start) and plain.endswith(end))


def _is_depthwise(name: str) -> bool:
    """Whether a convolution has as many groups as inputs."""
    words = name.split()
    return "groups" in words and words[1].rsplit("x", 1)[-1] == words[words.index("groups") - 1]
