"""Measures lockstep on one GPU beside a bare jax loop and PyTorch; writes `gpu.*` to results/.

make bench-gpu          on a machine with an NVIDIA GPU; sets up `jax[cuda]` and PyTorch by itself
python benchmarks/gpu.py --smoke        tiny, on whatever device there is, to try the path; writes to runs/benchmarks
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout, not this directory, is where modules are looked for.
_ROOT = Path(__file__).resolve().parents[1]
sys.path[0:1] = [str(_ROOT), str(_ROOT / "src")]

from benchmarks.harness.gpu_command import main  # noqa: E402

if __name__ == "__main__":
    main()
