"""Measures how gradients travel: each way to add them up, and what sending less of them saves and costs.

    make bench-communication
    python benchmarks/communication.py [--quick]

Tables: `results/communication.md`.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout, not this directory, is where modules are looked for.
_ROOT = Path(__file__).resolve().parents[1]
sys.path[0:1] = [str(_ROOT), str(_ROOT / "src")]

from benchmarks.traffic.command import main  # noqa: E402

if __name__ == "__main__":
    main()
