"""Functions that look up a large table have the rows of their batch, and send gradients of these alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lockstep.compat.tensorflow as tf  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep._engine.servers.closures import worker
from lockstep._engine.servers.messages import Message
from lockstep.distribute.experimental import partitioners
from tests.distribute.coordinator.local import make_cluster, make_coordinator
from tests.support.exhaustive import always

# 2.4 MiB of float32.
ROWS, COLUMNS, STEPS, BATCH = 40_000, 16, 6, 8
Use = Callable[[Any, Any], Any]


@pytest.fixture(scope="module")
def cluster() -> dict[str, list[str]]:
    return make_cluster(2, 2)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each answer and push of workers, in no order."""
    found: list[int] = []
    ask = worker.WorkerService._ask

    def counting(self: Any, closure: Any, server: int, message: Message) -> Message:
        answer = ask(self, closure, server, message)
        found.append(sum(a.nbytes for a in (*message.arrays.values(), *answer.arrays.values())))
        return answer

    monkeypatch.setattr(worker.WorkerService, "_ask", counting)
    return found


def _once(table: Any, ids: Any) -> Any:
    return keras.ops.take(table, ids, axis=0)


def _twice(table: Any, ids: Any) -> Any:
    return keras.ops.take(table, ids, axis=0) * 2 + jnp.take(table, (ids * 7) % ROWS, axis=0)


def _outside(table: Any, ids: Any) -> Any:
    # From the end, and one that is not there: of these rows nothing is added to the loss.
    found = jnp.take(table, jnp.where(ids % 2 == 0, ids - ROWS, ids + ROWS), axis=0)
    return jnp.where(jnp.isnan(found), 0.0, found) + _once(table, ids)


def _nearest(table: Any, ids: Any) -> Any:
    return jnp.take(table, ids * 100, axis=0, mode="clip")


def _regularized(table: Any, ids: Any) -> Any:
    return _once(table, ids) + jnp.mean(jnp.square(table))


def _ids_of_rows(table: Any, ids: Any) -> Any:
    return _once(table, (jnp.abs(_once(table, ids)).sum(axis=2) * 1000).astype("int32"))


class _Training:
    """A model with a table, and its step."""

    def __init__(self, make_optimizer: Callable[[], Any], use: Use) -> None:
        keras.utils.set_random_seed(3)
        shapes = {"table": (ROWS, COLUMNS), "kernel": (COLUMNS, 1), "bias": (1,)}
        self.weights = [
            keras.Variable(keras.initializers.RandomUniform(seed=n), shape=shape, name=name)
            for n, (name, shape) in enumerate(shapes.items())
        ]
        self.use = use
        self.optimizer = make_optimizer()
        self.optimizer.build(self.weights)

    def loss(self, values: Any, ids: Any, y: Any) -> Any:
        table, kernel, bias = values
        return jnp.mean((self.use(table, ids).mean(axis=1) @ kernel + bias - y) ** 2)

    def step(self, ids: Any, y: Any) -> Any:
        values = [v.value for v in self.weights]
        loss, gradients = jax.value_and_grad(self.loss)(values, ids, y)
        self.optimizer.apply(gradients, self.weights)
        return loss

    def evaluate(self, ids: Any, y: Any) -> Any:
        return self.loss([v.value for v in self.weights], ids, y)


