"""Steps/s of the Estimator tutorial's job beside TensorFlow 2.15's, in one run: row 1 of `run.py`, with its options.

python benchmarks/estimator.py --quick --tensorflow /somewhere/bin/python
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout, not this directory, is where modules are looked for.
_ROOT = Path(__file__).resolve().parents[1]
sys.path[0:1] = [str(_ROOT), str(_ROOT / "src")]

from benchmarks.harness.command import main  # noqa: E402

if __name__ == "__main__":
    sys.argv[1:1] = ["--rows", "1"]
    main()
