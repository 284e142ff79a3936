"""Examples of the reference: strategies, replicas, errors, clusters, checkpoints, own steps."""

import json
import tempfile

import lockstep as ls

# isort: split
import jax
import jax.numpy as jnp
import keras
import numpy as np

ls.config.set_logical_cpu_devices(2)
folder = tempfile.mkdtemp()

# %% Virtual devices of the CPU, right below the imports
ls.config.set_logical_cpu_devices(2)

# %% All devices of this machine
strategy = ls.distribute.MirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(np.ones((10, 3)), np.ones((10, 1)), batch_size=4, verbose=0)

# %% One device
strategy = ls.distribute.OneDeviceStrategy("/cpu:0")
assert strategy.num_replicas_in_sync == 1

# %% The strategy of the scope
strategy = ls.distribute.MirroredStrategy()
with strategy.scope():
    assert ls.distribute.has_strategy()
    assert ls.distribute.get_strategy() is strategy
    assert ls.distribute.in_cross_replica_context()

# %% A function on each replica
strategy = ls.distribute.MirroredStrategy()
dataset = strategy.experimental_distribute_dataset(ls.data.Dataset.range(8).batch(4))


def total(batch):
    replica = ls.distribute.get_replica_context()
    return replica.all_reduce(ls.distribute.ReduceOp.SUM, batch.sum())


for batch in dataset:
    print(strategy.run(total, args=(batch,)))

# %% A pipeline for each worker, with batches for each replica
strategy = ls.distribute.MirroredStrategy()


def make_dataset(context: ls.distribute.InputContext):
    size = context.get_per_replica_batch_size(global_batch_size=4)
    return ls.data.Dataset.range(8).shard(context.num_input_pipelines, context.input_pipeline_id).batch(size)


distributed = strategy.distribute_datasets_from_function(make_dataset)

# %% Gradients in bfloat16
options = ls.distribute.CommunicationOptions(gradient_dtype="bfloat16")

# %% Which way sums are made
options = ls.distribute.CommunicationOptions(implementation=ls.distribute.CommunicationImplementation.RING)

# %% Replicas that train apart for some steps
strategy = ls.distribute.MirroredStrategy(local_steps=ls.distribute.LocalSteps(8))

# %% An explicit way to add up
strategy = ls.distribute.MirroredStrategy(cross_device_ops=ls.distribute.ReductionToOneDevice())

# %% Sums over groups of devices
strategy = ls.distribute.MirroredStrategy(cross_device_ops=ls.distribute.HierarchicalCopyAllReduce())

# %% A cluster
cluster = ls.cluster_resolver.ClusterSpec({"worker": ["host1:2222", "host2:2222"]})
assert cluster.num_tasks("worker") == 2

# %% A cluster described in the program
cluster = ls.cluster_resolver.ClusterSpec({"worker": ["host1:2222", "host2:2222"]})
resolver = ls.cluster_resolver.SimpleClusterResolver(cluster, task_type="worker", task_id=1)
assert resolver.task_id == 1

# %% An error of any kind, and its page
try:
    ls.data.Dataset.range(8).batch(0)
except ls.errors.LockstepError as error:
    print(error, error.page)

# %% An argument that is wrong
try:
    ls.data.Dataset.range(8).batch(0)
except ls.errors.ArgumentError as error:
    assert isinstance(error, ValueError)

# %% A cluster whose description is wrong
try:
    ls.cluster_resolver.ClusterSpec({"worker": ["host1"]})
except ls.errors.ClusterSpecError as error:
    print(error)

# %% Data that kept another number of elements
try:
    list(ls.data.Dataset.range(3).assert_cardinality(4))
except ls.errors.CardinalityError as error:
    print(error)

# %% A step of your own
strategy = ls.distribute.MirroredStrategy()


def step(state, batch):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((batch * w - 1.0) ** 2))(state)
    return state - 0.1 * gradient, {"loss": loss}


