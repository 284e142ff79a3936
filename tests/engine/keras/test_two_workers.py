"""Keras programs on two worker processes, beside plain Keras in one."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.support.cluster import Cluster, shared

_MODULE = "tests.engine.keras.behaviours"


plain = shared(0)
pair = shared(2)


def _assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=2e-5, err_msg=name)


# torch and TensorFlow are large, and not among the development set: tested where they happen to be installed.
_FOREIGN = {"torch": "torch", "tf.data": "tensorflow"}
_KINDS = ["arrays", "jax", "generator", "PyDataset", "PyDataset with workers", "grain"]


@pytest.mark.parametrize("kind", [*_KINDS, *(k for k, package in _FOREIGN.items() if find_spec(package))])
def test_every_input_trains_alike(plain: Cluster, pair: Cluster, kind: str) -> None:
    # With workers, Keras reads a PyDataset in an order of its own.
    expected = plain.run(f"{_MODULE}:inputs", kind=kind if "workers" in kind else "arrays")[0]
    for found in pair.run(f"{_MODULE}:inputs", kind=kind):
        _assert_equal(found, expected)


@pytest.mark.parametrize(
    ("case", "arguments"),
    [
        ("small", {}),
        ("initial_weights", {}),
        ("stops", {"where": "batch"}),
        ("eager", {}),
    ],
    ids=str,
)
def test_equals_plain_keras(plain: Cluster, pair: Cluster, case: str, arguments: dict[str, str]) -> None:
    expected = plain.run(f"{_MODULE}:{case}", **arguments)[0]
    for found in pair.run(f"{_MODULE}:{case}", **arguments):
        _assert_equal(found, expected)


def test_saved_models_go_on(plain: Cluster, pair: Cluster, tmp_path: Path) -> None:
    expected = plain.run(f"{_MODULE}:saves", directory=str(tmp_path))[0]
    for found in pair.run(f"{_MODULE}:saves", directory=str(tmp_path)):
        _assert_equal(found, expected)


def test_workers_agree_without_a_seed(pair: Cluster) -> None:
    first, second = pair.run(f"{_MODULE}:shuffled")
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_data_that_ends_early_on_one_worker_ends_on_all(pair: Cluster) -> None:
    chief, other = pair.run(f"{_MODULE}:ends_early")
    assert chief["steps"] == other["steps"] == 3
    np.testing.assert_array_equal(chief["weight 0"], other["weight 0"])
    assert "The data of worker 1 ended after 3 batches" in str(chief["told"])


def test_an_error_of_one_worker_reaches_all_at_the_same_batch(plain: Cluster, pair: Cluster) -> None:
    chief, other = pair.run(f"{_MODULE}:raises")
    assert chief["steps"] == other["steps"] == 3
    assert (str(other["type"]), str(other["text"])) == ("OSError", "disk gone")
    assert str(chief["type"]) == "InputError"
    assert "batch 3" in str(chief["text"])
    assert "worker 1: OSError: disk gone" in str(chief["text"])
    np.testing.assert_array_equal(chief["weight 0"], other["weight 0"])


def test_an_exception_that_every_worker_handles_ends_only_its_run(plain: Cluster, pair: Cluster) -> None:
    expected = plain.run(f"{_MODULE}:recovers")[0]
    for found in pair.run(f"{_MODULE}:recovers"):
        assert str(found.pop("told")) == "pruned"
        _assert_equal(found, {name: value for name, value in expected.items() if name != "told"})


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("epochs", "worker 1: epochs is 3, but 2 on worker 0"),
        ("rows", "worker 1: batches per epoch is 5, but 7 on worker 0"),
        ("shapes", 'worker 1: value is "[0]: float32(4, 6), [1]: int32(4,)"'),
        ("variables", 'dense/kernel is "float32(6, 9)", but "float32(6, 8)" on worker 0'),
        ("learning rate", "changes to variables by callbacks"),
        ("calls", "worker 0 is in fit; worker 1 is in evaluate"),
    ],
)
def test_a_difference_stops_all_workers(pair: Cluster, what: str, told: str) -> None:
    for found in pair.run(f"{_MODULE}:differs", what=what):
        assert str(found["type"]) == "MismatchError"
        assert told in str(found["text"])


def test_the_chief_alone_can_end_training_after_an_epoch(pair: Cluster) -> None:
    chief, other = pair.run(f"{_MODULE}:stops", where="epoch of the chief")
    assert chief["steps"] == other["steps"] == 14


def test_one_worker_can_end_training_in_an_epoch(pair: Cluster) -> None:
    """After the same step on all, which need not be the one that it wants, and soon."""
    chief, other = pair.run(f"{_MODULE}:stops", where="batch of the last")
    assert 21 <= chief["steps"] == other["steps"] < 10_000
    assert chief["stopped"] and other["stopped"]
    np.testing.assert_array_equal(chief["weight 0"], other["weight 0"])


def test_only_the_chief_writes_and_prints(pair: Cluster, tmp_path: Path) -> None:
    chief, other = pair.run(f"{_MODULE}:writes", directory=str(tmp_path))
    assert list(chief["files"]) == ["epoch-1.keras", "epoch-2.keras", "log.csv"]
    assert list(other["files"]) == []
    assert "Epoch 1/4" in str(chief["printed"])
    assert "early stopping" in str(chief["printed"])
    assert "\r" not in str(chief["printed"]), "a moving bar where no terminal is"
    assert str(other["printed"]) == ""
    np.testing.assert_array_equal(chief["loss"], other["loss"])


def test_what_the_chief_restores_reaches_all(plain: Cluster, pair: Cluster, tmp_path: Path) -> None:
    expected = plain.run(f"{_MODULE}:resumes", directory=str(tmp_path / "plain"))[0]
    for found in pair.run(f"{_MODULE}:resumes", directory=str(tmp_path / "pair")):
        _assert_equal(found, expected)
        assert list(found["epochs"]) == [2, 3]


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(plain: Cluster, pair: Cluster, policy: str) -> None:
    expected = plain.run(f"{_MODULE}:half_precision", policy=policy)[0]
    for found in pair.run(f"{_MODULE}:half_precision", policy=policy):
        np.testing.assert_allclose(found["loss"], expected["loss"], rtol=2e-2)
        assert str(found["optimizer"]) == str(expected["optimizer"])


def test_replicas_are_counted_over_workers(pair: Cluster) -> None:
    assert [int(r["replicas"]) for r in pair.run(f"{_MODULE}:replicas")] == [2, 2]
