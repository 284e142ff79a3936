"""Compares lockstep's CPU lowerings with XLA's own, over grids of shapes, in one process and in turn.

python benchmarks/lowerings.py                  all that lockstep lowers differently; exit status 1 if a case is slower
python benchmarks/lowerings.py --quick          some of them
python benchmarks/lowerings.py --only 'pool'    those whose name matches a regular expression
python benchmarks/lowerings.py --shard 2/8      every eighth case, from the second on
python benchmarks/lowerings.py --keep           what it measures replaces those cases in results/lowerings.*

A case is measured in rounds; in each round both programs run, one after the other, in alternating order. What decides
is the median of the rounds' ratios. A case that seems slower is measured again, twice, for longer, before it counts.
Unset XLA_FLAGS, and leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The checkout, not this directory, is where modules are looked for.
_ROOT = Path(__file__).resolve().parents[1]
sys.path[0:1] = [str(_ROOT), str(_ROOT / "src")]

import jax  # noqa: E402

from benchmarks.grids.attention import attention_cases  # noqa: E402
from benchmarks.grids.biases import bias_cases  # noqa: E402
from benchmarks.grids.case import STEPS, Case, looped  # noqa: E402
from benchmarks.grids.compared import ALLOWED, compared  # noqa: E402
from benchmarks.grids.convolutions import convolution_cases  # noqa: E402
from benchmarks.grids.depthwise import depthwise_cases  # noqa: E402
from benchmarks.grids.extremes import extreme_cases  # noqa: E402
from benchmarks.grids.normalization import normalization_cases  # noqa: E402
from benchmarks.grids.pages import keep  # noqa: E402
from benchmarks.grids.pooling import pooling_cases  # noqa: E402
from benchmarks.grids.products import product_cases  # noqa: E402
from benchmarks.grids.random_numbers import random_cases  # noqa: E402
from benchmarks.grids.recurrent import recurrent_cases  # noqa: E402
from benchmarks.grids.resizing import resizing_cases  # noqa: E402
from benchmarks.grids.row_updates import row_update_cases  # noqa: E402
from benchmarks.grids.sorting import sorting_cases  # noqa: E402
from benchmarks.grids.transforms import transform_cases  # noqa: E402
from benchmarks.grids.transposed import transposed_cases  # noqa: E402
from benchmarks.grids.trigonometry import trigonometry_cases  # noqa: E402
from lockstep import _cpu  # noqa: E402
from lockstep._cpu.backend import VARIABLE  # noqa: E402
from lockstep._engine.step import backends  # noqa: E402

GRIDS: tuple[Callable[[], Iterator[Case]], ...] = (
    pooling_cases,
    depthwise_cases,
    convolution_cases,
    bias_cases,
    transposed_cases,
    recurrent_cases,
    product_cases,
    random_cases,
    row_update_cases,
    transform_cases,
    normalization_cases,
    extreme_cases,
    attention_cases,
    trigonometry_cases,
    resizing_cases,
    sorting_cases,
)
# What one run is shorter than cannot be told from the noise of a dispatch, ms.
_NOISE = 0.05


def main() -> int:
    """Measures, prints a table, and returns the exit status."""
    options = _options()
    jax.config.update("jax_enable_x64", True)
    _cpu.register()
    print(f"{'XLA ms':>9} {'ours ms':>9} {'ratio':>6}  case")
    slower: list[str] = []
    for case in _chosen(options):
        found = list(_measured(case, options.seconds))
        slower += [m.line for m in found if m.is_slower]
        if options.keep:
            keep(options.keep, case.name, {m.name: (m.own, m.ours, m.ratio) for m in found})
    print(f"\n{len(slower)} case(s) more than {ALLOWED - 1:.0%} slower than XLA's own lowering", *slower, sep="\n")
    return 1 if slower else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="some cases only")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name matches")
    parser.add_argument("--seconds", type=float, default=0.3, help="how long to measure a case")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="every N-th case, from the I-th on")
    parser.add_argument("--keep", type=Path, nargs="?", const=_ROOT / "benchmarks" / "results", metavar="DIRECTORY")
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> list[Case]:
    cases = {case.name: case for grid in GRIDS for case in grid()}.values()
    wanted = [c for c in cases if (c.quick or not options.quick) and re.search(options.only, c.name)]
    first, step = (int(n) for n in options.shard.split("/"))
    return wanted[first - 1 :: step]


@dataclass(frozen=True)
class _Measured:
    """A case that lockstep lowers differently: both times of a step in ms, and the ratio of ours to XLA's."""

    name: str
    own: float
    ours: float
    ratio: float
    is_slower: bool

    @property
    def line(self) -> str:
        return f"{self.own:9.3f} {self.ours:9.3f} {self.ratio:6.2f}  {self.name}"


def _measured(case: Case, seconds: float) -> Iterator[_Measured]:
    """Measures a case alone and in a loop, and prints it."""
    variants = [("", case.compute, 1)] * case.alone + [(", in a loop", looped(case.compute), STEPS)] * case.in_loop
    for suffix, compute, steps in variants:
        operands = case.operands()
        programs = _programs(compute, operands)
        if programs is None:
            continue
        own, ours, ratio = compared(programs, operands, seconds)
        is_slower = ratio > ALLOWED and ours - own > _NOISE
        found = _Measured(case.name + suffix, own / steps, ours / steps, ratio, is_slower)
        print(found.line, flush=True)
        yield found


def _programs(compute: Callable[..., Any], operands: tuple[Any, ...]) -> tuple[Any, Any] | None:
    """Compiles with XLA's own lowerings and with lockstep's; `None` if that makes no difference."""
    own, ours = (_lowered(compute, operands, setting) for setting in "01")
    return None if own.as_text() == ours.as_text() else (own.compile(), ours.compile())


def _lowered(compute: Callable[..., Any], operands: tuple[Any, ...], setting: str) -> Any:
    os.environ[VARIABLE] = setting
    return jax.jit(backends.apply_passes("cpu", compute)).lower(*operands)


if __name__ == "__main__":
    sys.exit(main())
