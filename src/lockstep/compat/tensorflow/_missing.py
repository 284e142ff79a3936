"""Messages for TensorFlow's names that this package does not have: each says what to use instead."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from lockstep._messages.reading import pointer

ROOT = "lockstep.compat.tensorflow"
# For names that nobody has written advice for.
_DEFAULT = "lockstep.compat.tensorflow covers what training programs use; see docs/tensorflow_names.md."
_GRAPH = (
    "There are no graphs and sessions, nor placeholders that a feed_dict fills: operations are carried out where they "
    "are written, and JAX compiles Keras' fit, map functions of data sets and Estimator's model_fn by itself. Put what "
    "builds the graph into a model_fn and what is fed into an input_fn of tf.estimator.Estimator, or train a model of "
    "tf.keras; docs/tensorflow.md shows both."
)
_RNN = (
    "Use tf.keras.layers.LSTM or GRU in a model of tf.keras, and tf.keras.estimator.model_to_estimator to train it as "
    "an Estimator; or in a model_fn."
)
GRADIENT = (
    "Use tf.GradientTape, which takes derivatives wherever it is opened: in plain Python, in a tf.function, in "
    "functions of strategy.run. Second derivatives: a tape in a tape, or tape.jacobian. Derivatives of functions: "
    "jax.value_and_grad(loss_fn)(weights), jax.hessian."
)
_TPU = (
    "Use tf.distribute.MirroredStrategy for the TPU cores of one host; MultiWorkerMirroredStrategy for several hosts."
)
_V1_TRAIN = (
    "In a model_fn use the optimizers and hooks that tf.compat.v1.train has here; with Keras, tf.keras.optimizers and "
    "tf.keras.callbacks."
)
_SESSION = "Estimator.train runs the steps of a model_fn, and hooks follow them: tf.estimator.SessionRunHook."
_QUEUE = "Return a tf.data.Dataset from the input_fn."
_WARM = "Pass warm_start_from=tf.estimator.WarmStartSettings(checkpoint) to the Estimator."
_TREES = (
    "Trees are not trained by gradients, which is all that replicas share here. Use DNNLinearCombinedClassifier or "
    "DNNLinearCombinedRegressor on the same columns, or a library of boosted trees."
)
_LITE = (
    "It serves models and does not train them. Save with model.export(path) and convert where TensorFlow is installed."
)

# By TensorFlow's full names, as programs write them.
ADVICE: dict[str, str] = {
    "tf.hessians": GRADIENT,
    "tf.AggregationMethod": GRADIENT,
    "tf.RegisterGradient": GRADIENT,
    "tf.Session": _GRAPH,
    "tf.InteractiveSession": _GRAPH,
    "tf.placeholder": _GRAPH,
    "tf.Graph": _GRAPH,
    "tf.Operation": _GRAPH,
    "tf.get_default_graph": _GRAPH,
    "tf.get_variable": "It is tf.compat.v1.get_variable; or use tf.Variable, or add_weight in a layer of Keras.",
    "tf.variable_scope": "It is tf.compat.v1.variable_scope; or use tf.name_scope, and hold variables in layers.",
    "tf.global_variables_initializer": "Variables have their value from the start; leave it out.",
    "tf.contrib": "It is gone from TensorFlow 2, too. Most of it lives on in tf.keras.",
    "tf.layers": "It is tf.compat.v1.layers; or use tf.keras.layers.",
    "tf.CriticalSection": "Code runs in the order of the program; leave it out.",
    "tf.queue": "Use a tf.data.Dataset, or Python's queue.",
    "tf.lite": _LITE,
    "tf.tpu": _TPU,
    "tf.raw_ops": "Use the function of tf, tf.math, tf.nn or tf.image that stands for the operation.",
    "tf.load_op_library": "JAX has custom calls: see jax.ffi.",
    "tf.mixed_precision": "Use tf.keras.mixed_precision.",
    "tf.profiler.experimental.client": "Use jax.profiler.collect_profile, or TensorBoard.",
    "tf.profiler.experimental.server": "Use jax.profiler.start_server(port).",
    "tf.graph_util": _GRAPH,
    "tf.quantization": "Use model.quantize('int8') of Keras.",
    "tf.py_func": "Use tf.py_function or tf.numpy_function.",
    "tf.to_float": "Use tf.cast(x, tf.float32).",
    "tf.to_int32": "Use tf.cast(x, tf.int32).",
    "tf.random_uniform": "Use tf.random.uniform.",
    "tf.random_normal": "Use tf.random.normal.",
    "tf.set_random_seed": "Use tf.random.set_seed.",
    "tf.FixedLenFeature": "Use tf.io.FixedLenFeature.",
    "tf.parse_single_example": "Use tf.io.parse_single_example.",
    "tf.python_io": "Use tf.io.TFRecordWriter and tf.data.TFRecordDataset.",
    "tf.gfile": "Use tf.io.gfile.",
    "tf.config.experimental_connect_to_cluster": _TPU,
    "tf.distribute.TPUStrategy": _TPU,
    "tf.distribute.experimental.TPUStrategy": _TPU,
    "tf.tpu.experimental": _TPU,
    "tf.distribute.cluster_resolver.TPUClusterResolver": _TPU,
    "tf.distribute.cluster_resolver.GCEClusterResolver": "Write the addresses into TF_CONFIG, or use "
    "SimpleClusterResolver.",
    "tf.compat.v1.Session": _GRAPH,
    "tf.compat.v1.get_default_session": _GRAPH,
    "tf.compat.v1.InteractiveSession": _GRAPH,
    "tf.compat.v1.import_graph_def": _GRAPH,
    "tf.compat.v1.train.import_meta_graph": _GRAPH,
    "tf.compat.v1.graph_util": _GRAPH,
    "tf.compat.v1.FIFOQueue": _QUEUE,
    "tf.compat.v1.TFRecordReader": _QUEUE,
    "tf.compat.v1.TextLineReader": _QUEUE,
    "tf.compat.v1.flags": "Install absl-py, which it is another name of.",
    "tf.compat.v1.train.Saver": "Estimator saves checkpoints as RunConfig says. To begin with values of another "
    "training, pass warm_start_from=tf.estimator.WarmStartSettings(checkpoint) to it.",
    "tf.compat.v1.train.warm_start": _WARM,
    "tf.compat.v1.train.MonitoredTrainingSession": _SESSION,
    "tf.compat.v1.train.MonitoredSession": _SESSION,
    "tf.compat.v1.train.SingularMonitoredSession": _SESSION,
    "tf.compat.v1.train.Supervisor": _SESSION,
    "tf.compat.v1.train.Coordinator": _SESSION,
    "tf.compat.v1.train.replica_device_setter": "ParameterServerStrategy places variables on servers by itself, and "
    "divides them as its variable_partitioner says; leave it out.",
    "tf.compat.v1.train.batch": _QUEUE,
    "tf.compat.v1.train.shuffle_batch": _QUEUE,
    "tf.compat.v1.train.string_input_producer": _QUEUE,
    "tf.compat.v1.train.start_queue_runners": _QUEUE,
    "tf.data.experimental.service": "Each worker reads its own part of the data: Dataset.shard.",
}
for _name in ("RNNClassifier", "RNNEstimator"):
    ADVICE[f"tf.estimator.experimental.{_name}"] = _RNN
    ADVICE[f"tf.compat.v1.estimator.experimental.{_name}"] = _RNN
for _name in ("dynamic_rnn", "static_rnn", "bidirectional_dynamic_rnn", "rnn_cell", "raw_rnn"):
    ADVICE[f"tf.compat.v1.nn.{_name}"] = "Use tf.keras.layers.RNN, LSTM, GRU and Bidirectional, also in a model_fn."
for _name in ("images", "bilinear", "bicubic", "area", "nearest_neighbor"):
    ADVICE[f"tf.image.resize_{_name}"] = f"It is tf.compat.v1.image.resize_{_name}; or use tf.image.resize."
for _prefix in ("tf.estimator.experimental", "tf.compat.v1.estimator.experimental"):
    ADVICE[f"{_prefix}.LinearSDCA"] = (
        "Dual coordinate ascent needs all examples in one place. Pass optimizer='Ftrl' to the linear estimator, with "
        "l1_regularization_strength and l2_regularization_strength for its penalties."
    )
    ADVICE[f"{_prefix}.KMeans"] = "Clusters are not found by gradients. Use sklearn.cluster.MiniBatchKMeans."
for _name in ("Saver", "Builder", "loader", "simple_save", "builder"):
    ADVICE[f"tf.compat.v1.saved_model.{_name}"] = (
        "Use Estimator.export_saved_model, or tf.saved_model.save of a model; both need no session."
    )
for _name in ("global_variables", "local_variables", "tables_initializer", "variables"):
    ADVICE[f"tf.compat.v1.initializers.{_name}"] = "Variables have their value from the start; leave it out."
for _name in ("Classifier", "Regressor", "Estimator"):
    ADVICE[f"tf.estimator.BoostedTrees{_name}"] = _TREES
    ADVICE[f"tf.compat.v1.estimator.BoostedTrees{_name}"] = _TREES
# The same names are missing in compat.v1, which looks for its own advice first.
for _name in ("Session", "InteractiveSession", "Graph", "Operation", "get_default_graph"):
    ADVICE.setdefault(f"tf.compat.v1.{_name}", ADVICE[f"tf.{_name}"])


def describe(name: str) -> str:
    """Returns the message for TensorFlow's name, such as "tf.Session", that is not there."""
    # Hooks and optimizers are what programs look for there.
    default = _V1_TRAIN if name.startswith("tf.compat.v1.train.") else _DEFAULT
    return f"{name} is not available. {ADVICE.get(name, default)}"


def getter(module: str, lazy: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a module.

    Args:
        module: The module's `__name__`.
        lazy: Names that are modules, imported when they are first used, and what they are called.
    """

    def __getattr__(name: str) -> Any:
        # importlib puts the module into its parent, so that this is asked once.
        if lazy and name in lazy:
            return importlib.import_module(lazy[name])
        # Python and tools ask modules for names such as __path__: no advice for those.
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        error = AttributeError(describe(f"tf{module.removeprefix(ROOT)}.{name}"))
        # Of Python's own class, because hasattr and getattr expect it; so its page is named here.
        error.add_note(pointer("tensorflow-names"))
        raise error

    return __getattr__


def lister(names: dict[str, Any], lazy: Mapping[str, str]) -> Callable[[], list[str]]:
    """Returns the `__dir__` of a module: what it has, and the modules it imports when they are first used."""
    return lambda: sorted({*names, *lazy})
