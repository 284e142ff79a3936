"""Two workers whose data differ: an error that names the first difference, before anything is trained on it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cluster import Cluster, shared

_MODULE = "tests.engine.keras.data_cases"
_PHRASE = "each worker passes all data; lockstep divides it"

alone = shared(1)
pair = shared(2)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("rows", "worker 1: rows is 99, but 100 on worker 0"),
        ("batch size", "worker 1: batch size is 21, but 20 on worker 0"),
        ("dtype", """worker 1: arrays['x'] is "int32(rows, 3)", but "float32(rows, 3)" on worker 0"""),
        ("shape", """worker 1: arrays['y'] is "float32(rows,)", but "float32(rows, 1)" on worker 0"""),
        ("shuffle", """worker 1: shuffle is "False", but "True" on worker 0"""),
        ("sample_weight", """worker 1: arrays['sample_weight'] is "float"""),
        ("values", "In the data of fit, worker 1: ['x']['row 00'] is"),
        ("kind", """worker 1: kind is "dataset", but "arrays" on worker 0"""),
        ("values of a dataset", "In the arrays of a dataset, worker 1: "),
        ("map function", "All tasks must have the same map functions of a dataset. worker 1: "),
        ("values of a generated dataset", "In batch 0, worker 1: "),
        ("seed of a dataset", "worker 1: "),
        ("validation rows", "worker 1: validation['rows'] is 49, but 50 on worker 0"),
        ("validation weights", "worker 1: validation['arrays']['sample_weight'] is"),
        ("validation values", "In the data of evaluate, worker 1: ['y']['row 00'] is"),
        ("evaluate", "All tasks must have the same data of evaluate. worker 1: "),
        ("predict", "All tasks must have the same data of predict. worker 1: batch size is 21"),
        ("train_on_batch", "In the data of train_on_batch, worker 1: [1]['row 00'] is"),
        ("first batch of a generator", """Batch 0: worker 1: value is "[0]: float32(21, 3)"""),
        ("weights of a PyDataset", "Batch 0: worker 1: value is"),
        ("seed of a PyDataset", "In batch 0, worker 1: [0]['row 00'] is"),
        ("iterable of a Program", "In batch 0, worker 1: [0]['row 00'] is"),
    ],
)
def test_the_first_difference_is_named_on_all_workers(pair: Cluster, what: str, told: str) -> None:
    for found in pair.run(f"{_MODULE}:differs", what=what):
        assert str(found["type"]) == "MismatchError", str(found["text"])
        assert told in str(found["text"])
        assert _PHRASE in str(found["text"])


def test_class_weights_that_differ_are_named(pair: Cluster) -> None:
    for found in pair.run(f"{_MODULE}:differs", what="class_weight"):
        assert str(found["type"]) == "MismatchError"
        assert "worker 1: class_weight['0'] is 2.0, but 1.0 on worker 0" in str(found["text"])


def test_values_are_not_compared_where_that_is_off(pair: Cluster) -> None:
    for found in pair.run(f"{_MODULE}:differs", what="values, not compared"):
        assert (str(found["type"]), str(found["text"])) == ("none", "")


@pytest.mark.parametrize("draws", ["", "global"])
@pytest.mark.parametrize(("workers", "processes"), [(1, False), (4, False), (2, True)])
def test_shuffled_sequences_train_as_one_worker_does(
    alone: Cluster, pair: Cluster, draws: str, workers: int, processes: bool
) -> None:
    case = {"draws": draws, "workers": workers, "processes": processes}
    (expected,) = alone.run(f"{_MODULE}:shuffled", **case)
    for found in pair.run(f"{_MODULE}:shuffled", **case):
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=0, atol=2e-5, err_msg=name)
