"""Programs that follow one trajectory on any number of replicas: run on every layout."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lockstep as ls

Strategy = ls.distribute.Strategy
Arrays = dict[str, np.ndarray]
BATCH = 8


def context() -> ls.distribute.ReplicaContext:
    """The replica whose function runs."""
    found = ls.distribute.get_replica_context()
    assert found is not None
    return found


def dataset(rows: int) -> ls.data.Dataset:
    """Random batches."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(rows, 3)).astype("float32"), rng.normal(size=(rows, 1)).astype("float32")
    return ls.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)


def plain(strategy: Strategy, rows: int, averages: bool) -> Arrays:
    """A loop in plain jax and optax.

    Args:
        strategy: Where.
        rows: Of the data.
        averages: Whether each replica takes the mean over its examples and gradients are averaged, or losses are sums
            divided by the number of all examples and gradients are added up.
    """
    import optax  # Beside jax, what only this program needs.

    optimizer = optax.adam(0.05)

    def step(params: Any, state: Any, batch: Any) -> Any:
        (x, y), replica = batch, context()
        count = replica.all_reduce("sum", x.shape[0])

        def loss_of(params: Any) -> Any:
            squares = (jnp.tanh(x @ params["w"] + params["b"]) - y) ** 2
            return squares.mean() if averages else squares.sum() / count

        loss, gradients = jax.value_and_grad(loss_of)(params)
        gradients = replica.average_gradients(gradients) if averages else replica.all_reduce("sum", gradients)
        updates, state = optimizer.update(gradients, state)
        loss = jnp.where(x.shape[0], loss * x.shape[0] / count, 0) if averages else loss
        return optax.apply_updates(params, updates), state, loss

    params: Any = {"w": jnp.full((3, 1), 0.1), "b": jnp.zeros(1)}
    state = optimizer.init(params)
    losses: list[Any] = []
    for _ in range(2):
        for batch in strategy.experimental_distribute_dataset(dataset(rows)):
            params, state, loss = strategy.run(step, args=(params, state, batch))
            losses.append(np.asarray(strategy.reduce("SUM", loss, axis=None)))
    return {name: np.asarray(v) for name, v in params.items()} | {"losses": np.array(losses)}


def keras_model(strategy: Strategy, rows: int) -> Arrays:
    """A Keras model, optimizer and metric, built in the first call of a replica's function."""
    import keras

    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
        optimizer, metric = keras.optimizers.Adam(0.05), keras.metrics.MeanSquaredError()

    def step(batch: Any) -> None:
        x, y = batch
        if not model.built:
            model.build((None, 3))
        trainable, rest = ([v.value for v in vs] for vs in (model.trainable_variables, model.non_trainable_variables))

        def loss_of(values: Any) -> Any:
            outputs, _ = model.stateless_call(values, rest, x)
            return jnp.sum((outputs - y) ** 2) / BATCH, outputs

        gradients, outputs = jax.grad(loss_of, has_aux=True)(trainable)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        metric.update_state(y, outputs)

    results: list[float] = []
    for _ in range(2):
        for batch in strategy.experimental_distribute_dataset(dataset(rows)):
            strategy.run(step, args=(batch,))
        results.append(float(metric.result()))
        metric.reset_state()
    weights = {f"{i} {v.name}": np.asarray(v.value) for i, v in enumerate(model.variables)}
    return weights | {"metric": np.array(results), "iterations": np.asarray(optimizer.iterations.value)}


def tapes(strategy: Strategy, rows: int) -> Arrays:
    """TensorFlow's way: a tape, a model that its first call builds, and gradients that an optimizer adds up."""
    import keras

    import lockstep.compat.tensorflow as tf

    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
        optimizer, metric = tf.keras.optimizers.Adam(0.05), tf.keras.metrics.Mean()

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            each = tf.reduce_sum((model(x, training=True) - y) ** 2, axis=1)
            loss = tf.nn.compute_average_loss(each, global_batch_size=BATCH)
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), 1e9)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        metric.update_state(each)
        return loss

    losses: list[Any] = []
    for _ in range(2):
        for batch in strategy.experimental_distribute_dataset(dataset(rows)):
            losses.append(np.asarray(strategy.reduce("SUM", strategy.run(step, args=batch), axis=None)))
    weights = {f"{i} {v.name}": np.asarray(v.value) for i, v in enumerate(model.variables)}
    return weights | {"metric": np.asarray(metric.result()), "losses": np.array(losses)}


def values(strategy: Strategy) -> Arrays:
    """Reductions and gatherings of four replicas' values, also of different sizes."""

    def of(function: Any) -> Any:
        return strategy.experimental_distribute_values_from_function(
            lambda c: function(c.replica_id_in_sync_group, c.num_replicas_in_sync)
        )

    rows = of(lambda i, n: np.arange(i * (n - i), dtype="int32") + 10 * i)
    scalars = of(lambda i, n: jnp.float32(i + 0.5))
    columns = of(lambda i, n: np.full((2, i), i, "float32"))
    keys = strategy.run(lambda: jax.random.fold_in(jax.random.key(0), context().replica_id_in_sync_group))
    own = strategy.run(lambda key: jax.random.normal(key, (3,)), args=(keys,))
    short = strategy.run(lambda r, s: (r[:1], context().all_gather(r, 0), r.sum() + s), args=(rows, scalars))
    found = {
        "sum of rows": strategy.reduce("SUM", rows, axis=0),
        "mean of rows": strategy.reduce("MEAN", rows, axis=-1),
        "sum": strategy.reduce(ls.distribute.ReduceOp.SUM, {"nested": [scalars]}, axis=None)["nested"][0],
        "rows": strategy.gather(rows, axis=0),
        "columns": strategy.gather(columns, axis=1),
        "random": strategy.gather(own, axis=0),
        "first rows": strategy.gather(short[0], axis=0),
        "all rows": short[1],
        "own sums": strategy.reduce("SUM", short[2], axis=None),
        "unknown shapes": strategy.gather(_unlabelled(own), axis=0),
    }
    return {name: np.asarray(v) for name, v in found.items()}


def _unlabelled(value: Any) -> Any:
    """The same values, of which only this process' shapes are known."""
    return ls.distribute.PerReplica(value.values)


def debugged(strategy: Strategy) -> Arrays:
    """Replicas one after the other; what they do together reaches those of other processes."""

    def step(x: Any, w: Any) -> Any:
        replica = context()
        number = replica.replica_id_in_sync_group
        gradient = jax.grad(lambda w: replica.all_reduce("sum", (x * w).sum()) * (number + 1.0))(w)
        assert isinstance(int(number), int)
        mean = replica.merge_call(lambda s, v: s.reduce("MEAN", v, axis=None), args=(gradient,))
        return replica.all_gather(x, 0), gradient, mean

    ((x, _),) = strategy.experimental_distribute_dataset(dataset(6))
    found = strategy.experimental_run_for_debugging(step, args=(x, jnp.float32(2)))
    return {
        "rows": np.asarray(found[0]),
        "gradients": np.asarray(strategy.reduce("SUM", found[1], axis=None)),
        "mean": np.asarray(found[2]),
    }
