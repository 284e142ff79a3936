"""An Estimator on a GPU, as one process and as two, follows one CPU device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.estimator.cases import MODEL_FNS
from tests.gpu.comparison import TOLERANCES, assert_equal
from tests.support.cluster import Cluster


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("case", MODEL_FNS)
def test_float64(case: str, workers: int, start: Callable[..., Cluster], tmp_path: Path) -> None:
    def run(cluster: Cluster, name: str) -> list[dict[str, np.ndarray]]:
        model_dir = str(tmp_path / name)
        return cluster.run("tests.estimator.cases:run", case=case, floatx="float64", model_dir=model_dir)

    expected = run(start(1, on_cpu=True), "cpu")[0]
    assert_equal(run(start(workers), "gpu"), expected, TOLERANCES["float64"])
