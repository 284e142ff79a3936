"""An Estimator on two worker processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.estimator.small import data
from tests.support.cluster import Cluster, environment, shared

_MODULE = "tests.estimator.behaviours"


pair = shared(2)


def _run(pair: Cluster, case: str, tmp_path: Path) -> list[dict[str, np.ndarray]]:
    return pair.run(f"{_MODULE}:{case}", model_dir=str(tmp_path))


def test_a_job_without_an_evaluator_evaluates_itself(pair: Cluster, tmp_path: Path) -> None:
    first, second = _run(pair, "evaluates_itself", tmp_path)
    assert first == second
    assert first["step"] == 9
    np.testing.assert_allclose(first["mean"], first["expected"], rtol=1e-5)


def test_checkpoints_by_the_clock_of_the_chief(pair: Cluster, tmp_path: Path) -> None:
    first, second = _run(pair, "saves_by_the_clock_of_the_chief", tmp_path)
    np.testing.assert_array_equal(first["saved"], second["saved"])
    assert len(first["saved"]) >= 3


def test_all_stop_where_one_worker_asks(pair: Cluster, tmp_path: Path) -> None:
    first, second = _run(pair, "stops_where_one_worker_asks", tmp_path)
    assert first == second
    assert 3 <= first["last"] < 100


@pytest.mark.parametrize(
    ("what", "mode", "told"),
    [("params", "train", "0.2"), ("train", "train", "0.5"), ("eval", "eval", "0.5")],
)
def test_another_model_fn_with_the_same_variables_is_refused(
    pair: Cluster, tmp_path: Path, what: str, mode: str, told: str
) -> None:
    for found in pair.run(f"{_MODULE}:odd_model_fn", model_dir=str(tmp_path), what=what):
        text = str(found["text"])
        assert text.startswith(
            f"All tasks must have the same program, the step of model_fn in mode '{mode}'. worker 1: "
        )
        assert told in text


def test_what_a_hook_of_the_chief_asks_for_is_handed_out_by_all(pair: Cluster, tmp_path: Path) -> None:
    first, second = _run(pair, "chief_looks_at_a_value", tmp_path)
    assert first["steps"] == second["steps"] == first["seen"] > 1


def test_early_stopping(pair: Cluster, tmp_path: Path) -> None:
    first, second = _run(pair, "stops_early", tmp_path)
    assert first == second
    assert 6 <= first["step"] < 200


def test_an_export_predicts_the_same_without_keras(pair: Cluster, tmp_path: Path) -> None:
    first, second = _run(pair, "exports", tmp_path)
    assert first["path"] == second["path"]
    program = (
        "import sys, json, numpy as np, lockstep.saved_model as s\n"
        "m = s.load(sys.argv[1]); x = np.asarray(json.loads(sys.argv[2]), np.float32)\n"
        "print(json.dumps([m(x=np.tile(x, (n, 1)))['y'][:7].tolist() for n in (1, 143)]), 'keras' in sys.modules)"
    )
    x = json.dumps(data(7)[0]["x"].tolist())
    command = [sys.executable, "-c", program, str(first["path"]), x]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=True)
    found, _, has_keras = done.stdout.strip().rpartition(" ")
    for one in json.loads(found):
        np.testing.assert_allclose(one, first["predicted"], rtol=1e-6)
    assert has_keras == "False"


def test_different_settings_are_refused_on_all(pair: Cluster, tmp_path: Path) -> None:
    for result in _run(pair, "disagree", tmp_path):
        assert "settings of Estimator.train" in str(result["error"])


def test_an_error_on_one_worker_ends_all(pair: Cluster, tmp_path: Path) -> None:
    first, second = _run(pair, "fails_on_one", tmp_path)
    assert "a broken record" in str(first["error"])
    assert "worker 1" in str(first["error"])
    assert "a broken record" in str(second["error"])


def test_the_chiefs_checkpoints_count(pair: Cluster, tmp_path: Path) -> None:
    first, second = _run(pair, "restores_from_the_chief", tmp_path)
    assert first["steps"].tolist() == [0, 3, 6]
    assert second["steps"].tolist() == []
