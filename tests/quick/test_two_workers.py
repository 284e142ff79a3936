"""The nine things that must hold on two workers, in `make test`: the others are in `make test-all`."""

from __future__ import annotations

from pathlib import Path

import pytest

import lockstep as ls
from lockstep.testing import TaskError
from tests.distribute import loops
from tests.engine.keras import cases as keras_cases
from tests.estimator import cases as estimator_cases
from tests.quick import cases
from tests.support.cluster import Cluster, shared
from tests.support.training import Results, assert_close
from tests.training import programs

pytestmark = pytest.mark.quick

pair = shared(2)


@pytest.fixture(scope="module")
def one() -> ls.distribute.Strategy:
    """One device of this process."""
    return ls.distribute.OneDeviceStrategy("/cpu:0")


def _compare(found: list[Results], expected: Results, within: float) -> None:
    assert len(found) == 2
    for each in found:
        assert_close(each, expected, within)


def _keras(pair: Cluster, one: ls.distribute.Strategy, case: str) -> Results:
    expected = keras_cases.run(one, case, "float64")
    _compare(pair.run("tests.engine.keras.cases:run", case=case, floatx="float64"), expected, 1e-9)
    return expected


def test_fit_with_sample_weights(pair: Cluster, one: ls.distribute.Strategy) -> None:
    _keras(pair, one, "adam, sample weights")


def test_evaluate_and_predict(pair: Cluster, one: ls.distribute.Strategy) -> None:
    """103 examples in batches of 17 and 21."""
    compared = _keras(pair, one, "sgd with momentum")
    assert {"evaluate loss", "evaluate accuracy", "prediction 0", "history val_loss"} <= compared.keys()


def test_a_batch_that_leaves_a_worker_without_data(pair: Cluster, one: ls.distribute.Strategy) -> None:
    """Nine examples in batches of eight."""
    _compare(pair.run("tests.distribute.loops:keras_model", rows=9), loops.keras_model(one, rows=9), 1e-5)


def test_strategy_run(pair: Cluster, one: ls.distribute.Strategy) -> None:
    case = {"rows": 13, "averages": True}
    _compare(pair.run("tests.distribute.loops:plain", **case), loops.plain(one, **case), 1e-5)


def test_a_loop_with_functions(pair: Cluster, one: ls.distribute.Strategy) -> None:
    _compare(pair.run("tests.quick.cases:functions", rows=13), cases.functions(one, rows=13), 1e-5)


def test_a_program(pair: Cluster, one: ls.distribute.Strategy) -> None:
    _compare(pair.run("tests.training.programs:fitted"), programs.fitted(one), 3e-5)


def test_an_estimator(pair: Cluster, one: ls.distribute.Strategy, tmp_path: Path) -> None:
    case = {"case": "clipping", "floatx": "float64"}
    expected = estimator_cases.run(one, model_dir=str(tmp_path / "one"), **case)
    _compare(pair.run("tests.estimator.cases:run", model_dir=str(tmp_path / "pair"), **case), expected, 1e-9)


def test_a_killed_training_goes_on_from_its_backup(pair: Cluster, one: ls.distribute.Strategy, tmp_path: Path) -> None:
    expected = cases.trains_with_backups(one, str(tmp_path / "one"))
    case, directory = "tests.quick.cases:trains_with_backups", str(tmp_path / "pair")
    with pytest.raises(TaskError) as caught:
        pair.run(case, directory=directory, kill_after=10)
    assert "SIGKILL" in caught.value.errors["worker 1"]
    assert "not returned" not in caught.value.errors["worker 0"], "it has learnt of it"
    found = pair.run(case, directory=directory)
    assert [int(each.pop("batches")) for each in found] == [10, 10] and expected.pop("batches") == 18
    _compare(found, expected, 2e-4)


def test_an_error_on_one_worker_ends_both(pair: Cluster) -> None:
    with pytest.raises(TaskError) as caught:
        pair.run("tests.quick.cases:one_fails")
    assert "OSError: a disk has gone" in caught.value.errors["worker 1"]
    assert "worker 1 failed first: OSError: a disk has gone" in str(caught.value)
