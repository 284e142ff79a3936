"""Keras models whose replicas train by themselves in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep.distribute import LocalSteps
from lockstep.errors import ArgumentError, UnsupportedError
from tests.engine.keras import local_cases, resuming
from tests.engine.keras.local_cases import EVEN_ROWS, UNEVEN_ROWS
from tests.engine.keras.test_resume import check, interrupt
from tests.support.cluster import Cluster, shared
from tests.support.training import Results, assert_close, mirrored

_AVERAGING = {"every": 1, "outer_learning_rate": 1.0, "outer_momentum": 0.0}
_DILOCO = {"every": 4, "outer_learning_rate": 0.7, "outer_momentum": 0.9, "nesterov": True}

# Of what is computed in float64.
_WITHIN = 1e-9


@pytest.mark.slow
def test_rounds_of_one_step_are_training_together() -> None:
    """Also where batches do not divide, and for moving averages of the weights, which become the weights in the end."""
    arguments: dict[str, Any] = {"rows": UNEVEN_ROWS, "inner": "averages", "normalises": False}
    assert_close(
        local_cases.run(mirrored(), **arguments, **_AVERAGING), local_cases.run(mirrored(), **arguments), _WITHIN
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replicas", "inner", "steps"),
    [
        (3, "adam", _DILOCO),
        (1, "momentum", {**_DILOCO, "every": 1000, "nesterov": False}),  # The end of training ends the round.
    ],
)
def test_it_is_what_the_paper_says(replicas: int, inner: str, steps: dict[str, Any]) -> None:
    found = local_cases.run(mirrored(replicas), inner=inner, **steps)
    assert_close(found, local_cases.simulated(replicas, inner, **steps), _WITHIN)


@pytest.mark.slow
def test_what_is_set_from_outside_counts() -> None:
    """In the middle of a round: a learning rate at once, and weights for all replicas."""

    class Sets(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                self.model.optimizer.learning_rate = 0.0
                self.model.layers[-1].set_weights([np.full((9, 3), 0.5), np.full(3, 0.25)])

    model = local_cases.model_of(mirrored(local_steps=LocalSteps(5, 1.0, 0.0)).scope(), "plain")
    before = model.get_weights()
    x, y = local_cases.data(EVEN_ROWS)
    model.fit(x, y, batch_size=12, epochs=1, verbose=0, callbacks=[Sets()])
    after = model.get_weights()
    np.testing.assert_array_equal(after[2], np.full((9, 3), 0.5, "float32"))
    np.testing.assert_array_equal(after[3], np.full(3, 0.25, "float32"))
    assert np.abs(after[0] - before[0]).max() > 1e-3  # The steps before it.


@pytest.mark.slow
def test_what_the_model_shows_is_of_the_last_round() -> None:
    seen: list[Any] = []

    class Looks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append((self.model.get_weights()[0], int(self.model.optimizer.iterations), logs["loss"]))

    model = local_cases.model_of(mirrored(local_steps=LocalSteps(4)).scope(), "adam")
    first = model.get_weights()[0]
    x, y = local_cases.data(EVEN_ROWS)
    history = model.fit(x, y, batch_size=12, epochs=1, verbose=0, callbacks=[Looks()]).history
    weights, steps, losses = zip(*seen, strict=True)
    assert list(steps) == [1, 2, 3, 4, 5, 6]
    for number in (0, 1, 2):
        np.testing.assert_array_equal(weights[number], first)
    for number in (4, 5):
        np.testing.assert_array_equal(weights[number], weights[3])
    assert np.abs(weights[3] - first).max() > 0
    assert np.abs(model.get_weights()[0] - weights[5]).max() > 0  # The end of training.
    assert min(losses) > 0.5 and len(set(losses)) == 6
    assert history["loss"][0] != losses[-1]


@pytest.mark.slow
def test_fits_follow_one_another() -> None:
    """With the optimizers of each replica as they were."""
    x, y = local_cases.data(EVEN_ROWS)
    arguments: dict[str, Any] = {"batch_size": 12, "shuffle": False, "verbose": 0}
    weights: list[Any] = []
    for epochs in ([2], [1, 1]):
        model = local_cases.model_of(mirrored(local_steps=LocalSteps(3)).scope(), "adam")
        for count in epochs:
            model.fit(x, y, epochs=count, **arguments)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return resuming.train(mirrored(2, local_steps=LocalSteps(4)), str(tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("save_freq", "after", "how"),
    [(2, 3, "error"), ("epoch", 8, "error"), (False, 9, "preempted")],
)
def test_it_goes_on_to_the_bit(undisturbed: Results, tmp_path: Path, save_freq: Any, after: int, how: str) -> None:
    strategy = mirrored(2, local_steps=LocalSteps(4))
    check(interrupt(strategy, tmp_path, save_freq=save_freq, after=after, how=how), undisturbed)


@pytest.mark.slow
def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"must be a LocalSteps\. Received: 50"):
        mirrored(local_steps=50)
    with pytest.raises(ArgumentError, match=r'"global" takes moments over all replicas.*Leave batch_statistics out'):
        mirrored(local_steps=LocalSteps(2), batch_statistics="global")
    narrow = ls.distribute.CommunicationOptions(gradient_dtype="bfloat16")
    with pytest.raises(ArgumentError, match="no gradients travel that could be made shorter"):
        mirrored(local_steps=LocalSteps(2), communication_options=narrow)
    strategy = mirrored(local_steps=LocalSteps(2))
    with pytest.raises(UnsupportedError, match=r"training that lockstep drives.*Received: strategy\.run"):
        strategy.run(lambda: 1)
    model = local_cases.model_of(strategy.scope(), "plain")
    x, y = local_cases.data(EVEN_ROWS)
    with pytest.raises(UnsupportedError, match=r"until a round or the training ends.*train_on_batch.*Use fit"):
        model.train_on_batch(x, y)
    with pytest.raises(UnsupportedError, match="NonFinite together with local_steps"):
        model.fit(x, y, verbose=0, callbacks=[ls.callbacks.NonFinite()])
    model.run_eagerly = True
    model.train_function = None
    with pytest.raises(UnsupportedError, match="run_eagerly=True or jit_compile=False"):
        model.fit(x, y, verbose=0)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ({"every": 0}, "every must be a positive number of steps. Received: 0"),
        ({"every": 2.0}, "every must be"),
        ({"every": True}, "every must be"),
        ({"every": 2**31}, "every must be"),
        ({"every": 5, "outer_learning_rate": 0}, "outer_learning_rate must be a positive number. Received: 0"),
        ({"every": 5, "outer_learning_rate": float("nan")}, "outer_learning_rate"),
        ({"every": 5, "outer_learning_rate": "1"}, "outer_learning_rate"),
        ({"every": 5, "outer_momentum": 1}, "outer_momentum must be at least 0 and below 1. Received: 1"),
        ({"every": 5, "outer_momentum": -0.1}, "outer_momentum"),
        ({"every": 5, "nesterov": 1}, "nesterov must be True or False"),
    ],
)
def test_values_out_of_range_are_refused(steps: dict[str, Any], told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        LocalSteps(**steps)


pair = shared(2, 2)


def test_processes_are_as_devices(pair: Cluster) -> None:
    expected = local_cases.run(mirrored(), rows=UNEVEN_ROWS, **_DILOCO)
    one, other = pair.run("tests.engine.keras.local_cases:run", rows=UNEVEN_ROWS, **_DILOCO)
    assert_close(one, expected, _WITHIN)
    assert_close(other, expected, _WITHIN)


@pytest.mark.exhaustive
def test_processes_go_on_to_the_bit(pair: Cluster, tmp_path: Path) -> None:
    case = "tests.engine.keras.local_cases:resumed"
    whole = pair.run(case, directory=str(tmp_path / "whole"), every=4)
    arguments: dict[str, Any] = {"directory": str(tmp_path / "cut"), "every": 4, "save_freq": 3}
    assert all("interrupted" in found for found in pair.run(case, after=8, **arguments))
    for found, expected in zip(pair.run(case, **arguments), whole, strict=True):
        own = [name for name in found if name.startswith("optimizer")]
        check({k: v for k, v in found.items() if k not in own}, {k: v for k, v in expected.items() if k not in own})
        for name in own:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
