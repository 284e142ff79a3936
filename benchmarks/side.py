"""Runs one side of a case in this process: `python benchmarks/side.py MODULE FUNCTION OPTIONS`. `run.py` calls it.

It runs in environments that have nothing but the peer, so what it imports does without lockstep.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

# The checkout, not this directory, is where modules are looked for.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.harness.disturbance import Disturbance  # noqa: E402
from benchmarks.harness.processes import tell  # noqa: E402


def main(module: str, function: str, options: str) -> None:
    """Measures."""
    disturbance = Disturbance()
    measured = getattr(importlib.import_module(module), function)(json.loads(options))
    tell(measured, disturbance.others())


if __name__ == "__main__":
    main(*sys.argv[1:])
