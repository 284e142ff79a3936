"""What tests of equivalence share: replicas of this process, and comparing what trainings came to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import lockstep as ls

Results = Mapping[str, np.ndarray]


def mirrored(count: int = 4, **options: Any) -> Any:
    """A strategy of so many CPU devices of this process."""
    return ls.distribute.MirroredStrategy([f"cpu:{i}" for i in range(count)], **options)


def assert_close(found: Results, expected: Results, within: float) -> None:
    """Compares arrays by name."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=within, err_msg=name)
