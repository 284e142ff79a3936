"""Training with servers follows one device's trajectory, whichever worker computes a batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.engine.keras.servers.jobs import ServerJob
from tests.estimator.servers.cases import CASES, train_case

pytestmark = pytest.mark.cluster
_LAYOUTS = {"sync": (2, 2, "sync"), "one after another": (2, 1, "async")}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, np.ndarray]]:
    folder = tmp_path_factory.mktemp("alone")
    return {name: train_case(name, folder / name, None) for name in CASES}


@pytest.mark.parametrize("layout", list(_LAYOUTS))
def test_checkpoints_are_those_of_one_device(
    alone: dict[str, dict[str, np.ndarray]], layout: str, tmp_path: Path
) -> None:
    workers, servers, mode = _LAYOUTS[layout]
    job = ServerJob("tests.estimator.servers.program", workers, servers, tmp_path, [mode, "0"])
    job.wait()
    for name, expected in alone.items():
        values = job.results("worker-0", name)
        assert values.keys() == expected.keys(), name
        assert values["global_step"] == 12, name
        for key, value in expected.items():
            np.testing.assert_allclose(values[key], value, rtol=2e-5, atol=2e-6, err_msg=f"{name}: {key}")
