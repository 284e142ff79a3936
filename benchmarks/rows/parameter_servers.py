"""Row 9: a large embedding and an MLP on parameter servers, with two workers of this machine."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.case import OURS, TENSORFLOW, Bar, Case, Side
from benchmarks.programs.server_jobs import Cpu, cluster_of, result_of, started

_MODULE, _RATE, _CPU = "benchmarks.rows.parameter_servers", "steps/s", "CPU ms/step"
# A million rows of 16 floats are 64 MB, Criteo's 26 categories and 13 numbers an example.
_ROWS, _WIDTH, _IDS, _NUMBERS, _BATCH = 1_000_000, 16, 26, 13, 256
_UNITS = (256, 128)
_EPOCH = 200
_WORKERS = 2


def _examples() -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Returns ids that are log-uniform, as words and users are: 3,000 to 4,500 different ones a batch."""
    random, count = np.random.default_rng(0), 64 * _BATCH
    ids = (np.exp(random.random((count, _IDS)) * np.log(_ROWS)) - 1).astype(np.int32)
    numbers = random.standard_normal((count, _NUMBERS)).astype(np.float32)
    return (ids, numbers), random.integers(0, 2, (count, 1)).astype(np.float32)


def _dataset(data: Any) -> Any:
    dataset = data.Dataset.from_tensor_slices(_examples()).repeat()
    return dataset.batch(_BATCH, drop_remainder=True).prefetch(4)


def _model(keras: Any) -> Any:
    ids, numbers = keras.Input((_IDS,), dtype="int32"), keras.Input((_NUMBERS,))
    rows = keras.layers.Flatten()(keras.layers.Embedding(_ROWS, _WIDTH, name="table")(ids))
    hidden = keras.layers.Concatenate()([rows, numbers])
    for units in _UNITS:
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
    return keras.Model([ids, numbers], keras.layers.Dense(1)(hidden))


def _optimizer(optimizers: Any, name: str) -> Any:
    return {"adagrad": lambda: optimizers.Adagrad(0.01), "adam": lambda: optimizers.Adam(1e-3)}[name]()


def _pids(options: Mapping[str, Any]) -> list[int]:
    path, end = Path(options["pids"]), time.monotonic() + 60
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return list(json.loads(path.read_text()).values())


def _fit(keras: Any, model: Any, options: Mapping[str, Any], pids: list[int], data: Any, is_chief: bool) -> Any:
    """Fits for an epoch of warm-up, and for two more or as many as take the time; returns the rates."""
    ends: list[float] = []
    cpu: list[Cpu] = []

    class Clock(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            ends.append(time.perf_counter())
            if epoch == 0 and is_chief:
                cpu.append(Cpu(pids))
            elif len(ends) > 2 and ends[-1] - ends[0] > options["seconds"]:
                self.model.stop_training = True

    model.fit(data, epochs=1000, steps_per_epoch=_EPOCH, verbose=0, callbacks=[Clock()] if is_chief else [])
    if not is_chief:
        return {}
    steps = _EPOCH * (len(ends) - 1)
    return {_RATE: steps / (ends[-1] - ends[0]), _CPU: cpu[0].milliseconds(steps)}


# ---- lockstep ----


def lockstep(options: Mapping[str, Any]) -> dict[str, float]:
    """Two workers, of which worker 0 is the chief, and servers."""
    cluster = cluster_of(False, _WORKERS, options["servers"])
    with started(cluster, ("ps", "worker"), _MODULE, "lockstep_task", options) as tasks:
        return result_of(tasks, "worker0")


def lockstep_task(options: Mapping[str, Any]) -> dict[str, float]:
    """`Model.fit` on every task."""
    import lockstep as ls  # isort: split
    import keras

    strategy = ls.distribute.ParameterServerStrategy(mode=options.get("mode", "async"))
    with strategy.scope():
        model = _model(keras)
        model.compile(_optimizer(keras.optimizers, options["optimizer"]), _loss(keras))
    return _fit(keras, model, options, _pids(options), _dataset(ls.data), strategy.is_chief)


def _loss(keras: Any) -> Any:
    return keras.losses.BinaryCrossentropy(from_logits=True)


# ---- TensorFlow ----


def _tensorflow() -> Any:
    # Without this TensorFlow's tasks wait for each other's channels for minutes.
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    return tf


def tensorflow_server(options: Mapping[str, Any]) -> dict[str, float]:
    """A worker or a server of TensorFlow's; it never ends by itself."""
    del options
    tf = _tensorflow()
    config = json.loads(os.environ["TF_CONFIG"])
    # As TensorFlow's guide has it: fewer threads than that stall on small machines.
    settings = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=max(4, _WORKERS + 1))
    task = config["task"]
    cluster = tf.train.ClusterSpec(config["cluster"])
    server = tf.distribute.Server(cluster, task["type"], task["index"], protocol="grpc", config=settings)
    server.join()
    return {}


