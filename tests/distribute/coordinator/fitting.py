"""The program of a chief that fits, with workers and servers that only serve."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.distribute.coordinator.test_fit import main

if __name__ == "__main__":
    main(Path(sys.argv[1]))