program = ls.training.Program(step, strategy)
numbers = ls.data.Dataset.from_tensor_slices(np.ones(8, "float32")).batch(4)
state = program.fit(jnp.float32(0.0), numbers, epochs=2, verbose=0)
assert program.history["loss"][1] < program.history["loss"][0]

# %% A function after every hundredth step
report = ls.training.Every(100, lambda training, logs: print(training.step, logs["loss"]))


# %% A compiled function
@ls.function
def double(x):
    return x * 2


assert double(jnp.ones(2)).sum() == 4

# %% Backups of a training
backup = ls.callbacks.BackupAndRestore(f"{folder}/backup", save_freq=500)

# %% The best weights
best = ls.callbacks.ModelCheckpoint(f"{folder}/best.weights.h5", save_weights_only=True, save_best_only=True)

# %% Training ends where a loss is not finite
watch = ls.callbacks.NonFinite()

# %% A callback on the chief alone
log = ls.callbacks.OnChief(keras.callbacks.CSVLogger(f"{folder}/log.csv"))

# %% Event files for TensorBoard
board = ls.callbacks.TensorBoard(f"{folder}/logs")

# %% Checkpoints that are whole or absent
with ls.checkpoint.CheckpointStore(f"{folder}/model") as store:
    store.save(10, {"dense/kernel": np.ones((3, 1))})
prefix = ls.checkpoint.latest_checkpoint(f"{folder}/model")
assert ls.checkpoint.step_of(prefix) == 10
assert ls.checkpoint.load(prefix).arrays["dense/kernel"].shape == (3, 1)
print(ls.checkpoint.list_variables(prefix))
print(ls.checkpoint.load_variable(prefix, "dense/kernel"))

# %% All checkpoints of a directory
print(ls.checkpoint.all_checkpoints(f"{folder}/model"))

