"""What scheduled functions may do, what they return, and the errors of those that fail."""

from __future__ import annotations

import resource
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep._engine.keras.servers.tables import TablePolicy, tables_by
from lockstep.distribute.coordinator import ClusterCoordinator, PerWorkerValues, RemoteValue
from lockstep.distribute.experimental import partitioners
from lockstep.errors import ArgumentError, CancelledError, EndOfDataError, UnsupportedError
from tests.distribute.coordinator.local import make_cluster, make_coordinator


@pytest.fixture(scope="module")
def cluster() -> dict[str, list[str]]:
    return make_cluster(2, 2)


@pytest.fixture(scope="module")
def coordinator(cluster: Any) -> ClusterCoordinator:
    return make_coordinator(cluster, partitioners.FixedShardsPartitioner(2))


def _variable(coordinator: ClusterCoordinator, value: Any, **options: Any) -> Any:
    with coordinator.strategy.scope():
        return keras.Variable(value, trainable=False, **options)


def test_there_is_one_coordinator_of_a_strategy(coordinator: ClusterCoordinator) -> None:
    assert ClusterCoordinator(coordinator.strategy) is coordinator


def test_structures_of_results_are_fetched(coordinator: ClusterCoordinator) -> None:
    def compute(x: Any, *, name: str) -> Any:
        return {"sum": jnp.sum(x), "name": name, "pair": (x * 2, None)}

    value = coordinator.schedule(compute, args=(np.arange(3, dtype=np.float32),), kwargs={"name": "a"})
    assert isinstance(value, RemoteValue)
    found = value.fetch()
    assert found["name"] == "a" and found["pair"][1] is None
    assert isinstance(found["pair"][0], np.ndarray) and found["sum"] == 3
    assert isinstance(value.get()["sum"], jax.Array)
    assert coordinator.fetch([value, 5])[1] == 5
    coordinator.join()
    assert coordinator.done()


def test_variables_are_read_and_written_here_and_there(coordinator: ClusterCoordinator) -> None:
    variable = _variable(coordinator, np.zeros((4, 3), np.float32))
    rate = _variable(coordinator, 1.0)

    def add() -> Any:
        variable.assign_add(jnp.ones((4, 3)) * rate.value)
        return jnp.sum(variable.value)

    coordinator.schedule(add)
    coordinator.join()
    rate.assign(10.0)
    np.testing.assert_array_equal(variable.value, np.ones((4, 3)))
    assert coordinator.schedule(add).fetch() == 11 * 12
    variable.assign(np.full((4, 3), 2.0))
    assert coordinator.schedule(add).fetch() == 12 * 12
    np.testing.assert_array_equal(variable.numpy(), np.full((4, 3), 12.0))


def test_a_table_that_no_worker_can_have_whole_is_refused_by_name(coordinator: ClusterCoordinator) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # As in the scope of a strategy whose coordinator is a task of the cluster.
    with coordinator.strategy.scope(), tables_by(TablePolicy()):
        model = keras.Sequential([keras.Input((2,), dtype="int32"), keras.layers.Embedding(50_000_000, 16)])

    def step(ids: Any) -> Any:
        return jnp.mean(model(ids))

    with pytest.raises(
        UnsupportedError, match=r"embeddings' of float32\[50000000, 16\] .*Model.fit of the same program"
    ):
        coordinator.schedule(step, args=(np.zeros((4, 2), np.int32),))
    # In KiB, of 3 GiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000


def test_effects_of_functions_that_run_at_the_same_time_add_up(coordinator: ClusterCoordinator) -> None:
    total, largest, last = (_variable(coordinator, np.float32(v)) for v in (0.0, -1.0, 0.0))
    average = _variable(coordinator, np.float32(1.0))

    def note(x: Any) -> None:
        total.assign(total.value + x)
        largest.assign(jnp.maximum(largest.value, x))
        average.assign(average.value * 0.5)
        last.assign(x * 0 + 7)

    for number in range(40):
        coordinator.schedule(note, args=(np.float32(number),))
    coordinator.join()
    assert float(total.value) == sum(range(40)) and float(largest.value) == 39 and float(last.value) == 7
    np.testing.assert_allclose(average.value, 0.5**40)


def test_each_worker_has_its_own_pass_over_the_data(coordinator: ClusterCoordinator) -> None:
    dataset = coordinator.create_per_worker_dataset(lambda: ls.data.Dataset.range(8).batch(3))
    assert "int" in str(dataset.element_spec)
    iterator = iter(dataset)
    with pytest.raises(UnsupportedError, match="Pass the iterator to"):
        next(iterator)

    def draw(iterator: Any) -> Any:
        return next(iterator), next(iterator)

    first = coordinator.schedule(draw, args=(iterator,)).fetch()
    assert [a.tolist() for a in first] == [[0, 1, 2], [3, 4, 5]]
    # Of other shapes than the first ones, and then the end: whichever worker comes first to it.
    one = lambda iterator: next(iterator)  # noqa: E731
    found: list[list[int]] = []
    with pytest.raises(EndOfDataError, match="at the end of the data"):
        for _ in range(9):
            found.append(coordinator.schedule(one, args=(iterator,)).fetch().tolist())
    assert [6, 7] in found
    with pytest.raises(EndOfDataError):
        coordinator.join()
    coordinator.join()


