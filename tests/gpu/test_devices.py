"""Strategies name and find the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import lockstep as ls
from tests.support.cluster import Cluster


def devices(strategy: Any) -> dict[str, np.ndarray]:
    """Returns where the replicas are, and where values of a step are."""
    value = strategy.run(lambda: jax.numpy.ones(3))
    return {
        "platforms": np.array([d.platform for d in strategy._replicas.devices]),
        "named": np.array([d.platform for d in ls.distribute.OneDeviceStrategy("/gpu:0")._replicas.devices]),
        "values": np.array([d.platform for v in strategy.experimental_local_results(value) for d in v.devices()]),
    }


def test_the_gpu_is_the_default(start: Callable[..., Cluster]) -> None:
    (found,) = start(1).run("tests.gpu.test_devices:devices")
    assert {name: list(platforms) for name, platforms in found.items()} == {
        "platforms": ["gpu"],
        "named": ["gpu"],
        "values": ["gpu"],
    }
