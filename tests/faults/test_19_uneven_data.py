"""Row 19: too few examples, data that end early or never, or break, on some workers."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

import lockstep as ls
from tests.faults import cases
from tests.support.cluster import Cluster

_MODULE = "tests.faults.cases"


@pytest.mark.parametrize("rows", [1, 3])
def test_19_fewer_examples_than_replicas(pair: Cluster, rows: int) -> None:
    """3 examples on 4 replicas (2 workers of 2 devices): the weights of one device."""
    expected = cases.few(ls.distribute.OneDeviceStrategy("cpu:0"), rows)
    for found in pair.run(f"{_MODULE}:few", rows=rows):
        assert str(found["type"]) == "none", str(found["text"])
        np.testing.assert_allclose(found["weights"], expected["weights"], rtol=1e-5, atol=1e-6)


def test_19_no_examples_at_all(pair: Cluster) -> None:
    for found in pair.run(f"{_MODULE}:ends", lengths=[0, 0]):
        assert str(found["type"]) == "InputError", str(found["text"])


@pytest.mark.parametrize("lengths", [[3, 5], [5, 3], [3, -1]])
def test_19_who_ends_first_ends_all(pair: Cluster, lengths: list[int]) -> None:
    found = pair.run(f"{_MODULE}:ends", lengths=lengths)
    least = min(length for length in lengths if length >= 0)
    assert [int(f["steps"]) for f in found] == [least, least]
    assert {str(f["type"]) for f in found} == {"none"}


def test_19_an_error_at_step_7_on_one_worker_reaches_all_at_that_step(pair: Cluster) -> None:
    chief, other = pair.run(f"{_MODULE}:raises", at=7)
    assert chief["steps"] == other["steps"] == 7
    assert (str(other["type"]), str(other["text"])) == ("OSError", "a disk has gone")
    assert str(chief["type"]) == "InputError"
    assert "All tasks stop at batch 7: it could not be read on worker 1: OSError: a disk has gone" in str(chief["text"])


def test_19_the_strategy_of_this_process_is_as_strict(tmp_path: Path) -> None:
    del tmp_path
    with ls.distribute.MirroredStrategy().scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
    with pytest.raises(ls.errors.InputError):
        model.fit(np.zeros((0, 3), "float32"), np.zeros((0, 2), "float32"), verbose=0)
