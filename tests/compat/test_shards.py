"""Variables that a strategy's partitioner divides: programs see shards where TensorFlow has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError

ROWS, COLUMNS = 9, 4


def _resolver(servers: int) -> Any:
    # Nobody listens there: variables are made before a coordinator connects.
    addresses = {"worker": ["localhost:1"], "ps": [f"localhost:{2 + n}" for n in range(servers)]}
    return tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(addresses), rpc_layer="grpc")


def _make(parts: int, servers: int = 2) -> tuple[Any, Any, Any]:
    # Names of layers are counted.
    keras.backend.clear_session()
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(parts)
    with tf.distribute.ParameterServerStrategy(_resolver(servers), variable_partitioner=partitioner).scope():
        inputs = tf.keras.layers.Input(shape=(3,), dtype=tf.int64)
        table = tf.keras.layers.Embedding(ROWS, COLUMNS)
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(tf.reduce_mean(table(inputs), axis=1)))
        own = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], name="own")
    return table, model, own


# What TensorFlow 2.15.1 prints of the same program, but for the name of the whole bias.
@pytest.mark.slow
def test_weights_are_those_of_tensorflow() -> None:
    table, model, own = _make(2)
    assert [(w.name, tuple(w.shape), w.device) for w in table.weights] == [
        ("embedding/embeddings/part_0:0", (5, 4), "/job:ps/replica:0/task:0/device:CPU:0"),
        ("embedding/embeddings/part_1:0", (4, 4), "/job:ps/replica:0/task:1/device:CPU:0"),
    ]
    assert [tuple(w.shape) for w in model.weights] == [(5, 4), (4, 4), (2, 1), (2, 1), (1,)]
    assert [w.numpy().tolist() for w in own.variables] == [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]]
    assert tuple(own.shape) == (3, 2) and [tuple(w.shape) for w in table.embeddings.variables] == [(5, 4), (4, 4)]
    assert tf.nn.embedding_lookup(own, [2, 0]).numpy().tolist() == [[5.0, 6.0], [1.0, 2.0]]
    assert (own + 1.0).numpy().tolist() == [[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]
    own.assign([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
    assert own.variables[1].numpy().tolist() == [[5.0, 7.0]]
    table.weights[1].assign(tf.ones((4, 4)))
    assert tf.convert_to_tensor(table.embeddings).numpy()[5:].sum() == 16.0
    assert not hasattr(model.layers[-1].bias, "variables")


def test_shards_are_computed_with_and_looked_up_together() -> None:
    table, _, own = _make(2)
    first, second = own.variables
    assert tf.reduce_sum(first).numpy() == 10.0 and (first * 2.0)[0, 1] == 4.0 and (1.0 - second)[0, 0] == -4.0
    second.assign_add([[1.0, 1.0]]).assign_sub([[0.5, 0.0]])
    np.testing.assert_array_equal(own.numpy()[2], [5.5, 7.0])
    np.testing.assert_array_equal(tf.nn.embedding_lookup(own.variables, [1]).numpy(), [[3.0, 4.0]])
    assert table.weights[0] is table.weights[0] and len(first) == 2 and first.trainable
    assert "own/part_0" in repr(first)
    with pytest.raises(ArgumentError, match="all shards of a variable"):
        tf.nn.embedding_lookup([second, first], [1])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.embedding_lookup(own, [1]))
    with pytest.raises(ArgumentError, match=r"the shard own/part_0:0"):
        tape.gradient(loss, own.variables)


@pytest.mark.slow
def test_keras_and_what_it_saves_have_whole_variables(tmp_path: Path) -> None:
    table, model, _ = _make(2)
    assert [w.shape for w in model.get_weights()] == [(ROWS, COLUMNS), (COLUMNS, 1), (1,)]
    assert len(model.trainable_variables) == 3 and model.count_params() == ROWS * COLUMNS + COLUMNS + 1
    model.save_weights(tmp_path / "m.weights.h5")
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    expected = table.get_weights()[0]
    # Into another number of shards, and of servers.
    for restore in (
        lambda m: m.load_weights(tmp_path / "m.weights.h5"),
        lambda m: tf.train.Checkpoint(model=m).restore(path),
    ):
        other, loaded, _ = _make(3, servers=4)
        restore(loaded)
        np.testing.assert_array_equal(np.concatenate([w.numpy() for w in other.weights]), expected)
        # Of three ranges on four servers, which has which depends on the other variables.
        assert [w.device for w in other.weights] == ["/job:ps"] * 3


def test_without_a_partitioner_or_a_scope_variables_are_whole() -> None:
    table, _, own = _make(1)
    assert len(table.weights) == 1 and isinstance(table.weights[0], keras.Variable)
    assert not hasattr(own, "variables")
    _make(2)
    alone = tf.keras.layers.Embedding(ROWS, COLUMNS)
    alone.build()
    assert len(alone.weights) == 1
