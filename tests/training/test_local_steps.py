"""Steps of a user's own that replicas make by themselves in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import pytest

import lockstep as ls
from lockstep.distribute import LocalSteps
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.training import Program
from tests.support.cluster import Cluster, shared
from tests.training.stopped import stopped

COUNT, BATCH = 4, 8
INNER = optax.adam(0.05)


def mirrored(local_steps: LocalSteps | None) -> Any:
    return ls.distribute.MirroredStrategy([f"cpu:{i}" for i in range(COUNT)], local_steps=local_steps)


def first() -> dict[str, Any]:
    params = {"w": jnp.zeros(3), "b": jnp.zeros(())}
    return {"params": params, "inner": INNER.init(params), "key": jax.random.key(0), "steps": 0, "name": "a line"}


def step(state: Any, batch: Any) -> Any:
    def loss_of(params: Any) -> Any:
        return jnp.mean((batch @ params["w"] + params["b"] - 1) ** 2)

    loss, found = jax.value_and_grad(loss_of)(state["params"])
    updates, inner = INNER.update(found, state["inner"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    key = jax.random.split(state["key"])[0]
    return {**state, "params": params, "inner": inner, "key": key, "steps": state["steps"] + 1}, {"loss": loss}


def program(local_steps: LocalSteps | None) -> Program:
    return Program(step, mirrored(local_steps), parameters=lambda state: state["params"])


ROWS = np.random.default_rng(0).normal(size=(10 * BATCH, 3)).astype("float32")


def data() -> ls.data.Dataset:
    return ls.data.Dataset.from_tensor_slices(ROWS).shuffle(40, seed=3).batch(BATCH)


@pytest.mark.slow
def test_it_is_what_the_paper_says() -> None:
    """With optax's optimizer of each replica, and numpy's outer one; the last round is one of training's end."""
    every, rate, momentum = 4, 0.7, 0.9
    found = program(LocalSteps(every)).fit(first(), ls.data.Dataset.from_tensor_slices(ROWS).batch(BATCH), verbose=0)
    mine = [first() for _ in range(COUNT)]
    seen, kept = first()["params"], jax.tree.map(jnp.zeros_like, first()["params"])
    for number, batch in enumerate(np.split(ROWS, 10), 1):
        mine = [step(one, share)[0] for one, share in zip(mine, np.split(batch, COUNT), strict=True)]
        if number % every and number < 10:
            continue
        change = jax.tree.map(lambda s, *ps: sum(ps) / COUNT - s, seen, *(one["params"] for one in mine))
        kept = jax.tree.map(lambda k, c: momentum * k + c, kept, change)
        seen = jax.tree.map(lambda s, c, k: s + rate * (c + momentum * k), seen, change, kept)
        mine = [{**one, "params": seen} for one in mine]
    expected = {**mine[0], "params": seen}
    assert found["steps"] == 10 and found["name"] == "a line" and found["key"] == expected["key"]
    for part in ("params", "inner"):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found[part], expected[part])


class Ends(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.model.step == 13:
            raise KeyError("the end of the program")


@pytest.mark.slow
def test_it_goes_on_to_the_bit(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"epochs": 3, "verbose": 0, "save_every": 6}
    trained = program(LocalSteps(5))
    whole = trained.fit(first(), data(), checkpoint_dir=tmp_path / "whole", **arguments)
    with pytest.raises(KeyError):
        trained.fit(first(), data(), checkpoint_dir=tmp_path / "cut", callbacks=[Ends()], **arguments)
    for _ in range(2):  # A call that had come to its end returns the same.
        found = program(LocalSteps(5)).fit(first(), data(), checkpoint_dir=tmp_path / "cut", **arguments)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(whole), strict=True):
            assert np.all(one == other)
    again = trained.fit(first(), data(), epochs=3, verbose=0)  # A program trains as often as it is asked to.
    np.testing.assert_array_equal(again["params"]["w"], whole["params"]["w"])


def test_what_cannot_be_is_refused() -> None:
    strategy = mirrored(LocalSteps(5))
    with pytest.raises(ArgumentError, match=r"which part of the state is combined.*no parameters\. Example"):
        Program(step, strategy)
    with pytest.raises(ArgumentError, match=r"arrays of floats\. Received: a function that returns \['steps'\]"):
        Program(step, strategy, parameters=lambda state: state["steps"]).fit(first(), data(), verbose=0)
    with pytest.raises(UnsupportedError, match=r"by itself, as one device would.*Leave view out"):
        Program(step, strategy, view="replica", parameters=lambda state: state["params"])
    with pytest.raises(UnsupportedError, match=r"a call of one step\. Use Program\.fit"):
        program(LocalSteps(5))(first(), ROWS[:8])


pair = shared(2)


def test_the_chief_may_end_training_at_the_last_step_of_an_epoch(pair: Cluster) -> None:
    """The others learn of it after the step: no worker combines replicas alone."""
    expected = stopped(ls.distribute.MirroredStrategy(["cpu:0", "cpu:1"]))
    assert expected["losses"].shape == (2,)
    for found in pair.run("tests.training.stopped:stopped"):
        np.testing.assert_allclose(found["w"], expected["w"], rtol=1e-5)
        assert found["losses"].shape == (2,), "in a round that is under way each worker logs its own replica's"
