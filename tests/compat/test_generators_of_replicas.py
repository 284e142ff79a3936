"""tf.random.Generator in functions of strategy.run, and IndexedSlices there."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import UnsupportedError


@pytest.fixture(name="strategy", scope="module")
def _strategy() -> Any:
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def _of_each(strategy: Any, function: Any) -> list[np.ndarray]:
    return [np.asarray(v) for v in strategy.experimental_local_results(strategy.run(function))]


def test_each_draw_of_each_replica_differs(strategy: Any) -> None:
    with strategy.scope():
        generator = tf.random.Generator.from_seed(7)

    def draw() -> Any:
        return tf.stack([generator.uniform_full_int([3], tf.int32), generator.uniform_full_int([3], tf.int32)])

    found = [v for f in (draw, draw, tf.function(draw)) for v in _of_each(strategy, f)]
    assert len(np.unique(found)) == 3 * 2 * 6


@pytest.mark.slow
def test_draws_go_on_from_a_state(strategy: Any) -> None:
    def draw(generator: Any) -> np.ndarray:
        return np.stack(_of_each(strategy, lambda: generator.normal([4])))

    generator = tf.random.Generator.from_seed(7)
    first, state = draw(generator), generator.state
    second = draw(generator)
    generator.reset(state)
    other = tf.random.Generator.from_seed(8)
    other.set_state(generator.get_state())
    for again in (generator, tf.random.Generator.from_state(state), other):
        np.testing.assert_array_equal(draw(again), second)
    np.testing.assert_array_equal(draw(tf.random.Generator.from_seed(7)), first)
    # Those of earlier versions have no second sequence.
    generator.reset(np.asarray(state)[:6])


@pytest.mark.slow
def test_kinds_of_numbers(strategy: Any) -> None:
    generator = tf.random.Generator.from_seed(7)

    def draw() -> Any:
        return (
            generator.uniform([200], 3, 5),
            generator.uniform([200], 3, 5, tf.int32),
            generator.truncated_normal([200]),
            generator.binomial([200], 10.0, 0.5),
            generator.make_seeds(3),
            tf.random.get_global_generator().normal([200], 5.0),
        )

    floats, whole, near, successes, seeds, others = (np.asarray(v.values) for v in strategy.run(draw))
    assert floats.min() >= 3 and floats.max() < 5
    assert set(whole.ravel()) == {3, 4}
    assert abs(near).max() <= 2
    assert 4 < successes.mean() < 6
    assert seeds.shape == (2, 2, 3) and seeds.dtype == np.int32
    assert 4 < others.mean() < 6


def test_elsewhere_in_compiled_code_numbers_would_be_constants() -> None:
    generator = tf.random.Generator.from_seed(7)
    function = tf.function(lambda: generator.normal([2]))
    assert not np.array_equal(function(), function())
    with pytest.raises(UnsupportedError, match="must come from a seed"):
        jax.jit(lambda x: x + generator.normal([2]))(1.0)


def test_numbers_are_skipped() -> None:
    one, two = tf.random.Generator.from_seed(7), tf.random.Generator.from_seed(7)
    before = one.skip(3)
    two.make_seeds(3)
    assert not np.array_equal(before, one.state)
    assert one.uniform([2], dtype=tf.float64).numpy().tolist() == two.uniform([2], dtype=tf.float64).numpy().tolist()


def _rows() -> Any:
    return tf.IndexedSlices(tf.constant([[1.0], [2.0]]), tf.constant([1, 2]), tf.constant([4, 1]))


@pytest.mark.slow
@pytest.mark.parametrize(("how", "expected"), [("SUM", [0, 2, 4, 0]), ("MEAN", [0, 1, 2, 0])])
def test_rows_are_added_up(strategy: Any, how: str, expected: list[float]) -> None:
    @tf.function
    def reduce() -> Any:
        context: Any = tf.distribute.get_replica_context()
        return context.all_reduce(how, {"rows": _rows(), "dense": tf.constant(3.0)})

    found = strategy.experimental_local_results(strategy.run(reduce))[0]
    assert isinstance(found["rows"], tf.IndexedSlices)
    assert found["rows"].indices.shape == (4,)
    assert tf.convert_to_tensor(found["rows"]).numpy().ravel().tolist() == expected
    assert float(found["dense"]) == (6 if how == "SUM" else 3)


def _gathered(rows: Any) -> Any:
    context: Any = tf.distribute.get_replica_context()
    return context.all_gather(rows, 0)


def test_rows_are_not_gathered(strategy: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"^gather does not support IndexedSlices"):
        strategy.gather(_rows(), axis=0)
    with pytest.raises(NotImplementedError, match="all_gather does not support IndexedSlices"):
        strategy.run(_gathered, args=(_rows(),))


def test_shapes_that_cannot_be_joined(strategy: Any) -> None:
    def value(*shapes: Any) -> Any:
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.ones(shapes[context.replica_id_in_sync_group])
        )

    with pytest.raises(ValueError, match="Dimension 1 in both shapes must be equal, but they are 2 and 3"):
        strategy.gather(value((1, 2), (1, 3)), axis=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Ranks of all input tensors should match"):
        strategy.gather(value((1,), (1, 2)), axis=0)


def test_iterators_of_tensorflow_1(strategy: Any) -> None:
    iterator = strategy.make_input_fn_iterator(lambda _: tf.data.Dataset.range(4))
    for _ in range(2):
        iterator.initialize()
        assert [[int(v) for v in strategy.unwrap(iterator.get_next())] for _ in range(2)] == [[0, 1], [2, 3]]
        with pytest.raises(tf.errors.OutOfRangeError):
            iterator.get_next()
    iterator = strategy.make_dataset_iterator(tf.data.Dataset.range(8).batch(4))
    assert [int(v) for v in strategy.experimental_run(tf.reduce_sum, iterator).values] == [1, 5]
    assert strategy.group(strategy.run(lambda: tf.constant(1.0))) is None
    with pytest.raises(ValueError, match="PER_WORKER"):
        mode = tf.distribute.InputReplicationMode.PER_REPLICA
        strategy.make_input_fn_iterator(lambda _: tf.data.Dataset.range(4), mode)


def test_random_first_values_of_variables_made_in_a_function(strategy: Any) -> None:
    made: list[Any] = []

    def step() -> Any:
        if not made:
            made.extend(tf.Variable(tf.random.normal([3], stddev=stddev)) for stddev in (1.0, 100.0))
        return made[0].assign_add(tf.ones(3))

    found = []
    for _ in range(2):
        for function in (lambda: step(), tf.function(lambda: step())):
            tf.random.set_seed(3)
            made.clear()
            strategy.run(function)
            found.append(np.stack([v.numpy() for v in made]))
    assert abs(found[0][1]).max() > 10 > abs(found[0][0]).max()
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
