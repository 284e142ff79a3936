"""`lockstep.function`: what is compiled, for what, and how often."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep.distribute._values import PerReplica
from lockstep.errors import ArgumentError, UnsupportedError

SPEC = ls.data.TensorSpec((None, 3), np.float32)


def test_it_is_traced_once_for_each_kind_of_argument() -> None:
    traced: list[Any] = []

    @ls.function
    def power(x: Any, exponent: Any, how: str = "up") -> Any:
        traced.append((x.shape, exponent, how))
        return {"value": x**exponent if how == "up" else 1 / x**exponent, "exponent": exponent, "how": how}

    for _ in range(2):
        for exponent in (2, 2.0, 3):
            found = power(np.full(2, 3.0, np.float32), exponent)
            assert (float(found["value"][0]), found["exponent"], found["how"]) == (3**exponent, exponent, "up")
            assert type(found["exponent"]) is type(exponent)
    power(jnp.ones(3), 2, how="down")
    assert traced == [((2,), 2, "up"), ((2,), 2.0, "up"), ((2,), 3, "up"), ((3,), 2, "down")]


def test_numbers_can_be_arrays() -> None:
    traced: list[Any] = []

    @ls.function(reduce_retracing=True)
    def add(x: Any, y: Any, twice: bool) -> Any:
        traced.append(y)
        return x + y * (2 if twice else 1)

    assert [int(add(1, y, True)) for y in range(4)] == [1, 3, 5, 7]
    assert len(traced) == 1


def test_methods_and_functions_that_run_as_they_are() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by
            self.calls = 0

        @ls.function
        def __call__(self, x: Any) -> Any:
            self.calls += 1
            return x * self.by

        @ls.function(jit_compile=False)
        def eagerly(self, x: Any) -> Any:
            return float(x) * self.by

    one, two = Scale(2.0), Scale(3.0)
    assert [float(s(jnp.ones(()))) for s in (one, two, one)] == [2.0, 3.0, 2.0]
    assert (one.calls, two.calls) == (1, 1)
    assert one.eagerly(jnp.ones(())) == 2.0


def test_values_of_replicas_are_left_to_what_runs_them() -> None:
    seen: list[Any] = []
    value = PerReplica([np.ones(2), np.zeros(1)])
    ls.function(seen.append)(value)
    assert seen == [value]


def test_a_signature_is_demanded() -> None:
    double = ls.function(lambda x: 2 * x, [SPEC])
    assert double(np.ones((5, 3), np.float32)).shape == (5, 3)
    wrong = {"shape \\(5, 2\\)": np.ones((5, 2), np.float32), "dtype int32": np.ones((5, 3), np.int32)}
    for message, value in wrong.items():
        with pytest.raises(ArgumentError, match=f"argument 0 has shape \\(None, 3\\).*{message}"):
            double(value)
    with pytest.raises(ArgumentError, match="takes 1 positional"):
        double()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"autograph": False}, UnsupportedError, "takes no autograph. Received: autograph=False"),
        ({"experimental_relax_shapes": True}, UnsupportedError, "takes no experimental_relax_shapes"),
        ({"jit_compile": "yes"}, ArgumentError, "jit_compile is True or False"),
        ({"reduce_retracing": 1}, ArgumentError, "reduce_retracing is True or False"),
        ({"input_signature": [3]}, ArgumentError, "with shape and dtype for each argument"),
        ({"func": 3}, ArgumentError, "compiles functions. Received: int"),
    ],
    ids=str,
)
def test_what_is_refused(arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        ls.function(**{"func": abs, **arguments})


def test_what_cannot_be_static() -> None:
    with pytest.raises(ArgumentError, match=r"must be hashable. Received: a set at \[0\]\[1\]"):
        ls.function(lambda x, y: x)(1.0, {1})
    variable = keras.Variable(1.0, name="mine")
    with pytest.raises(ArgumentError, match="assigns to the Keras variable mine"):
        ls.function(lambda x: variable.assign(x))(jnp.ones(()))


@pytest.mark.parametrize("name", ["function", "random"])
def test_it_is_there(name: str) -> None:
    assert name in dir(ls)
    assert getattr(ls, name) is not None


# Random numbers of replicas.


@pytest.mark.slow
def test_random_numbers_of_a_batch_and_of_replicas() -> None:
    rows = np.arange(8, dtype=np.float32)

    def step(state: Any, batch: Any) -> Any:
        key, own = jax.random.split(state["key"])
        replica = ls.distribute.get_replica_context()
        noise = ls.random.for_batch(jax.random.uniform, own, batch.shape, minval=1.0)
        gathered = replica.all_gather(noise, axis=0)
        mine = jax.random.uniform(ls.random.replica_key(own), (1,))
        numbers = replica.all_gather(ls.random.rows_of_batch(len(batch)), axis=0)
        return {"key": key}, {"noise": gathered, "own": replica.all_gather(mine, axis=0), "rows": numbers}

    found = {}
    for strategy in (ls.distribute.OneDeviceStrategy("/cpu:0"), ls.distribute.MirroredStrategy()):
        program = ls.training.Program(step, strategy, view="replica")
        for count in (8, 6, 3):
            _, logs = program({"key": jax.random.key(0)}, rows[:count])
            np.testing.assert_array_equal(logs["rows"], range(count))
            own = np.asarray(logs["own"])
            assert len(set(own.tolist())) == strategy.num_replicas_in_sync
            expected = found.setdefault(count, np.asarray(logs["noise"]))
            np.testing.assert_array_equal(logs["noise"], expected)


def test_the_rows_must_be_those_of_the_replica() -> None:
    def step(state: Any, batch: Any) -> Any:
        return state, {"noise": ls.random.for_batch(jax.random.normal, state, (9,)).mean()}

    program = ls.training.Program(step, ls.distribute.MirroredStrategy(), view="replica")
    with pytest.raises(ArgumentError, match=r"of the batch\. Received: 9"):
        program(jax.random.key(0), np.zeros(6, np.float32))
    with pytest.raises(ArgumentError, match="an axis of rows"):
        ls.random.for_batch(jax.random.normal, jax.random.key(0), ())
    assert ls.random.for_batch(jax.random.normal, jax.random.key(0), (3,)).shape == (3,)
