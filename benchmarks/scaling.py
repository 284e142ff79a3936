"""Measures what a step on N workers is made of, here, and predicts the efficiency of 1 to 1,024 workers.

    make bench-scaling
    python benchmarks/scaling.py [--quick] [--paper-only]

The model is `scale/model.py`. What it says of 1, 2 and 4 workers of this machine stands beside what they do.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout, not this directory, is where modules are looked for.
_ROOT = Path(__file__).resolve().parents[1]
sys.path[0:1] = [str(_ROOT), str(_ROOT / "src")]

from benchmarks.scale.command import main  # noqa: E402

if __name__ == "__main__":
    main()
