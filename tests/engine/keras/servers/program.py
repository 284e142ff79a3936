"""A program that every task of a job with parameter servers runs: cases of training, one after another.

Usage: python -m tests.engine.keras.servers.program OUTPUT MODE REPLICAS FLOATX CASE...
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.distribute import MirroredStrategy, ParameterServerStrategy, Strategy


def divide_tables(shape: Any, dtype: Any) -> list[int]:
    """Cuts what looks like the table of an `Embedding` into two ranges, so that it is looked up by rows."""
    del dtype
    return [2 if len(shape) == 2 and shape[0] in (20, 50) else 1, *[1] * (len(shape) - 1)]


def _strategy(mode: str, replicas: int) -> Strategy:
    if mode == "mirrored":  # What the replicas of a synchronous job are compared with.
        return MirroredStrategy(batch_statistics="replica")
    options: dict[str, Any] = {"mode": mode}
    if mode == "sync" and replicas > 1:
        options["replicas"] = replicas
    if mode == "async":
        options["staleness"] = 0
    return ParameterServerStrategy(None, divide_tables, **options)


def main(output: str, mode: str, replicas: str, floatx: str, *cases: str) -> None:
    """Runs the cases, and writes what each comes to."""
    strategy = _strategy(mode, int(replicas))
    # Only now: JAX starts with Keras.
    from tests.engine.keras.cases import run

    for case in cases:
        found = run(strategy, case, floatx)
        np.savez(Path(output) / f"{case}.npz", **{k.replace("/", "|"): v for k, v in found.items()})
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