def tensorflow(options: Mapping[str, Any]) -> dict[str, float]:
    """ClusterCoordinator or `Model.fit` on a chief, with two workers and servers."""
    cluster = cluster_of(True, _WORKERS, options["servers"])
    with started(cluster, ("ps", "worker"), _MODULE, "tensorflow_server", options) as tasks:
        tf = _tensorflow()
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(cluster), rpc_layer="grpc")
        partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(max_shards=options["servers"])
        strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
        pids = [task.pid for task in tasks.values()]
        return _BY_PROGRAM[options["program"]](tf, strategy, options, pids)


def _coordinated(tf: Any, strategy: Any, options: Mapping[str, Any], pids: list[int]) -> dict[str, float]:
    """A custom loop: closures of some steps each, scheduled on whichever worker is free."""
    coordinator, per_closure = tf.distribute.coordinator.ClusterCoordinator(strategy), options["steps"]
    with strategy.scope():
        # The optimizers before Keras 2.11: the faster of TensorFlow's two.
        model, optimizer = _model(tf.keras), _optimizer(tf.keras.optimizers.legacy, options["optimizer"])
    loss = tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")

    def replica(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(loss(y, model(x, training=True)))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @tf.function
    def closure(iterator: Any) -> None:
        for _ in range(per_closure):
            strategy.run(replica, args=next(iterator))

    iterator = iter(coordinator.create_per_worker_dataset(lambda: _dataset(tf.data)))

    def run(steps: int) -> None:
        for _ in range(steps // per_closure):
            coordinator.schedule(closure, args=(iterator,))
        coordinator.join()

    run(40)
    cpu, begin, steps = Cpu(pids), time.perf_counter(), 0
    # In pieces, as Adam makes five steps a second and Adagrad two hundred.
    while (seconds := time.perf_counter() - begin) < options["seconds"]:
        run(40)
        steps += 40
    return {_RATE: steps / seconds, _CPU: cpu.milliseconds(steps)}


def _keras_fit(tf: Any, strategy: Any, options: Mapping[str, Any], pids: list[int]) -> dict[str, float]:
    with strategy.scope():
        model = _model(tf.keras)
        optimizer = _optimizer(tf.keras.optimizers.legacy, options["optimizer"])
        model.compile(optimizer, _loss(tf.keras), steps_per_execution=options["steps"])
    creator = tf.keras.utils.experimental.DatasetCreator(lambda context: _dataset(tf.data))
    return _fit(tf.keras, model, options, pids, creator, True)


_BY_PROGRAM = {"coordinator": _coordinated, "fit": _keras_fit}


def estimator(options: Mapping[str, Any]) -> dict[str, float]:
    """TensorFlow's Estimator between graphs: chief and worker train, with servers."""
    cluster = cluster_of(True, _WORKERS - 1, options["servers"])
    with started(cluster, ("ps", "worker", "chief"), _MODULE, "estimator_task", options) as tasks:
        return result_of(tasks, "chief0")


def estimator_task(options: Mapping[str, Any]) -> dict[str, float]:
    """A task of it; the chief measures, and ends the job."""
    tf = _tensorflow()
    v1, measured = tf.compat.v1, dict[str, float]()
    servers, pids = options["servers"], _pids(options)

    def input_fn() -> Any:
        return _dataset(tf.data).map(lambda x, y: ({"ids": x[0], "numbers": x[1]}, y))

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        partitioner = v1.fixed_size_partitioner(servers) if servers > 1 else None
        initializer = v1.random_uniform_initializer(-0.05, 0.05)
        table = v1.get_variable("table", (_ROWS, _WIDTH), initializer=initializer, partitioner=partitioner)
        rows = v1.nn.embedding_lookup(table, features["ids"], partition_strategy="div")
        hidden = tf.concat([tf.reshape(rows, (_BATCH, _IDS * _WIDTH)), features["numbers"]], 1)
        for units in _UNITS:
            hidden = v1.layers.dense(hidden, units, tf.nn.relu)
        logits = v1.layers.dense(hidden, 1)
        loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        optimizers = {"adagrad": v1.train.AdagradOptimizer, "adam": v1.train.AdamOptimizer}
        train_op = optimizers[options["optimizer"]](0.01).minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    class Clock(v1.train.SessionRunHook):
        """Measures from when the worker trains, too: it starts 5 s after the chief."""

        first: float | None = None
        cpu: Cpu | None = None

        def after_run(self, run_context: Any, run_values: Any) -> None:
            now = time.perf_counter()
            self.first = self.first or now
            if self.cpu is None and now - self.first > 12:
                self.cpu, self.begin, self.step = Cpu(pids), now, self._step(run_context)
            elif self.cpu is not None and now - self.begin > options["seconds"]:
                steps = self._step(run_context) - self.step
                measured.update({_RATE: steps / (now - self.begin), _CPU: self.cpu.milliseconds(steps)})
                run_context.request_stop()

        def _step(self, run_context: Any) -> int:
            return int(run_context.session.run(v1.train.get_global_step()))

    is_chief = json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "chief"
    config = tf.estimator.RunConfig(model_dir=os.path.join(options["directory"], "model"), save_checkpoints_secs=600)
    specs = tf.estimator.TrainSpec(input_fn, max_steps=10**7, hooks=[Clock()] if is_chief else [])
    trained = tf.estimator.Estimator(model_fn, config=config)
    tf.estimator.train_and_evaluate(trained, specs, tf.estimator.EvalSpec(input_fn, steps=1))
    return measured


def _case(servers: int, optimizer: str) -> Case:
    common = {"servers": servers, "optimizer": optimizer}
    ten = f"{TENSORFLOW}, ClusterCoordinator, 10 steps a closure"
    one = f"{TENSORFLOW}, ClusterCoordinator, a step a closure"
    fit, between = f"{TENSORFLOW}, Model.fit", f"{TENSORFLOW}, Estimator"
    sides = [Side(OURS, "lockstep", "lockstep", "ours", common)]
    sides += [Side(f"{OURS}, sync", "lockstep", "lockstep", "ours", {**common, "mode": "sync"}, quick=False)]
    sides += [Side(ten, "tensorflow", "tensorflow", options={**common, "program": "coordinator", "steps": 10})]
    bars = [Bar("x ClusterCoordinator, 10 steps a closure", (OURS, _RATE), [(ten, _RATE)], 5.0)]
    if optimizer == "adagrad":
        sides += [
            Side(one, "tensorflow", "tensorflow", options={**common, "program": "coordinator", "steps": 1}),
            Side(fit, "tensorflow", "tensorflow", options={**common, "program": "fit", "steps": 1}),
            Side(between, "estimator", "tensorflow", options=common),
        ]
        bars = [
            Bar("x ClusterCoordinator, 10 steps a closure", (OURS, _RATE), [(ten, _RATE)], 1.4),
            Bar("x step-wise schedule and fit", (OURS, _RATE), [(one, _RATE), (fit, _RATE)], 2.0),
            Bar("x Estimator", (OURS, _RATE), [(between, _RATE)], 1.8),
        ]
    return Case(
        row=9,
        name=f"servers {servers} {optimizer}",
        title=f"Embedding 1M x 16 and MLP, batch {_BATCH}, 2 workers, {servers} parameter server"
        f"{'s' * (servers > 1)}, {optimizer.capitalize()}",
        module=_MODULE,
        metrics={_RATE: "updates of the servers by both workers", _CPU: "of all tasks together"},
        sides=sides,
        bars=bars,
        batch=_BATCH,
    )


CASES = [_case(servers, optimizer) for optimizer in ("adagrad", "adam") for servers in (1, 2)]
