"""Functions that read variables see their values when an element is computed; iterators are not advanced by looking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep.compat import tensorflow as tf
from lockstep.data import Dataset
from lockstep.errors import InputError

COUNT = 600


class Scaled:
    """A variable as an attribute."""

    def __init__(self, variable: Any) -> None:
        self.variable = variable

    def __call__(self, x: Any) -> Any:
        return x * self.variable


class Scale(keras.layers.Layer):
    """A layer with a weight."""

    def __init__(self, variable: Any) -> None:
        super().__init__()
        self.scale = self.add_weight(shape=(), initializer="ones")
        self.variable = variable

    def call(self, inputs: Any) -> Any:
        return keras.ops.cast(inputs, "float32") * self.variable


def helper(x: Any, variable: Any) -> Any:
    return x * variable.value


def untraceable(x: Any, variable: Any) -> Any:
    return np.float32(int(x)) * float(np.asarray(variable.value))


READERS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "product": lambda v: lambda x: x * v,
    "value": lambda v: lambda x: x * v.value,
    "attribute": lambda v: Scaled(v),
    "helper": lambda v: lambda x: helper(x, v),
    "keras.ops": lambda v: lambda x: keras.ops.multiply(keras.ops.cast(x, "float32"), v),
    "layer": lambda v: Scale(v),
    "one by one": lambda v: lambda x: untraceable(x, v),
    "list": lambda v: lambda x, variables=[v]: untraceable(x, variables[0]),
    "dict": lambda v: lambda x, variables={"v": v}: x * variables["v"],
    "twice": lambda v: lambda x: x * (v + v) / 2,
}


def made(kind: str, value: float) -> Any:
    return keras.Variable(value) if kind == "keras" else tf.Variable(value)


@pytest.mark.parametrize("kind", ["keras", "tf"])
@pytest.mark.parametrize("name", READERS)
def test_a_map_function_sees_the_value_of_the_moment(name: str, kind: str) -> None:
    variable = made(kind, 1.0)
    dataset = Dataset.range(COUNT).map(READERS[name](variable))
    iterator = iter(dataset)
    found = [float(next(iterator)) for _ in range(300)]
    variable.assign(10.0)
    found += [float(x) for x in iterator]
    expected = [float(i) for i in range(300)] + [10.0 * i for i in range(300, COUNT)]
    assert found == expected
    variable.assign(3.0)
    assert [float(x) for x in dataset.take(5)] == [0, 3, 6, 9, 12]


@pytest.mark.parametrize("name", READERS)
def test_batches_and_what_follows_see_it_too(name: str) -> None:
    variable = made("keras", 1.0)
    dataset = Dataset.range(64).map(READERS[name](variable)).map(lambda x: x + 1).batch(4).map(lambda x: x - 1)
    iterator = iter(dataset)
    for i, value in enumerate([1.0, 2.0, 5.0, 0.0]):
        variable.assign(value)
        np.testing.assert_array_equal(next(iterator), np.arange(4 * i, 4 * i + 4) * value)


def test_a_filter_sees_the_value_of_the_moment() -> None:
    variable = made("keras", 3.0)
    dataset = Dataset.range(8).filter(lambda x: x >= variable)
    assert [int(x) for x in dataset] == [3, 4, 5, 6, 7]
    iterator = iter(dataset)
    assert int(next(iterator)) == 3
    variable.assign(6.0)
    assert [int(x) for x in iterator] == [6, 7]
    plain = Dataset.range(8).filter(lambda x: int(x) >= float(np.asarray(variable.value)))
    assert [int(x) for x in plain] == [6, 7]


def test_text_and_take_while_and_scan() -> None:
    variable = made("tf", 2.0)
    names = tf.data.Dataset.from_tensor_slices(["a", "b", "c"])
    iterator = iter(names.map(lambda t: tf.strings.join([t, tf.strings.as_string(variable)])))
    first = next(iterator).numpy()
    variable.assign(4.0)
    assert first != b"a" + next(iterator).numpy()[1:]
    assert [int(x) for x in Dataset.range(9).take_while(lambda x: x < variable)] == [0, 1, 2, 3]
    assert float(list(Dataset.range(3).scan(0.0, lambda s, x: (s + x * variable, s + x * variable)))[-1]) == 12


def test_a_function_that_reads_variables_stays_vectorised() -> None:
    variable = made("keras", 1.0)
    program = Dataset.range(8).map(lambda x: x * variable)._plan.program  # type: ignore[attr-defined]
    assert program.is_vectorized
    assert not program.vectorized_function.is_pure
    calls = 0

    class Counted:
        def __radd__(self, other: Any) -> Any:
            nonlocal calls
            calls += 1
            return other

    counted = Counted()
    dataset = Dataset.range(512).map(lambda x: (x + counted) * variable).batch(256)
    for i in range(5):
        variable.assign(float(i))
        assert float(next(iter(dataset))[-1]) == 255 * i
    assert calls < 12


def test_normalization_that_is_adapted_later() -> None:
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    layer.build((None, 2))
    dataset = Dataset.from_tensor_slices(np.ones((6, 2), np.float32)).batch(2).map(layer)
    assert float(next(iter(dataset))[0, 0]) == 2
    layer.kernel.assign(jnp.full((2, 1), 4.0))
    assert float(next(iter(dataset))[0, 0]) == 8


def test_fit_sees_the_value_that_a_callback_sets() -> None:
    variable = made("keras", 0.0)
    seen: list[float] = []

    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1, kernel_initializer="ones", use_bias=False, trainable=False)

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

    rows = np.ones((32, 1), np.float32)
    dataset = Dataset.from_tensor_slices((rows, np.zeros((32, 1), np.float32))).map(lambda x, y: (x * variable, y))

    class Raise(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            variable.assign(float(epoch + 1))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(float(logs["loss"]))

    with ls.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = Model()
        model.compile(optimizer=keras.optimizers.SGD(0.0), loss="mse")
    model.fit(dataset.batch(8), epochs=3, callbacks=[Raise()], verbose=0)
    assert seen == [1.0, 4.0, 9.0]


class Holder:
    """An iterator as an attribute."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self.iterator = iterator

    def __call__(self, x: Any) -> Any:
        return x + self.iterator.get_next()  # type: ignore[attr-defined]


