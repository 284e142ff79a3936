"""Arrays in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def load_arrays(path: Path) -> dict[str, Any]:
    """Reads all arrays of an .npz file, and closes it: an open one is a warning wherever it is collected."""
    with np.load(path) as file:
        return dict(file)
