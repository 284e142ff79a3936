"""A program for TensorFlow's parameter servers, with its import line changed: text, tapes, functions of tf.function."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from tests.support.ports import free_ports

WORDS = ["ant", "bee", "cat", "dog", "elk"]
WORKERS, SERVERS = 2, 2


@pytest.fixture(scope="module")
def strategy() -> Any:
    addresses = [f"localhost:{port}" for port in free_ports(WORKERS + SERVERS)]
    cluster = tf.train.ClusterSpec({"worker": addresses[:WORKERS], "ps": addresses[WORKERS:]})
    config = tf.compat.v1.ConfigProto()
    config.inter_op_parallelism_threads = 64  # No fewer than there are cores.
    for index in range(WORKERS):
        tf.distribute.Server(cluster, job_name="worker", task_index=index, config=config, protocol="grpc")
    for index in range(SERVERS):
        tf.distribute.Server(cluster, job_name="ps", task_index=index, protocol="grpc")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(1 << 10, max_shards=SERVERS)
    return tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)


def _examples() -> dict[str, Any]:
    random.seed(1)
    chosen = [random.sample(WORDS, 3) for _ in range(64)]
    return {"words": chosen, "label": [["yes"] if "cat" in words else ["no"] for words in chosen]}


@pytest.mark.slow
def test_a_loop_of_its_own(strategy: Any) -> None:
    tf.random.set_seed(0)
    with strategy.scope():
        words = tf.keras.layers.StringLookup(vocabulary=WORDS, mask_token=None)
        labels = tf.keras.layers.StringLookup(vocabulary=["no", "yes"], num_oov_indices=0, mask_token=None)
        inputs = tf.keras.layers.Input(shape=(3,), dtype=tf.int32, name="ids")
        table = tf.keras.layers.Embedding(input_dim=len(WORDS) + 1, output_dim=128)
        outputs = tf.keras.layers.Dense(1, activation="sigmoid", kernel_regularizer=tf.keras.regularizers.L2(1e-4))(
            tf.reduce_mean(table(inputs), axis=1)
        )
        model = tf.keras.Model({"ids": inputs}, outputs)
        optimizer = tf.keras.optimizers.legacy.RMSprop(learning_rate=0.05)
        accuracy = tf.keras.metrics.Accuracy()
        steps_done = tf.Variable(0, dtype=tf.int32, trainable=False)

    def dataset_fn(_: Any) -> Any:
        examples = tf.data.Dataset.from_tensor_slices(_examples())
        looked_up = examples.map(lambda e: ({"ids": words(e["words"])}, labels(e["label"])))
        return looked_up.shuffle(64).batch(16).repeat()

    @tf.function
    def step_fn(iterator: Any) -> Any:
        def replica_fn(features: Any, target: Any) -> Any:
            with tf.GradientTape() as tape:
                predicted = model(features, training=True)
                losses = tf.keras.losses.BinaryCrossentropy(reduction=tf.keras.losses.Reduction.NONE)(target, predicted)
                loss = tf.nn.compute_average_loss(losses)
                if model.losses:
                    loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            accuracy.update_state(target, tf.cast(tf.greater(predicted, 0.5), tf.int64))
            steps_done.assign_add(1)
            return loss

        total = 0.0
        for _ in range(2):  # Two steps in one function.
            features, target = next(iterator)
            total += strategy.reduce(
                tf.distribute.ReduceOp.SUM, strategy.run(replica_fn, args=(features, target)), axis=None
            )
        return total / 2

    # As in TensorFlow's tutorial: the partitioner has divided the table.
    assert len(table.weights) == 2
    assert table.weights[0].shape == table.weights[1].shape == (3, 128)
    devices = [weight.device for weight in table.weights]
    assert devices == [f"/job:ps/replica:0/task:{n}/device:CPU:0" for n in range(SERVERS)]
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    @tf.function
    def per_worker_dataset_fn() -> Any:
        return strategy.distribute_datasets_from_function(dataset_fn)

    iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))
    first = last = coordinator.schedule(step_fn, args=(iterator,))
    for _ in range(3):
        accuracy.reset_states()
        for _ in range(5):
            last = coordinator.schedule(step_fn, args=(iterator,))
        coordinator.join()
    assert last.fetch() < first.fetch()
    # Shards show what servers have made of the variable.
    shown = np.concatenate([weight.numpy() for weight in table.weights])
    np.testing.assert_array_equal(shown, table.get_weights()[0])
    assert float(accuracy.result()) > 0.9 and coordinator.done()
    assert steps_done.numpy() == optimizer.iterations.numpy() == 2 * 16
    # On the coordinator the model has the weights of the servers.
    ids = words(np.array([["cat", "dog", "elk"], ["ant", "bee", "dog"]]))
    assert (model({"ids": ids}, training=False).numpy() > 0.5).ravel().tolist() == [True, False]


def test_errors_have_tensorflows_classes(strategy: Any) -> None:
    coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
    iterator = iter(coordinator.create_per_worker_dataset(tf.data.Dataset.range(1)))
    draw = tf.function(lambda it: next(it))
    with pytest.raises(tf.errors.OutOfRangeError):
        for _ in range(4):
            coordinator.schedule(draw, args=(iterator,))
        coordinator.join()
    coordinator.join()
    assert issubclass(tf.errors.CancelledError, tf.errors.OpError)
    assert tf.compat.v1.train.Server is tf.distribute.Server


@pytest.mark.slow
def test_fit(strategy: Any) -> None:
    with strategy.scope():
        model = tf.keras.models.Sequential([tf.keras.layers.Dense(4)])
        model.compile(tf.keras.optimizers.legacy.SGD(0.05), loss="mse", steps_per_execution=5)
    x, y = tf.random.uniform((16, 4)), tf.random.uniform((16,))
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(16).repeat().batch(8).prefetch(2)
    history = model.fit(dataset, epochs=2, steps_per_epoch=10, verbose=0).history
    assert history["loss"][1] < history["loss"][0]
    assert int(model.optimizer.iterations) == 20
