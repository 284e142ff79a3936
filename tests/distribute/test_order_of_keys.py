"""Dicts keep the order of their keys on their way to the functions of users, and back."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep as ls
import lockstep.compat.tensorflow as tf
from lockstep.data import Dataset
from tests.distribute.loops import context

STRATEGIES = {n: ls.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(n)]) for n in (1, 2)}
TWO = STRATEGIES[2]
FEATURES = {name: np.full((6, 1), value, "float32") for name, value in (("z", 1), ("b", 2), ("m", 3))}
LABELS = np.zeros((6, 1), "float32")


def columns(features: Any) -> Any:
    """What a program makes of features that relies on their order: 1 2 3."""
    return jnp.concatenate(list(features.values()), axis=-1)


@pytest.mark.parametrize("count", STRATEGIES)
def test_distributed_elements(count: int) -> None:
    strategy = STRATEGIES[count]
    distributed = strategy.experimental_distribute_dataset(Dataset.from_tensor_slices(FEATURES).batch(3))
    assert list(distributed.element_spec) == ["z", "b", "m"]
    for element in distributed:
        assert type(element) is dict and list(element) == ["z", "b", "m"]
        (found, *_) = strategy.experimental_local_results(strategy.run(columns, args=(element,)))
        assert found[0].tolist() == [1, 2, 3]
        assert all(list(one) == ["z", "b", "m"] for one in strategy.experimental_local_results(element))


@pytest.mark.parametrize("run", [TWO.run, TWO.experimental_run_for_debugging], ids=["run", "debugging"])
def test_arguments_and_results_of_run(run: Any) -> None:
    lists: Any = defaultdict(list, {"q": jnp.float32(1), "c": jnp.float32(2)})
    given = {"z": jnp.float32(1), "b": {"y": jnp.float32(2), "a": 5}}

    def function(x: Any, ordered: Any, lists: Any, *, named: Any) -> Any:
        assert [*x, *x["b"], *ordered, *lists, *named] == ["z", "b", "y", "a", "n", "d", "q", "c", "k", "e"]
        assert type(ordered) is OrderedDict and type(lists) is defaultdict and lists.default_factory is list
        summed = context().all_reduce("sum", {"z": 1.0, "a": jnp.float32(2)})
        gathered = context().all_gather({"z": jnp.ones(1), "a": jnp.ones(1)}, axis=0)
        merged = context().merge_call(lambda s, v: s.reduce("sum", v, axis=None), args=({"z": 1.0, "a": 2.0},))
        assert list(summed) == list(gathered) == list(merged) == ["z", "a"]
        own = {"w": context().replica_id_in_sync_group + 0, "f": 7}
        return {"z": x["z"], "b": summed, "in": [ordered, lists, own]}

    found = run(function, (given, OrderedDict(n=np.ones(1), d=2), lists), {"named": {"k": 1, "e": 2}})
    assert list(found) == ["z", "b", "in"] and list(found["b"]) == ["z", "a"]
    ordered, back, own = found["in"]
    assert type(ordered) is OrderedDict and list(ordered) == ["n", "d"]
    assert type(back) is defaultdict and back.default_factory is list and list(back) == ["q", "c"]
    assert list(own) == ["w", "f"]
    assert list(TWO.reduce("sum", {"z": own["w"], "a": own["w"]}, axis=None)) == ["z", "a"]
    assert list(TWO.experimental_distribute_values_from_function(lambda _: {"z": 1, "a": 2})) == ["z", "a"]


def test_the_same_program_for_the_same_keys() -> None:
    traced: list[Any] = []

    def function(x: Any) -> Any:
        traced.append(list(x))
        return x

    for order in (("z", "a"), ("a", "z")):
        found = TWO.run(function, args=({k: jnp.float32(ord(k)) for k in order},))
        assert {k: float(v) for k, v in found.items()} == {"z": 122, "a": 97}
    assert traced == [["z", "a"]]


def test_functions_and_tapes() -> None:
    assert list(ls.function(lambda x: {**x, "a": 1})({"z": np.ones(1), "y": 2})) == ["z", "y", "a"]
    v = {"z": tf.Variable(1.0), "a": tf.Variable(2.0)}

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = v["z"] * v["a"]
        return tape.gradient(loss, v)

    found = TWO.run(step)
    values = {k: float(TWO.experimental_local_results(g)[0]) for k, g in found.items()}
    assert list(values.items()) == [("z", 2.0), ("a", 1.0)]


def test_control_flow_of_tensorflow() -> None:
    x = {"z": jnp.ones(2), "a": jnp.zeros(2)}

    def same(e: Any) -> Any:
        assert list(e) == ["z", "a"]
        return {"y": e["z"], "c": e["a"]}

    def step(x: Any) -> Any:
        one = {k: v[0] for k, v in x.items()}
        is_true = x["z"][0] > 0
        return [
            tf.cond(is_true, lambda: same(x), lambda: same(x)),
            tf.switch_case(tf.cast(x["a"][0], tf.int32), [lambda: same(x)]),
            tf.map_fn(same, x),
            tf.vectorized_map(same, x),
            tf.while_loop(lambda v: v["z"] < 3, lambda v: ({"z": v["z"] + 1, "a": v["a"]},), (one,))[0],
            tf.nest.map_structure(lambda v: v + 1, x),
        ]

    found = STRATEGIES[1].run(step, args=(x,))
    assert [list(f) for f in found] == [["y", "c"]] * 4 + [["z", "a"]] * 2


@pytest.mark.slow
@pytest.mark.parametrize("view", ["global", "replica"])
def test_a_program_of_ones_own(view: Any) -> None:
    seen: list[Any] = []

    def step(state: Any, batch: Any) -> Any:
        seen.append((list(state), list(state["w"]), list(batch[0])))
        loss = (columns(batch[0]) @ jnp.array([1.0, 10.0, 100.0])).mean()
        return {"w": state["w"], "n": state["n"] + 1}, {"loss": loss, "count": jnp.float32(1)}

    program = ls.training.Program(step, TWO, view=view)
    state = {"w": {"y": jnp.float32(1), "a": jnp.float32(2)}, "n": jnp.int32(0)}
    state, logs = program(state, (FEATURES, LABELS))
    assert list(state) == ["w", "n"] and list(state["w"]) == ["y", "a"]
    assert list(logs) == ["loss", "count"] and float(logs["loss"]) == 321
    after = program.fit(state, Dataset.from_tensor_slices((FEATURES, LABELS)).batch(3), epochs=1, verbose=0)
    assert list(after) == ["w", "n"] and list(after["w"]) == ["y", "a"] and int(after["n"]) == 3
    program.fit(state, [(FEATURES, LABELS)], epochs=1, verbose=0)
    program.fit(state, iter([(FEATURES, LABELS)]), steps=1, verbose=0)
    assert all(found == (["w", "n"], ["y", "a"], ["z", "b", "m"]) for found in seen)


class Ordered(keras.Model):
    """A model that relies on the order of its features, in its call and in its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_initializer="zeros")

    def call(self, features: Any) -> Any:
        found = columns(features)
        return {"z": self.dense(found), "columns": found}

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: Any = True
    ) -> Any:
        return (columns(x) @ jnp.array([1.0, 10.0, 100.0])).mean() + y_pred["z"].mean()


