"""Draws a result of a benchmark.

usage: .venv/plot/bin/python benchmarks/plots rows|scaling|zoo RESULT.json PLOT.svg

It runs in an environment of its own: Keras imports matplotlib wherever that is installed, 0.4 s of each process
that is measured or tested.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main(kind: str, result: str, plot: str) -> None:
    """Draws."""
    importlib.import_module(kind).draw(json.loads(Path(result).read_text()), Path(plot))


if __name__ == "__main__":
    main(*sys.argv[1:])