# %% TF_CONFIG, as a worker reads it
text = json.dumps({"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 1}})
print("TF_CONFIG=" + text)

# %% The version, and what is in the package
print(ls.__version__)


# %% The class of all strategies
def replicas_of(strategy: ls.distribute.Strategy) -> int:
    return strategy.num_replicas_in_sync


assert replicas_of(ls.distribute.MirroredStrategy()) == 2

# %% Several machines: the same program on each, with TF_CONFIG; without it, a cluster of one
strategy = ls.distribute.MultiWorkerMirroredStrategy()
assert strategy.num_replicas_in_sync == 2

# %% Batches as numpy arrays, not put on devices
strategy = ls.distribute.MirroredStrategy()
options = ls.distribute.InputOptions(experimental_fetch_to_device=False)
distributed = strategy.experimental_distribute_dataset(ls.data.Dataset.range(8).batch(4), options)
assert isinstance(distributed, ls.distribute.DistributedDataset)
iterator = iter(distributed)
assert isinstance(iterator, ls.distribute.DistributedIterator)
position = iterator.get_state()
batch = next(iterator)
iterator.set_state(position)

# %% Values of each replica
strategy = ls.distribute.MirroredStrategy()
numbers = strategy.experimental_distribute_values_from_function(lambda context: context.replica_id_in_sync_group)
assert isinstance(numbers, ls.distribute.DistributedValues)
print(strategy.experimental_local_results(numbers))

# %% A value that differs, and one that is the same on all
strategy = ls.distribute.MirroredStrategy()


def numbers_of_replicas():
    context = ls.distribute.get_replica_context()
    assert isinstance(context, ls.distribute.ReplicaContext)
    return jnp.float32(context.replica_id_in_sync_group), jnp.float32(context.num_replicas_in_sync)


own, count = strategy.run(numbers_of_replicas)
assert isinstance(own, ls.distribute.PerReplica)
assert strategy.reduce(ls.distribute.ReduceOp.SUM, own, axis=None) == 1.0

# %% State that a step overwrites in place
strategy = ls.distribute.MirroredStrategy()
options = ls.distribute.RunOptions(donate_argnums=(0,))
state = strategy.run(lambda w, x: w - 0.1 * x, (jnp.zeros(3), jnp.ones(3)), options=options)

# %% The value that all replicas have
mirrored = ls.distribute.Mirrored(jnp.ones(3), count=2)
assert len(mirrored.values) == 2


# %% Sums by NCCL: it needs GPUs
def on_gpus():
    return ls.distribute.MirroredStrategy(cross_device_ops=ls.distribute.NcclAllReduce(num_packs=1))


# %% A choice of the way sums are made
def strategy_with(operations: ls.distribute.CrossDeviceOps) -> ls.distribute.Strategy:
    return ls.distribute.MirroredStrategy(cross_device_ops=operations)


# %% Programs of TensorFlow's that name the experimental module
options = ls.distribute.experimental.CommunicationOptions(
    bytes_per_pack=50 * 1024 * 1024,
    timeout_seconds=120.0,
    implementation=ls.distribute.experimental.CommunicationImplementation.NCCL,
)

# %% The strategy of several machines by its first name
strategy = ls.distribute.experimental.MultiWorkerMirroredStrategy(
    ls.distribute.experimental.CollectiveCommunication.AUTO
)


# %% A value for each replica, by its number
def value_fn(context: ls.distribute.experimental.ValueContext):
    return jnp.float32(context.replica_id_in_sync_group)


values = ls.distribute.MirroredStrategy().experimental_distribute_values_from_function(value_fn)

# %% Random numbers for this replica's rows: the same for any number of replicas
strategy = ls.distribute.MirroredStrategy()


def noise(rows):
    return ls.random.for_batch(jax.random.normal, jax.random.key(0), rows.shape)


(batch,) = strategy.experimental_distribute_dataset(ls.data.Dataset.from_tensor_slices(np.ones((4, 3))).batch(4))
drawn = strategy.gather(strategy.run(noise, args=(batch,)), axis=0)
np.testing.assert_array_equal(drawn, jax.random.normal(jax.random.key(0), (4, 3)))

# %% Random numbers that differ between replicas
strategy = ls.distribute.MirroredStrategy()
drawn = strategy.run(lambda: jax.random.normal(ls.random.replica_key(jax.random.key(0)), ()))

# %% Which rows of the global batch a replica has
strategy = ls.distribute.MirroredStrategy()
rows = strategy.gather(strategy.run(lambda: ls.random.rows_of_batch(2)), axis=0)
assert rows.tolist() == [0, 1, 2, 3]


# %% A function that is compiled once for a signature
@ls.training.function(input_signature=[ls.data.TensorSpec([None], "float32")])
def mean(x):
    return jnp.mean(x)


assert mean(np.ones(3, "float32")) == 1.0


# %% A training under way, in a callback of `Program.fit`
def stop_when_good(training: ls.training.Training, logs):
    if logs["loss"] < 0.1:
        training.stop_training = True


callback = ls.training.Every(100, stop_when_good)

# %% Weights & Biases, offline
logger = ls.callbacks.WeightsAndBiases("digits", name="first", config={"lr": 0.1}, mode="offline", log_dir=folder)

# %% MLflow, in a database of this machine
logger = ls.callbacks.MLflow("digits", params={"lr": 0.1}, tracking_uri=f"sqlite:///{folder}/mlflow.db")

# %% Metrics for Prometheus: step time, waits, heartbeats, at http://127.0.0.1:9464
metrics = ls.callbacks.Prometheus(port=9464)


# %% Several workers, from a cell of a notebook
def train(size):
    strategy = ls.distribute.MultiWorkerMirroredStrategy()
    return strategy.num_replicas_in_sync * size


def in_a_notebook():
    return ls.launch(train, workers=2, args=(32,))


# %% How much memory a step will take on each device, before anything is trained
strategy = ls.distribute.MirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(1000), keras.layers.Dense(1)])
    model.compile("adam", "mse")
batch = jax.ShapeDtypeStruct((4096, 64), "float32"), jax.ShapeDtypeStruct((4096, 1), "float32")
estimate = ls.training.estimate_memory(model, *batch)
assert isinstance(estimate, ls.training.MemoryEstimate)
print(estimate)
