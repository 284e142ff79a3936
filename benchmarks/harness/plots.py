"""Plots, drawn by the interpreter that has matplotlib."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Literal

from benchmarks.harness.environments import ROOT


def draw(kind: Literal["rows", "scaling", "zoo"], result: Path, python: str) -> None:
    """Draws the plot of a JSON file beside it, or says that there is no such interpreter."""
    if Path(python).exists():
        command = [python, str(ROOT / "benchmarks" / "plots"), kind, str(result), str(result.with_suffix(".svg"))]
        subprocess.run(command, check=True)
    else:
        print(f"No plot of {result}: there is no {python}. `make bench` builds it.")
