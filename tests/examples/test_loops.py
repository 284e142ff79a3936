"""Every example with a loop of its own trains alike on one device, on four, and in two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep as ls
from tests.datasets.digits import write_idx
from tests.examples.loops import NAMES, train
from tests.support.cluster import Cluster, shared

# Of 12 pictures: two devices can divide them into equal shares, four cannot.
BATCH = 6
TOLERANCE = 3e-5


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    write_idx(directory / "mnist")
    return directory


pair = shared(2)


def _case(name: str) -> Any:
    """Those that differ from the first in their library alone are for exhaustive runs."""
    return pytest.param(name, marks=pytest.mark.exhaustive) if name in ("flax_nnx", "equinox_network") else name


@pytest.mark.parametrize("name", [_case(name) for name in NAMES])
def test_it_follows_one_device(name: str, data: Path, pair: Cluster) -> None:
    arguments: dict[str, Any] = {"name": name, "data": str(data), "batch": BATCH}
    expected = train(ls.distribute.OneDeviceStrategy("/cpu:0"), **arguments)
    for found in (
        train(ls.distribute.MirroredStrategy(), **arguments),
        *pair.run("tests.examples.loops:train", **arguments),
    ):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(found[key], value, rtol=TOLERANCE, atol=TOLERANCE, err_msg=key)