def first_of(iterator: Iterator[Any]) -> Any:
    for value in iterator:
        return value
    return 0


CAPTURING: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "next": lambda it: lambda x: x + next(it),
    "get_next": lambda it: lambda x: x + it.get_next(),
    "__next__": lambda it: lambda x: x + it.__next__(),
    "loop": lambda it: lambda x: x + first_of(it),
    "attribute": lambda it: Holder(it),
    "list": lambda it: lambda x, its=[it]: x + its[0].get_next(),
    "library": lambda it: lambda x: x + sum(v for v, _ in zip(it, range(1))),  # noqa: B905
    "partial": lambda it: lambda x, iterator=it: x + iterator.get_next(),
    "optional": lambda it: lambda x: x + it.get_next_as_optional().get_value(),
}


@pytest.mark.parametrize("name", CAPTURING)
def test_looking_does_not_advance_an_iterator(name: str) -> None:
    iterator = iter(Dataset.range(100))
    dataset = Dataset.range(3).map(CAPTURING[name](iterator))
    after = dataset.map(lambda x: x * 1).batch(2).unbatch().prefetch(1)
    assert repr(after) == "<Dataset element_spec=unknown>"
    assert int(Dataset.range(3).map(CAPTURING[name](iterator)).cardinality()) == 3
    after.cardinality()
    with pytest.raises(InputError, match="advances an iterator"):
        _ = dataset.element_spec
    assert next(iterator) == 0
    taken = 2 if name == "library" else 1  # zip takes one element more.
    for first in (1, 1 + 3 * taken):
        assert [int(x) for x in after] == [i + first + taken * i for i in range(3)]
        after = dataset


def test_looking_does_not_advance_an_iterator_of_flat_map_and_scan() -> None:
    iterator = iter(Dataset.range(100))
    flat = Dataset.range(3).flat_map(lambda x: Dataset.from_tensors(x + next(iterator)))
    assert "unknown" in repr(flat.map(lambda x: x + 0))
    assert [int(x) for x in flat.map(lambda x: x + 0)] == [0, 2, 4]
    scanned = Dataset.range(3).scan(np.int64(0), lambda s, x: (s, x + next(iterator)))
    assert "unknown" in repr(scanned)
    assert [x.tolist() for x in scanned.batch(3)] == [[3, 5, 7]]
    assert next(iterator) == 6


def test_a_filter_that_captures_an_iterator() -> None:
    iterator = iter(tf.data.Dataset.range(100))
    kept = tf.data.Dataset.range(6).filter(lambda x: next(iterator) % 2 == 0)
    repr(kept.map(lambda x: x + 1))
    assert [int(x) for x in kept] == [0, 2, 4]
    assert int(next(iterator)) == 6


def test_random_generators_and_lists_are_read_for_each_element() -> None:
    generator = np.random.default_rng(0)
    expected = np.random.default_rng(0).random(4)
    found = [float(v) for v in Dataset.range(4).map(lambda x: generator.random())]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    state = keras.random.SeedGenerator(1)
    drawn = {float(v) for v in Dataset.range(8).map(lambda x: keras.random.uniform((), seed=state))}
    assert len(drawn) == 8
    assert jax.tree.leaves(drawn)
