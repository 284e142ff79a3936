"""Replicas whose convolutions oneDNN computes follow one device's trajectory, of XLA's own convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep._cpu.onednn import library
from tests.support.cluster import Cluster, shared
from tests.support.exhaustive import always

pytestmark = pytest.mark.skipif(library.load() is None, reason=f"{library.PACKAGE} is not installed")

plain, one, pair, four_devices = shared(0), shared(1), shared(2), shared(1, 4)


@pytest.mark.parametrize("layout", always(["one", "pair", "four_devices"], "pair".__eq__))
# Of 60 examples: those of a last batch are fewer, and 25 divide among no replicas.
@pytest.mark.parametrize("batch_size", [pytest.param(24, marks=pytest.mark.exhaustive), 25])
def test_replicas_follow_one_device(
    plain: Cluster, layout: str, batch_size: int, request: pytest.FixtureRequest
) -> None:
    cluster: Cluster = request.getfixturevalue(layout)
    (expected,) = plain.run("tests.cpu.onednn.cases:train", batch_size=batch_size)
    for member in cluster.run("tests.cpu.onednn.cases:train", batch_size=batch_size):
        # What runs on several devices of one process is XLA's to divide.
        assert (member.pop("calls") > 0) == (layout != "four_devices")
        for name, value in member.items():
            np.testing.assert_allclose(value, expected[name], rtol=0, atol=2e-5, err_msg=name)
