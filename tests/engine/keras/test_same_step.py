"""All workers must have recorded the same step of a model, whatever its variables look like."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cluster import Cluster, shared

pair = shared(2)

STEPS = {
    "activation": ("tanh v", "hidden"),
    "dropout": ("0.5", ""),
    "loss": ("abs v", ""),
    "clipping": ("2.0", ""),
    "schedule": ("0.2", ""),
}


def _demand_error(found: dict[str, np.ndarray], *told: str) -> None:
    text = str(found["text"])
    assert str(found["type"]) == "MismatchError", text
    for one in told:
        assert one in text


@pytest.mark.parametrize("what", STEPS)
def test_the_first_equation_that_differs_is_named(pair: Cluster, what: str) -> None:
    for found in pair.run("tests.engine.keras.odd_steps:odd_model", what=what):
        start = "All tasks must have the same program, train_step of the model. worker 1: equation "
        _demand_error(found, start, " on worker 0. Make and compile the same model on every worker", *STEPS[what])


@pytest.mark.parametrize(
    ("call", "what"), [("evaluate", "loss"), ("predict", "activation"), ("train_on_batch", "dropout")]
)
def test_every_method_compares(pair: Cluster, call: str, what: str) -> None:
    name = {"evaluate": "test_step", "predict": "predict_step", "train_on_batch": "train_step"}[call]
    for found in pair.run("tests.engine.keras.odd_steps:odd_model", what=what, call=call):
        _demand_error(found, f"the same program, {name} of the model. worker 1: equation ")


def test_steps_that_are_not_compiled_are_compared_by_what_they_come_to(pair: Cluster) -> None:
    for found in pair.run("tests.engine.keras.odd_steps:odd_model", what="loss", run_eagerly=True):
        _demand_error(found, "the same outputs of train_step of the model. worker 1: ")
    for found in pair.run("tests.engine.keras.odd_steps:odd_model", what="none", run_eagerly=True):
        assert str(found["type"]) == "none", str(found["text"])


def test_the_chiefs_learning_rate_is_everyones(pair: Cluster) -> None:
    first, second = pair.run("tests.engine.keras.odd_steps:rate")
    np.testing.assert_allclose(first["rate"], 0.1)
    np.testing.assert_array_equal(first["rate"], second["rate"])
    np.testing.assert_array_equal(first["weights"], second["weights"])


@pytest.mark.parametrize("what", ["compile", "callback"])
def test_a_worker_that_compiles_alone_is_named(pair: Cluster, what: str) -> None:
    for found in pair.run("tests.engine.keras.odd_steps:compiled_by_one", what=what):
        _demand_error(found, "the same steps compiled for fit. worker 1: ", "One worker has compiled anew")


def test_batches_of_several_sizes_are_programs_that_all_have(pair: Cluster) -> None:
    for found in pair.run("tests.engine.keras.odd_steps:shapes_of_their_own"):
        assert str(found["type"]) == "none", str(found["text"])
