"""Workers that divide an optimizer's state: Keras models, own loops, Estimators."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.keras import sharded_cases
from tests.estimator import cases
from tests.support.cluster import Cluster, shared
from tests.support.training import Results, assert_close, mirrored
from tests.training import sharded

pair = shared(2, 2)
KERAS, OWN = "tests.engine.keras.sharded_cases", "tests.training.sharded"


def assert_same(found: Results, expected: Results, within: float = 5e-6) -> None:
    """Compares all but how much memory it took."""
    one, other = ({k: v for k, v in results.items() if k != "bytes"} for results in (found, expected))
    assert_close(one, other, within)


def test_a_keras_model_is_trained_as_on_one_device(pair: Cluster) -> None:
    expected = sharded_cases.train(mirrored(1), is_divided=False)
    for found in pair.run(f"{KERAS}:train"):
        assert_same(found, expected, 1e-9)
        # A quarter of what divides, on each device.
        assert found["bytes"].max() < 0.3 * expected["bytes"].max()


def test_one_task_reads_and_saves_at_any_time(pair: Cluster, tmp_path: Path) -> None:
    expected = sharded_cases.read(mirrored(1), str(tmp_path / "one"), is_divided=False)
    chief, other = pair.run(f"{KERAS}:read", directory=str(tmp_path / "pair"))
    assert_same(chief, expected)
    assert not other
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "pair").iterdir())


def test_who_reads_where_others_do_not_wait_is_told(pair: Cluster) -> None:
    for found in pair.run(f"{KERAS}:alone"):
        assert "Here worker 0 is in a place where workers may read" in str(found["told"])


def test_a_backup_goes_on_elsewhere_and_comes_back(pair: Cluster, tmp_path: Path) -> None:
    expected = sharded_cases.resumed(mirrored(1), str(tmp_path / "whole"), is_divided=False, epochs=3)
    cut = str(tmp_path / "cut")
    pair.run(f"{KERAS}:resumed", directory=cut, epochs=1)
    sharded_cases.resumed(mirrored(2), cut, is_divided=False, epochs=2)
    for found in pair.run(f"{KERAS}:resumed", directory=cut, epochs=3, save_freq="epoch"):
        assert_same(found, expected, 2e-5)


def test_an_own_loop(pair: Cluster, tmp_path: Path) -> None:
    expected = sharded.run(mirrored(1), is_divided=False)
    for number, found in enumerate(pair.run(f"{OWN}:run", directory=str(tmp_path))):
        assert_same(found, expected if number == 0 else {k: v for k, v in expected.items() if "at " not in k})
    for found in pair.run(f"{OWN}:singly"):
        assert_same(found, {k: v for k, v in expected.items() if "at " not in k})


@pytest.mark.parametrize("case", ["two networks", pytest.param("optax", marks=pytest.mark.exhaustive)])
def test_an_estimator(pair: Cluster, case: str, tmp_path: Path) -> None:
    expected = cases.run(mirrored(1), case, "float64", str(tmp_path / "one"))
    arguments = {"case": case, "floatx": "float64", "model_dir": str(tmp_path / "pair")}
    for found in pair.run("tests.estimator.sharded:run", **arguments):
        assert found.pop("part") < 0.5
        assert_same(found, expected, 1e-9)
