"""Estimators whose replicas divide optimizers' state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lockstep as ls
from tests.estimator import cases, sharded


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", ["keras", "clipping", *(pytest.param(c, marks=pytest.mark.exhaustive) for c in ("adam", "optax"))]
)
def test_it_is_one_devices_training(case: str, tmp_path: Path) -> None:
    strategy = ls.distribute.MirroredStrategy([f"cpu:{i}" for i in range(4)])
    found = sharded.run(strategy, case, "float64", str(tmp_path / "divided"))
    expected = cases.run(ls.distribute.MirroredStrategy(["cpu:0"]), case, "float64", str(tmp_path / "one"))
    assert found.pop("part") == 0.25
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-9, err_msg=name)
