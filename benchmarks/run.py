"""Measures lockstep and its peers in the same run, in turn, and writes tables and a plot.

make bench              all rows, about an hour on two cores; writes benchmarks/results/ and this directory's README
make bench-quick        less of everything
python benchmarks/run.py --rows 2,4 --quick --rounds 3
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout, not this directory, is where modules are looked for.
_ROOT = Path(__file__).resolve().parents[1]
sys.path[0:1] = [str(_ROOT), str(_ROOT / "src")]

from benchmarks.harness.command import main  # noqa: E402

if __name__ == "__main__":
    main()