@pytest.mark.slow
@pytest.mark.parametrize("statistics", ["global", "replica"])
@pytest.mark.parametrize("kind", ["arrays", "dataset", "generator", "distributed"])
@pytest.mark.parametrize("eagerly", [False, True])
def test_keras(kind: str, eagerly: bool, statistics: Any) -> None:
    strategy = ls.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], batch_statistics=statistics)
    dataset = Dataset.from_tensor_slices((FEATURES, LABELS)).batch(3)
    with strategy.scope():
        model = Ordered()
        model.compile("sgd", run_eagerly=eagerly)
    given: Any = {
        "arrays": {"x": FEATURES, "y": LABELS, "batch_size": 3},
        "dataset": {"x": dataset},
        "generator": {"x": ((f, y) for f, y in list(dataset) * 2), "steps_per_epoch": 2},
        "distributed": {"x": strategy.experimental_distribute_dataset(dataset)},
    }[kind]
    history = model.fit(**given, verbose=0, shuffle=False)
    assert history.history["loss"][0] == pytest.approx(321, abs=1)
    found = model.predict(FEATURES if kind == "arrays" else dataset, verbose=0)
    assert type(found) is dict and list(found) == ["z", "columns"] and found["columns"].tolist() == [[1, 2, 3]] * 6
    assert list(model.predict_on_batch(FEATURES)) == ["z", "columns"]
    assert model.train_on_batch(FEATURES, LABELS) == pytest.approx(321, abs=1)
    assert model.evaluate(dataset, verbose=0) == pytest.approx(321, abs=1)
