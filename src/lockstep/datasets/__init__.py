"""Data sets by name, for examples and tests: found on this machine, downloaded, or a sample of them.

`LOCKSTEP_DATA_DIR` names a directory to read them from. `LOCKSTEP_OFFLINE=1` forbids downloads.
"""

from __future__ import annotations

from lockstep.datasets._mnist import Mnist as Mnist
from lockstep.datasets._mnist import load_mnist as load_mnist

__all__ = ["Mnist", "load_mnist"]
