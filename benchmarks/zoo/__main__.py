"""Measures the zoo: each network on lockstep, TensorFlow 2.15 and Keras on JAX, in turn.

make bench-zoo                          all networks, some hours on two cores; writes benchmarks/results/zoo.*
make bench-zoo NETWORKS="U-Net,GRU"     these, into the result that is there
python benchmarks/zoo --networks U-Net --rounds 3 --only fit --sides lockstep,tensorflow
python benchmarks/zoo --workers 2,4     five networks on so many workers; writes benchmarks/results/zoo_workers.*
python benchmarks/zoo --profile U-Net   where the time of its step goes
"""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout, not this directory, is where modules are looked for.
_ROOT = Path(__file__).resolve().parents[2]
sys.path[0:1] = [str(_ROOT), str(_ROOT / "src")]

from benchmarks.zoo.command import main  # noqa: E402

if __name__ == "__main__":
    main()
