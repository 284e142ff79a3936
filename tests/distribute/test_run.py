"""strategy.run: what goes in, what comes out, what is compiled, what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lockstep as ls
from lockstep.errors import ArgumentError, InputError, UnsupportedError
from tests.distribute.loops import context

distribute = ls.distribute
PerReplica, RunOptions = distribute.PerReplica, distribute.RunOptions


@pytest.fixture(scope="module")
def strategy() -> Any:
    return distribute.MirroredStrategy()


def numbers(strategy: Any) -> Any:
    """Each replica's number."""
    return strategy.experimental_distribute_values_from_function(lambda c: jnp.float32(c.replica_id_in_sync_group))


def seen(value: Any) -> list[Any]:
    return [np.asarray(v).tolist() for v in value.values]


def test_equal_outputs_are_one_value_and_others_one_each(strategy: Any) -> None:
    def function(own: Any, shared: Any) -> Any:
        return {"own": own + shared, "shared": shared * 2, "sum": context().all_reduce("SUM", own), "rows": own[None]}

    found = strategy.run(function, args=(numbers(strategy),), kwargs={"shared": np.float32(10)})
    assert seen(found["own"]) == [10, 11, 12, 13] and seen(found["rows"]) == [[0], [1], [2], [3]]
    assert [next(iter(v.devices())).id for v in found["own"].values] == [0, 1, 2, 3]
    assert float(found["shared"]) == 20 and float(found["sum"]) == 6
    assert found["sum"].sharding == strategy._replicas.whole
    again = strategy.run(lambda own, total: own + total, args=(found["own"], found["sum"]))
    assert seen(again) == [16, 17, 18, 19]


def test_what_is_no_array_passes_through(strategy: Any) -> None:
    marker = object()

    def function(tree: Any, *, training: bool) -> Any:
        assert training is True and tree["f"] is jnp.tanh
        return {**tree, "x": tree["f"](tree["x"]), "flag": training, "nothing": None, "marker": marker}

    tree = {"f": jnp.tanh, "name": "text", "x": jnp.ones(2), "p": 0.5, "nothing": None}
    found = strategy.run(function, args=(tree,), kwargs={"training": True})
    assert found["f"] is jnp.tanh and found["name"] == "text" and found["p"] == 0.5 and found["nothing"] is None
    assert found["marker"] is marker and found["flag"] is True
    np.testing.assert_allclose(found["x"], np.tanh(np.ones(2)), rtol=1e-6)


def test_programs_are_kept(strategy: Any) -> None:
    traces: list[Any] = []

    def function(x: Any, name: str, rate: float) -> Any:
        traces.append((x.shape, name, rate if isinstance(rate, float) else None))
        return x * rate

    for x in (np.ones(2), np.ones(2), np.ones(3), np.ones(2)):
        strategy.run(function, args=(x, "a", 0.5))
    assert traces == [((2,), "a", 0.5), ((3,), "a", 0.5)]
    strategy.run(function, args=(np.ones(2), "b", 0.5))
    assert len(traces) == 3
    # A number that changes becomes an array, once.
    found = [strategy.run(function, args=(np.ones(2), "b", rate)) for rate in (0.25, 0.125, 0.0625)]
    assert traces[3:] == [((2,), "b", None)]
    assert [float(f[0]) for f in found] == [0.25, 0.125, 0.0625]


def test_bound_methods_and_partials(strategy: Any) -> None:
    class Doubles:
        traced = 0

        def step(self, x: Any) -> Any:
            self.traced += 1
            return 2 * x

    doubles = Doubles()
    assert [float(strategy.run(doubles.step, args=(1.0,))) for _ in range(2)] == [2, 2] and doubles.traced == 1
    assert float(strategy.run(partial(jnp.add, 1.0), args=(np.float32(2),))) == 3


def test_donated_arguments_are_used_up(strategy: Any) -> None:
    state = strategy.run(lambda: jnp.ones(1000))
    kept = strategy.run(lambda s: s + 1, args=(state,))
    assert not state.is_deleted()
    after = strategy.run(lambda s: s + 1, args=(state,), options=RunOptions(donate_argnums=0))
    assert state.is_deleted() and not kept.is_deleted() and float(after[0]) == 2


@pytest.mark.parametrize("donated", [-1, 1.5, "0", [True], None], ids=str)
def test_wrong_options(donated: Any) -> None:
    with pytest.raises(ArgumentError, match="donate_argnums must be numbers"):
        RunOptions(donate_argnums=donated)


