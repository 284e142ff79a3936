"""Steps of a user's own: what a state may hold, what callbacks see, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep as ls
from lockstep.distribute import PerReplica
from lockstep.errors import ArgumentError, CheckpointError, InputError, UnsupportedError
from lockstep.training import Every, Program
from lockstep.training._program_layout import Layout
from tests.training import programs


@pytest.fixture(scope="module")
def strategy() -> Any:
    return ls.distribute.MirroredStrategy()


def counting(state: Any, batch: Any) -> Any:
    """Adds up batches."""
    return {**state, "sum": state["sum"] + batch.sum(), "steps": state["steps"] + 1}, {"sum": state["sum"]}


def zero() -> dict[str, Any]:
    return {"sum": np.float32(0), "steps": 0, "name": "sum"}


def numbers(rows: int = 40, batch: int = 4) -> ls.data.Dataset:
    return ls.data.Dataset.from_tensor_slices(np.arange(rows, dtype="float32")).batch(batch)


# States.

LEAVES = st.one_of(
    st.integers(0, 3).map(lambda n: np.full((n, 2), n, np.float32)),
    st.integers(0, 9).map(lambda n: jnp.asarray(n)),
    st.integers(0, 9).map(jax.random.key),
    st.sampled_from([None, "text", jnp.tanh, True, 0.5, 3]),
)
STATES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner)
)


@given(STATES)
def test_a_state_comes_back_from_its_arrays(state: Any) -> None:
    layout = Layout(state)
    arrays = layout.arrays(state)
    assert len(arrays) == len(layout.array_names) == len(set(layout.array_names))
    assert all(isinstance(a, (np.ndarray, jax.Array)) for a in arrays)
    again = layout.state(layout.after(state, arrays))
    assert jax.tree.structure(again) == jax.tree.structure(state)
    assert layout.fits(again)
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(state), strict=True):
        assert one is other or jnp.array_equal(one, other)


def test_numbers_are_arrays_once_they_change(strategy: Any) -> None:
    program = Program(lambda s, b: ({**s, "count": s["count"] + (1 if s["up"] else -1)}, s["rate"]), strategy)
    state, logs = program({"count": 5, "rate": 0.25, "up": True}, np.zeros(4))
    assert isinstance(state["count"], jax.Array)
    assert (int(state["count"]), state["rate"], state["up"], logs) == (6, 0.25, True, 0.25)


def test_the_callers_state_is_not_consumed(strategy: Any) -> None:
    program, first = Program(counting, strategy), {**zero(), "sum": jnp.zeros(())}
    second, _ = program(first, np.ones(8, np.float32))
    assert float(first["sum"]) == 0.0
    third, _ = program(second, np.ones(3, np.float32))
    assert float(third["sum"]) == 11.0
    with pytest.raises(ArgumentError, match="a state whose leaf steps is gone"):
        program(second, np.ones(8, np.float32))


def test_keras_layers_are_trained(strategy: Any) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.optimizer = keras.optimizers.SGD(0.1)
    model.optimizer.build(model.trainable_variables)

    def step(state: Any, batch: Any) -> Any:
        def loss_of(trainable: Any) -> Any:
            return jnp.mean((model.stateless_call(trainable, state["rest"], batch)[0] - 1.0) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(state["weights"])
        weights, optimizer = model.optimizer.stateless_apply(state["optimizer"], gradients, state["weights"])
        return {**state, "weights": weights, "optimizer": optimizer}, loss

    state = {
        "weights": [v.value for v in model.trainable_variables],
        "rest": [v.value for v in model.non_trainable_variables],
        "optimizer": [v.value for v in model.optimizer.variables],
    }
    program = Program(step, strategy)
    program.fit(state, [np.ones((4, 2), np.float32)] * 30, verbose=0)
    assert program.history["loss"][0] < 1e-3


# The loop.


def test_short_steps_go_together(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from lockstep._engine.loop import loop
    from lockstep._engine.step.program import StepProgram

    # However busy the machine is.
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    sizes: list[int] = []
    run = StepProgram.run
    monkeypatch.setattr(StepProgram, "run", lambda self, s, placed: sizes.append(placed.steps) or run(self, s, placed))
    state = Program(counting, strategy).fit(zero(), numbers(400), verbose=0)
    assert (int(state["steps"]), float(state["sum"])) == (100, 400 * 399 / 2)
    assert sum(sizes) == 100
    assert len(sizes) < 50


def test_each_function_sees_the_steps_it_asks_for(strategy: Any) -> None:
    seen: dict[int, list[Any]] = {3: [], 5: []}
    notes = [Every(n, lambda t, logs, n=n: seen[n].append((t.step, t.epoch, float(t.state["sum"])))) for n in seen]
    ends: list[tuple[int, float]] = []
    by_epoch = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append((epoch, logs["sum"])))
    Program(counting, strategy).fit(zero(), numbers(), epochs=2, verbose=0, callbacks=[*notes, by_epoch])
    sums = np.cumsum(np.tile(np.arange(40).reshape(10, 4).sum(1), 2))
    for n, found in seen.items():
        assert found == [(s, (s - 1) // 10, sums[s - 1]) for s in range(n, 21, n)]
    assert ends == [(0, sums[8]), (1, sums[18])]


def test_a_callback_ends_training(strategy: Any) -> None:
    def stop(training: Any, logs: Any) -> None:
        training.stop_training = training.step == 13

    state = Program(counting, strategy).fit(zero(), numbers(), epochs=9, verbose=0, callbacks=[Every(1, stop)])
    assert int(state["steps"]) == 13


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [({}, 10), ({"epochs": 3}, 30), ({"steps": 14}, 14), ({"steps_per_epoch": 4, "epochs": 2}, 8)],
    ids=str,
)
def test_how_long(arguments: Any, steps: int, strategy: Any) -> None:
    assert int(Program(counting, strategy).fit(zero(), numbers(), verbose=0, **arguments)["steps"]) == steps


def test_an_iterator_is_read_once(strategy: Any) -> None:
    batches = (np.full(4, i, np.float32) for i in range(7))
    state = Program(counting, strategy).fit(zero(), batches, steps_per_epoch=3, epochs=2, verbose=0)
    assert float(state["sum"]) == 4 * sum(range(6))
    assert float(next(batches)[0]) == 6.0


# Restarts in this process; those of processes are elsewhere.


class Ended(Exception):
    """Stands for what ends a program."""


def train(strategy: Any, directory: Path, end_at: int | None, **arguments: Any) -> Any:
    def end(training: Any, logs: Any) -> None:
        if training.step == end_at:
            raise Ended

    callbacks = [Every(end_at, end)] if end_at else []
    kept = {
        "epochs": 2,
        "checkpoint_dir": directory,
        "save_every": 2,
        "verbose": 0,
        "callbacks": callbacks,
        **arguments,
    }
    with programs.compiled_quickly():
        return Program(programs.step, strategy).fit(programs.state(), programs.dataset(), **kept)


@pytest.mark.slow
def test_it_goes_on_bit_for_bit(strategy: Any, tmp_path: Path) -> None:
    expected = programs.arrays(train(strategy, tmp_path / "undisturbed", None, save_every=None))
    with pytest.raises(Ended):
        train(strategy, tmp_path / "ended", 3)
    with pytest.raises(Ended):
        train(strategy, tmp_path / "ended", 7)
    found = train(strategy, tmp_path / "ended", None)
    jax.tree.map(np.testing.assert_array_equal, programs.arrays(found), expected)
    # And as far as one device is from four.
    other = Program(programs.step, ls.distribute.OneDeviceStrategy("/cpu:0"))
    again = other.fit(programs.state(), programs.dataset(), epochs=2, checkpoint_dir=tmp_path / "ended", verbose=0)
    jax.tree.map(np.testing.assert_array_equal, programs.arrays(again), expected)
    restored = other.restore(programs.state(), tmp_path / "ended")
    jax.tree.map(np.testing.assert_array_equal, programs.arrays(restored), expected)


def test_it_goes_on_for_longer(strategy: Any, tmp_path: Path) -> None:
    program = Program(counting, strategy)
    shuffled = numbers().shuffle(10, seed=1)
    for steps in (3, 13, 17):
        state = program.fit(zero(), shuffled, steps=steps, checkpoint_dir=tmp_path, save_every=None, verbose=0)
        assert int(state["steps"]) == steps
    expected = program.fit(zero(), numbers().shuffle(10, seed=1), steps=17, verbose=0)
    assert float(state["sum"]) == float(expected["sum"])


def test_a_checkpoint_of_another_state(strategy: Any, tmp_path: Path) -> None:
    Program(counting, strategy).fit(zero(), numbers(), checkpoint_dir=tmp_path, verbose=0)
    others = {
        "sum is float32\\(\\) in the checkpoint, and float32\\(2,\\) here": {**zero(), "sum": np.zeros(2, "float32")},
        "more is missing from the checkpoint": {**zero(), "more": np.zeros(2)},
    }
    for message, other in others.items():
        with pytest.raises(CheckpointError, match=message):
            Program(counting, strategy).fit(other, numbers(), checkpoint_dir=tmp_path, verbose=0)
        with pytest.raises(CheckpointError, match=message):
            Program(counting, strategy).restore(other, tmp_path)
    with pytest.raises(CheckpointError, match="holds none"):
        Program(counting, strategy).restore(zero(), tmp_path / "nothing")


# What is refused.

STATE = {"a": np.zeros(3, np.float32), "b": [np.zeros((), np.int32), "text"], "key": jax.random.key(0)}
VARIABLE = keras.Variable(0.0, name="mine")
STEPS: dict[str, tuple[Any, str]] = {
    "no pair": (lambda s, b: s, r"returns \(state, logs\). Received: dict"),
    "a leaf too few": (lambda s, b: ({"a": s["a"], "b": s["b"]}, {}), "Key is missing from what it returned"),
    "a leaf too many": (lambda s, b: ({**s, "c": 1.0}, {}), "C is new"),
    "another container": (lambda s, b: ({**s, "b": tuple(s["b"])}, {}), "It was given"),
    "another shape": (lambda s, b: ({**s, "a": s["a"][:2]}, {}), r"a is float32\[3\], and becomes float32\[2\]"),
    "another type": (
        lambda s, b: ({**s, "b": [s["b"][0] + 0.5, s["b"][1]]}, {}),
        r"b/0 is int32\[\], and becomes float32\[\]",
    ),
    "no key": (lambda s, b: ({**s, "key": jnp.zeros(2)}, {}), "key is a key of jax.random"),
    "other text": (lambda s, b: ({**s, "b": [s["b"][0], "other"]}, {}), "b/1 is 'text', and becomes 'other'"),
    "text in logs": (lambda s, b: (s, {"what": "ever"}), r"hold numbers and arrays. Received: str at \['what'\]"),
    "a variable of Keras": (lambda s, b: (VARIABLE.assign(1.0), (s, {}))[1], "assigns to the Keras variable mine"),
    "numpy's numbers": (lambda s, b: ({**s, "a": s["a"] + np.random.random()}, {}), "must be a pure function"),
    "Python's numbers": (lambda s, b: (s, {"r": b.sum() * random.random()}), "must be a pure function"),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("view", ["global", "replica"])
def test_steps_that_are_refused(name: str, view: Any, strategy: Any) -> None:
    step, message = STEPS[name]
    with pytest.raises(ArgumentError, match=message):
        Program(step, strategy, view).fit(STATE, numbers(), verbose=0)
    with pytest.raises(ArgumentError, match=message):
        Program(step, strategy, view)(STATE, np.zeros(4, np.float32))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s, b: ({"w": s["w"] + b.mean()}, {}), "after which w may differ between them"),
        (lambda s, b: ({"w": s["w"] + jax.lax.axis_index("replica")}, {}), "after which w may differ"),
        (lambda s, b: (s, {"rows": (b > 1).sum()}), r"takes floats. Received: \['rows'\], of type int32"),
    ],
)
def test_replicas_that_would_differ(step: Any, message: str, strategy: Any) -> None:
    with pytest.raises(ArgumentError, match=message):
        Program(step, strategy, view="replica").fit({"w": np.float32(0)}, numbers(), verbose=0)


def test_options_have_a_meaning_in_one_view() -> None:
    strategy = ls.distribute.MirroredStrategy(cross_device_ops=ls.distribute.ReductionToOneDevice())
    with pytest.raises(UnsupportedError, match='with view="replica"'):
        Program(counting, strategy)
    Program(counting, strategy, view="replica")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": 0}, "epochs is a number, at least 1"),
        ({"steps": True}, "steps is a number"),
        ({"epochs": 2, "steps": 3}, "a number of epochs, or of steps"),
        ({"checkpoint_dir": "x", "save_every": 0}, "save_every is"),
        ({"checkpoint_dir": "x", "keep_max": 0}, "keep_max is"),
        ({"callbacks": [print]}, "Callbacks of Program.fit are Keras'"),
    ],
    ids=str,
)
def test_arguments_that_are_refused(arguments: Any, message: str, strategy: Any) -> None:
    with pytest.raises(ArgumentError, match=message):
        Program(counting, strategy).fit(zero(), numbers(), verbose=0, **arguments)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (np.zeros(4), ArgumentError, "from_tensor_slices"),
        ({"x": np.zeros(4)}, ArgumentError, "Received: dict"),
        (3, ArgumentError, "Received: int"),
        ([], InputError, "at least one batch"),
        ([np.asarray(["text"])], InputError, "Batches must hold numbers"),
        (numbers().repeat(), InputError, "An epoch must end"),
    ],
    ids=str,
)
def test_data_that_are_refused(data: Any, error: Any, message: str, strategy: Any) -> None:
    with pytest.raises(error, match=message):
        Program(counting, strategy).fit(zero(), data, verbose=0)


def test_batches_of_values_that_do_not_belong_together(strategy: Any) -> None:
    value = PerReplica([np.ones(2, np.float32)] * 4)
    with pytest.raises(ArgumentError, match="as experimental_distribute_dataset yields it"):
        Program(counting, strategy)(zero(), value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3,), "step is a function"),
        ((counting, "all"), "strategy is a strategy"),
        ((counting, None, "both"), 'view is "global" or "replica"'),
    ],
)
def test_programs_that_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Program(*arguments)


@pytest.mark.parametrize("arguments", [(0, print), (True, print), (1.5, print), (3, None)])
def test_rhythms_that_are_refused(arguments: Any) -> None:
    with pytest.raises(ArgumentError, match="Every needs a number of steps"):
        Every(*arguments)


def test_a_callback_that_needs_a_model_says_so(strategy: Any, tmp_path: Path) -> None:
    callback = keras.callbacks.ModelCheckpoint(str(tmp_path / "m.keras"))
    with pytest.raises(AttributeError, match="give fit a checkpoint_dir"):
        Program(counting, strategy).fit(zero(), numbers(), verbose=0, callbacks=[callback])
