"""Cases that the processes of a test cluster run."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import lockstep as ls


def installation(strategy: ls.distribute.Strategy) -> dict[str, Any]:
    """Returns where the package is, and whether the CPU's additions are a part of it."""
    source = Path(ls.__file__).parents[1]
    return {"source": np.str_(source), "has_cpu": find_spec("lockstep._cpu") is not None}
