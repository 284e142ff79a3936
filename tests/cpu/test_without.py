"""Without `lockstep/_cpu` everything runs on XLA and Gloo alone, and follows the same trajectory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.cluster import ROOT, Cluster, shared
from tests.support.exhaustive import always

# Two workers start JAX and compile, on as few as two cores that other tests may be using.
_DEMO_SECONDS = 180.0
# Sums over the batch, convolutions and pooling: what the folder is for.
_TOLERANCES = {"float64": 1e-9, "float32": 2e-5}
_CASES = always(
    [("batch normalisation", "float64"), ("convolutional", "float64"), ("wide layers", "float32")],
    {("convolutional", "float64"), ("wide layers", "float32")}.__contains__,
)

plain = shared(0)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds a copy of the package without the folder."""
    copy = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "src" / "lockstep", copy / "lockstep", ignore=shutil.ignore_patterns("_cpu", "__pycache__"))
    return copy


@pytest.fixture(
    scope="module",
    params=[(2, 1), pytest.param((1, 4), marks=pytest.mark.exhaustive)],
    ids=lambda layout: f"{layout[0]}x{layout[1]}",
)
def cluster(
    request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Two processes, and four devices of one."""
    cluster = Cluster(*request.param, tmp_path_factory.mktemp("cluster"), source)
    yield cluster
    cluster.close()


@pytest.mark.slow
def test_the_copy_is_what_runs(cluster: Cluster, source: Path) -> None:
    for member in cluster.run("tests.cpu.cases:installation"):
        assert str(member["source"]) == str(source)
        assert not member["has_cpu"]


@pytest.mark.parametrize(("case", "floatx"), _CASES)
def test_replicas_follow_one_device(cluster: Cluster, plain: Cluster, case: str, floatx: str) -> None:
    (expected,) = plain.run("tests.engine.keras.cases:run", case=case, floatx=floatx)
    for member in cluster.run("tests.engine.keras.cases:run", case=case, floatx=floatx):
        assert member.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(member[name], value, rtol=0, atol=_TOLERANCES[floatx], err_msg=name)


@pytest.mark.cluster
def test_the_demo_trains_on_two_workers(source: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lockstep._launch", "demo", "--epochs", "1", "--output-dir", "out"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(source), "LOCKSTEP_OFFLINE": "1", "KERAS_HOME": str(tmp_path / "keras")},
        capture_output=True,
        text=True,
        timeout=_DEMO_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"^\[worker 0\] Test accuracy: (0\.\d{4})$", done.stdout, re.MULTILINE)
    assert found and float(found[1]) > 0.85


@pytest.mark.slow
def test_a_part_of_the_folder_that_is_missing_is_an_error(source: Path, tmp_path: Path) -> None:
    """An installation that has lost a file must not train in another way than the others of its job."""
    shutil.copytree(source / "lockstep", tmp_path / "lockstep")
    (tmp_path / "lockstep" / "_cpu").mkdir()
    shutil.copy(ROOT / "src" / "lockstep" / "_cpu" / "__init__.py", tmp_path / "lockstep" / "_cpu")
    done = subprocess.run(
        [sys.executable, "-c", "import lockstep; lockstep.distribute.MirroredStrategy()"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "No module named 'lockstep._cpu.backend'" in done.stderr