def test_options_of_tensorflow(strategy: Any) -> None:
    class Theirs(tuple[Any, ...]):
        def _asdict(self) -> dict[str, Any]:
            return {"experimental_enable_dynamic_batch_size": True, "experimental_xla_options": None}

    assert float(strategy.run(lambda: jnp.ones(()), options=Theirs())) == 1
    for wrong in ({"experimental_bucketizing_dynamic_shape": True}, {"experimental_xla_options": {}}):
        with pytest.raises(UnsupportedError, match=f"{next(iter(wrong))} concerns TPUs"):
            RunOptions(**wrong)
    with pytest.raises(ArgumentError, match=r"must be a lockstep\.distribute\.RunOptions"):
        strategy.run(lambda: 1, options={"donate_argnums": 0})
    with pytest.raises(ArgumentError, match=r"positional arguments\. Received: \[1\] for 1 arguments"):
        strategy.run(lambda x: x, args=(1.0,), options=RunOptions(donate_argnums=1))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"fn": 3}, "needs a function"),
        ({"args": np.ones(3)}, "args must be a tuple"),
        ({"kwargs": [1]}, "kwargs must be a dict"),
        ({"args": (PerReplica([1, 2]),)}, "must hold a value for each replica of this process. Received: 2"),
        ({"args": (PerReplica([np.ones(1), np.ones((1, 1))] * 2),)}, "not in their number of dimensions"),
    ],
    ids=lambda a: str(a)[:30],
)
def test_wrong_arguments(strategy: Any, arguments: Any, told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        strategy.run(**{"fn": lambda *a: a, **arguments})


def test_text_is_refused(strategy: Any) -> None:
    with pytest.raises(InputError, match="must hold numbers"):
        strategy.run(lambda x: x, args=(PerReplica([np.array(["a"], object)] * 4),))


def test_errors_of_the_function_come_as_they_are(strategy: Any) -> None:
    def function() -> None:
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            strategy.run(function)
    assert distribute.get_replica_context() is not None and not distribute.has_strategy()


def test_shares_of_different_sizes(strategy: Any) -> None:
    """14 items at 8 a batch on 2 replicas; and 9, where one has nothing in the end."""
    two = distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    for rows, last in ((14, [[8, 9, 10], [11, 12, 13]]), (9, [[8], []])):
        batches = list(two.experimental_distribute_dataset(ls.data.Dataset.range(rows).batch(8)))
        assert seen(batches[-1]) == last
        own, gathered, total = two.run(
            lambda x: (x * 2, context().all_gather(x, axis=0), context().all_reduce("sum", x.sum())),
            args=(batches[-1],),
        )
        assert seen(own) == [[2 * i for i in part] for part in last]
        assert gathered.tolist() == list(range(8, rows)) and int(total) == sum(range(8, rows))
        assert seen(two.run(lambda x: x + 1, args=(own,))) == [[2 * i + 1 for i in part] for part in last]


def test_an_empty_share_has_the_shape_of_the_others(strategy: Any) -> None:
    dataset = ls.data.Dataset.from_tensor_slices(np.ones((2, 5), "float32")).batch(8)
    shapes: list[Any] = []
    (batch,) = strategy.experimental_distribute_dataset(dataset)
    strategy.run(lambda x: shapes.append(x.shape), args=(batch,))
    assert shapes == [(1, 5), (1, 5), (0, 5), (0, 5)]


def test_inside_of_another_function(strategy: Any) -> None:
    own = numbers(strategy)

    @jax.jit
    def outer(w: Any) -> Any:
        found, total = strategy.run(lambda x, w: (x * w, context().all_reduce("sum", x)), args=(own, w))
        again = strategy.run(lambda x: x + 1, args=(found,))
        return (
            strategy.reduce("SUM", again, axis=None),
            strategy.gather(strategy.run(jnp.atleast_1d, args=(again,)), 0),
            total,
        )

    summed, gathered, total = outer(2.0)
    assert (float(summed), gathered.tolist(), float(total)) == (16, [1, 3, 5, 7], 6)


def test_one_replica_has_no_values_of_each() -> None:
    for one in (distribute.OneDeviceStrategy("cpu:1"), distribute.get_strategy()):
        value = one.experimental_distribute_values_from_function(lambda c: c.num_replicas_in_sync)
        found = one.run(
            lambda x: (x, context().all_reduce("mean", x), context().all_gather(x[None], 0)), args=(np.ones(2),)
        )
        assert value == 1 and [np.shape(f) for f in found] == [(2,), (2,), (1, 2)]
        assert float(one.reduce("SUM", found[0], axis=0)) == 2


def test_arrays_of_one_device_and_of_numpy(strategy: Any) -> None:
    placed = jax.device_put(jnp.ones(2), jax.devices()[2])
    found = strategy.run(lambda a, b, c: a + b + c, args=(placed, np.ones(2), 1))
    np.testing.assert_array_equal(found, [3, 3])


def test_keys_of_random_numbers(strategy: Any) -> None:
    keys = strategy.run(lambda k: jax.random.fold_in(k, context().replica_id_in_sync_group), args=(jax.random.key(1),))
    drawn = strategy.gather(strategy.run(lambda k: jax.random.uniform(k, (1,)), args=(keys,)), axis=0)
    assert len(set(drawn.tolist())) == 4


def test_values_of_replicas_are_not_one_value(strategy: Any) -> None:
    with pytest.raises(ArgumentError, match=r"needs one value\. Received: a PerReplica"):
        np.asarray(numbers(strategy))
    assert repr(distribute.Mirrored(3, 2)) == "Mirrored(0: 3, 1: 3)"
    assert float(strategy.run(lambda x: x + 1, args=(distribute.Mirrored(np.float32(1), 4),))) == 2
    assert strategy.experimental_local_results({"a": numbers(strategy), "b": 1})[3] == {"a": 3, "b": 1}


def test_programs_for_pmap_are_told_what_to_do(strategy: Any) -> None:
    with pytest.raises(NameError) as caught:
        strategy.run(lambda x: jax.lax.pmean(x, axis_name="batch"), args=(1.0,))
    assert "all_reduce('mean', value)" in caught.value.__notes__[0]
