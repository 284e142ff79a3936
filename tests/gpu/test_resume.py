"""A training on a GPU that is interrupted and started again equals one that was not, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cluster import Cluster

_TRAIN = "tests.engine.keras.resuming:train"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("source", ["arrays", "dataset"])
def test_in_the_middle_of_an_epoch(source: str, workers: int, start: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = start(workers)

    def train(name: str, **arguments: Any) -> list[dict[str, np.ndarray]]:
        return cluster.run(_TRAIN, directory=str(tmp_path / name), source=source, **arguments)

    expected = train("undisturbed")
    assert all("interrupted" in found for found in train("again", save_freq=4, after=7))
    for found, whole in zip(train("again", save_freq=4), expected, strict=True):
        for name in found.keys() - {"seen"}:
            np.testing.assert_array_equal(found[name], whole[name], err_msg=name)
        np.testing.assert_array_equal(found["seen"], whole["seen"][-len(found["seen"]) :])