@pytest.mark.slow
def test_each_worker_has_its_own_values(coordinator: ClusterCoordinator) -> None:
    made = iter(range(100))
    values = coordinator.create_per_worker_resource(lambda: np.float32(next(made)))
    assert isinstance(values, PerWorkerValues)
    results = coordinator.fetch([coordinator.schedule(lambda v: v + 1, args=(values,)) for _ in range(20)])
    assert set(map(float, results)) <= {1.0, 2.0}


def test_an_error_is_raised_once_and_the_coordinator_goes_on(coordinator: ClusterCoordinator) -> None:
    ends = iter(coordinator.create_per_worker_dataset(ls.data.Dataset.range(1)))
    values: list[RemoteValue] = []
    with pytest.raises(EndOfDataError):
        for _ in range(5):
            values.append(coordinator.schedule(lambda it: next(it), args=(ends,)))
        coordinator.join()
    coordinator.join()
    assert coordinator.done()
    for value in values[2:]:
        with pytest.raises((CancelledError, EndOfDataError)):
            value.fetch()
    assert coordinator.schedule(lambda: jnp.ones(2)).fetch().tolist() == [1, 1]


def test_a_new_function_at_the_end_of_a_workers_data_fails_when_it_is_computed(coordinator: ClusterCoordinator) -> None:
    ends = iter(coordinator.create_per_worker_dataset(ls.data.Dataset.range(1)))
    ends.of_worker(0).draw(1)
    value = coordinator.schedule(lambda it: (next(it), next(it)), args=(ends,))
    with pytest.raises(EndOfDataError):
        value.fetch()
    with pytest.raises(EndOfDataError):
        coordinator.join()
    coordinator.join()


def test_a_function_of_data_without_elements_raises_at_once(coordinator: ClusterCoordinator) -> None:
    empty = iter(coordinator.create_per_worker_dataset(ls.data.Dataset.range(0)))
    with pytest.raises(EndOfDataError):
        coordinator.schedule(lambda it: next(it), args=(empty,))
    coordinator.join()


def test_a_function_that_cannot_be_traced_raises_at_once(coordinator: ClusterCoordinator) -> None:
    def wrong() -> None:
        raise RuntimeError("of the program's own")

    with pytest.raises(RuntimeError, match="of the program's own"):
        coordinator.schedule(wrong)
    coordinator.join()


def test_what_cannot_be_sent_is_refused(coordinator: ClusterCoordinator) -> None:
    with pytest.raises(ArgumentError, match="schedule takes a function"):
        coordinator.schedule(3)  # pyright: ignore[reportArgumentType]
    value = coordinator.schedule(lambda: jnp.zeros(1))
    with pytest.raises(ArgumentError, match=r"Pass value\.fetch"):
        coordinator.schedule(lambda v: v, args=(value,))

    def calls_python(x: Any) -> Any:
        return jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct((), np.float32), x)

    with pytest.raises(UnsupportedError, match="which calls Python while it runs"):
        coordinator.schedule(calls_python, args=(np.float32(1),))
    iterator = iter(coordinator.create_per_worker_dataset(ls.data.Dataset.range(9)))

    def loop(iterator: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, total: total + next(iterator), 0)

    with pytest.raises(UnsupportedError, match="in a loop or a condition"):
        coordinator.schedule(loop, args=(iterator,))
    texts = iter(coordinator.create_per_worker_dataset(ls.data.Dataset.from_tensor_slices(np.array(["a", "b"]))))
    with pytest.raises(ArgumentError, match="Elements for workers are numbers"):
        coordinator.schedule(lambda it: next(it), args=(texts,))
    coordinator.join()


def test_variables_that_are_updated_whole_move_to_one_server(coordinator: ClusterCoordinator) -> None:
    matrix = _variable(coordinator, np.eye(4, dtype=np.float32))
    assert coordinator.schedule(lambda: jnp.sum(matrix.value)).fetch() == 4
    # A row of the new value depends on others.
    coordinator.schedule(lambda: matrix.assign(jnp.flip(matrix.value + 1, 0)))
    coordinator.join()
    np.testing.assert_array_equal(matrix.value, np.flip(np.eye(4) + 1, 0))
    assert coordinator.schedule(lambda: jnp.sum(matrix.value)).fetch() == 20


def test_other_strategies_and_options_are_refused(cluster: Any) -> None:
    with pytest.raises(ArgumentError, match="takes a ParameterServerStrategy"):
        ClusterCoordinator(ls.distribute.OneDeviceStrategy("cpu:0"))
    with pytest.raises(ArgumentError, match="at least one `ps` task"):
        ClusterCoordinator(ls.distribute.ParameterServerStrategy(ls.cluster_resolver.SimpleClusterResolver({})))
    with pytest.raises(UnsupportedError, match="mode='sync'"):
        make_coordinator(cluster, mode="sync")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"job_name": "chief"}, "ParameterServerStrategy and a ClusterCoordinator instead"),
        ({"job_name": "worker", "protocol": "http"}, 'protocol is "grpc"'),
        ({"job_name": "worker", "config": 3}, "config is a tf.compat.v1.ConfigProto"),
    ],
)
def test_servers_refuse_what_they_cannot_do(options: Any, message: str) -> None:
    spec = {"worker": ["a:1"], "ps": ["a:2"], "chief": ["a:3"]}
    with pytest.raises(ArgumentError, match=message):
        ls.distribute.Server(spec, task_index=0, start=False, **options)
    server = ls.distribute.Server(spec, "worker", 0, start=False)
    assert server.target == "grpc://a:1"
