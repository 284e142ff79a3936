"""Row 18: the loss of a step is NaN or infinite, because of the input of one worker."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.cluster import Cluster

_MODULE = "tests.faults.cases"


@pytest.fixture(scope="module")
def expected(pair: Cluster) -> np.ndarray:
    """The weights of a training that ended before the step."""
    return pair.run(f"{_MODULE}:without", batches=list(range(6, 12)))[0]["weights"]


def test_18_all_workers_stop_in_the_same_step_with_the_weights_before_it(
    pair: Cluster, expected: np.ndarray, tmp_path: Path
) -> None:
    chief, other = pair.run(f"{_MODULE}:not_a_number", policy="raise", directory=str(tmp_path))
    assert chief["steps"] == other["steps"]
    for found in (chief, other):
        assert str(found["type"]) == "NonFiniteError"
        assert "The loss of batch 7 of epoch 1" in str(found["text"])
        assert "In its input: worker 1: 1 values of array 0." in str(found["text"])
        np.testing.assert_allclose(found["weights"], expected, rtol=1e-6, atol=1e-7)
    assert_no_nan_was_saved(tmp_path)


def test_18_training_ends_without_an_error_if_it_is_to(pair: Cluster, expected: np.ndarray, tmp_path: Path) -> None:
    for found in pair.run(f"{_MODULE}:not_a_number", policy="stop", directory=str(tmp_path)):
        assert str(found["type"]) == "none", str(found["text"])
        np.testing.assert_allclose(found["weights"], expected, rtol=1e-6, atol=1e-7)
    assert_no_nan_was_saved(tmp_path)


def test_18_the_step_is_skipped_by_all_if_it_is_to(pair: Cluster, tmp_path: Path) -> None:
    kept = pair.run(f"{_MODULE}:without", batches=[6])[0]["weights"]
    for found in pair.run(f"{_MODULE}:not_a_number", policy="skip", directory=str(tmp_path)):
        assert str(found["type"]) == "none", str(found["text"])
        assert int(found["undone"]) == 1
        np.testing.assert_allclose(found["weights"], kept, rtol=1e-5, atol=1e-6)
    assert_no_nan_was_saved(tmp_path)


def test_18_an_estimator_stops_on_all_workers_before_it_saves(pair: Cluster, tmp_path: Path) -> None:
    """The loss is NaN from step 13 on; checkpoints are due after steps 12 and 24."""
    found = pair.run(f"{_MODULE}:estimator_not_a_number", directory=str(tmp_path))
    for one in found:
        assert str(one["type"]) == "NanLossDuringTrainingError", str(one["text"])
    assert len({int(f["steps"]) for f in found}) == 1
    for one in found:
        assert 13 <= int(one["steps"]) < 24
    assert str(found[0]["saved"]) == "12", "the chief, which writes, has waited for it"


def assert_no_nan_was_saved(directory: Path) -> None:
    saved = sorted(directory.glob("*.h5"))
    assert len(saved) >= 6
    for path in saved:
        arrays = _arrays(path)
        assert arrays and all(np.isfinite(a).all() for a in arrays), path


def _arrays(path: Path) -> list[np.ndarray]:
    import h5py

    found: list[np.ndarray] = []
    with h5py.File(path) as file:
        file.visititems(lambda _, item: found.append(np.asarray(item)) if isinstance(item, h5py.Dataset) else None)
    return found