def _batches() -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    ids = np.minimum(random.zipf(1.3, (STEPS, BATCH, 3)) * 11, ROWS - 1).astype(np.int32)
    return [(a, (a.sum(1, keepdims=True) % 5).astype(np.float32)) for a in ids]


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "SGD": lambda: keras.optimizers.SGD(0.5),
    "Adagrad": lambda: keras.optimizers.Adagrad(0.3),
    "Ftrl": lambda: keras.optimizers.Ftrl(0.3),
    "clipped": lambda: keras.optimizers.Adagrad(0.3, clipvalue=0.01),
    "Adam": lambda: keras.optimizers.Adam(0.01),
}
# What does not leave rows without a gradient alone, or reads all of them.
WHOLE = {("Adam", _once), ("Ftrl", _once), ("SGD", _regularized), ("SGD", _ids_of_rows)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "use", "parts"),
    always(
        (
            (name, use, parts)
            for name, use in [
                *((name, _once) for name in OPTIMIZERS),
                *(("SGD", use) for use in (_outside, _nearest, _regularized, _ids_of_rows)),
                ("Adagrad", _twice),
            ]
            for parts in (1, 3)
        ),
        lambda case: case[2] == 3 or case[:2] == ("SGD", _once),
    ),
)
def test_rows_travel_and_numbers_are_those_of_one_device(
    cluster: Any, sent: list[int], name: str, use: Use, parts: int
) -> None:
    alone = ls.distribute.OneDeviceStrategy("cpu:0")
    with alone.scope():
        expected = _Training(OPTIMIZERS[name], use)
    losses = [float(alone.run(expected.step, args=batch)) for batch in _batches()]
    coordinator = make_coordinator(cluster, partitioners.FixedShardsPartitioner(parts), staleness=0)
    with coordinator.strategy.scope():
        training = _Training(OPTIMIZERS[name], use)

    def step(ids: Any, y: Any) -> Any:
        return coordinator.strategy.run(training.step, args=(ids, y))

    results = coordinator.fetch([coordinator.schedule(step, args=batch) for batch in _batches()])
    last = coordinator.schedule(training.evaluate, args=_batches()[0]).fetch()
    coordinator.join()
    largest = max(sent)
    np.testing.assert_allclose(results, losses, rtol=2e-5, atol=1e-6)
    for ours, theirs in zip(
        (*training.weights, *training.optimizer.variables),
        (*expected.weights, *expected.optimizer.variables),
        strict=True,
    ):
        np.testing.assert_allclose(ours.value, theirs.value, rtol=2e-5, atol=2e-6, err_msg=theirs.path)
    np.testing.assert_allclose(last, alone.run(expected.evaluate, args=_batches()[0]), rtol=2e-5)
    if (name, use) in WHOLE:
        assert largest > 500_000
    else:
        assert largest < 20_000, largest


def _layers_and_variables(strategy: Any) -> Callable[[Any], Any]:
    """Returns a step of TensorFlow's names: an `Embedding`, and a variable that `tf.nn.embedding_lookup` reads."""
    keras.utils.set_random_seed(4)
    with strategy.scope():
        layers = [tf.keras.layers.Embedding(ROWS, COLUMNS), tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)]
        model = tf.keras.Sequential([tf.keras.Input((3,), dtype="int32"), *layers])
        table = tf.Variable(np.full((ROWS, COLUMNS), 0.1, np.float32))
        optimizer = tf.keras.optimizers.Adagrad(0.1)

    def replica_step(ids: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = model(ids, training=True) + tf.reduce_mean(tf.nn.embedding_lookup(table, ids))
            loss = tf.reduce_mean(outputs * outputs)
        variables = [*model.trainable_variables, table]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return tf.function(lambda ids: strategy.run(replica_step, args=(ids,)))


@pytest.mark.slow
def test_layers_and_lookups_of_tensorflow_programs_have_windows(cluster: Any, sent: list[int]) -> None:
    step = _layers_and_variables(ls.distribute.OneDeviceStrategy("cpu:0"))
    losses = [float(np.asarray(step(ids))) for ids, _ in _batches()]
    coordinator = make_coordinator(cluster, staleness=0)
    step = _layers_and_variables(coordinator.strategy)
    results = coordinator.fetch([coordinator.schedule(step, args=(ids,)) for ids, _ in _batches()])
    coordinator.join()
    np.testing.assert_allclose(results, losses, rtol=2e-5, atol=1e-6)
    assert max(sent) < 20_000
