"""Makes the checkpoints of TensorFlow that tests read, with TensorFlow 2.15: `python make.py DIRECTORY`.

Beside each checkpoint lies `expected.npz`, what TensorFlow itself reads from it, and for Estimators `losses.json`, the
losses of its next steps. Everything is small, so that it can be kept in the repository.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
ROWS = np.random.RandomState(7).uniform(-1, 1, (64, 3)).astype(np.float32)
LABELS = (ROWS[:, :1] - 2 * ROWS[:, 1:2] > 0).astype(np.int64)
BATCH = 16


def expect(prefix: str, file: Path) -> None:
    """Keeps what TensorFlow reads from a checkpoint; text as pickled-free arrays of bytes."""
    reader = tf.train.load_checkpoint(prefix)
    values = {}
    for name in reader.get_variable_to_shape_map():
        value = np.asarray(reader.get_tensor(name))
        if value.dtype == object:
            value = value.astype("S") if value.size else np.zeros(value.shape, "S1")
        if value.dtype.name == "bfloat16":
            value = value.view(np.uint16)
        values[name] = value
    np.savez(file, **{name.replace("/", "|"): value for name, value in values.items()})


def dtypes(root: Path) -> None:
    """A Saver of TensorFlow 1: every dtype, a scalar, nothing at all, text, and variables in pieces."""
    types = (
        "float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128"
    )
    with tf.Graph().as_default(), v1.Session() as session:
        for name in types.split():
            dtype = tf.as_dtype(name)
            value = np.arange(-3, 3).reshape(2, 3)
            value = value % 2 == 0 if name == "bool" else np.abs(value) if name[0] == "u" else value
            v1.get_variable(
                f"of/{name}", initializer=tf.constant(value.astype(dtype.as_numpy_dtype)), use_resource=True
            )
        v1.get_variable("scalar", initializer=np.float32(2.5))
        v1.get_variable("empty", initializer=np.zeros((0, 4), np.float32))
        v1.get_variable("words", initializer=tf.constant([[b"", b"two"], [b"x" * 300, b"\xff\x00"]]))
        for axis, shape in enumerate([(100, 3), (3, 100)]):
            v1.get_variable(
                f"pieces_{axis}",
                shape=shape,
                initializer=v1.random_normal_initializer(seed=axis + 1),
                partitioner=v1.fixed_size_partitioner(3, axis=axis),
            )
        session.run(v1.global_variables_initializer())
        prefix = v1.train.Saver().save(session, str(root / "model.ckpt"), global_step=7, write_meta_graph=False)
    expect(prefix, root / "expected.npz")


def shards(root: Path) -> None:
    """Several files of data, and names that share long beginnings."""
    config = v1.ConfigProto(device_count={"CPU": 2})
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        for number in range(40):
            with v1.device(f"/cpu:{number % 2}"):
                v1.get_variable(f"a/long/common/beginning/{number:03}", initializer=np.full((2,), number, np.float32))
        session.run(v1.global_variables_initializer())
        prefix = v1.train.Saver(sharded=True).save(session, str(root / "ckpt"), write_meta_graph=False)
    expect(prefix, root / "expected.npz")


def input_fn() -> Any:
    """Batches in a fixed order."""
    return tf.data.Dataset.from_tensor_slices(({"x": ROWS}, LABELS)).batch(BATCH).repeat()


def model_fn_of(layers: str, optimizer: str) -> Any:
    """Returns a model_fn of layers of TensorFlow 1 or of Keras, and one of several optimizers."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        if layers == "v1":
            hidden = v1.layers.dense(features["x"], 4, activation=tf.nn.tanh, name="hidden")
            hidden = v1.layers.batch_normalization(hidden, training=mode == "train")
            logits = v1.layers.dense(hidden, 1)
        else:
            hidden = tf.keras.layers.Dense(4, activation="tanh")(features["x"])
            logits = tf.keras.layers.Dense(1)(hidden)
        loss = v1.losses.sigmoid_cross_entropy(labels, logits)
        step = v1.train.get_or_create_global_step()
        if optimizer.startswith("keras"):
            kind = getattr(tf.keras.optimizers.legacy, optimizer.split("_")[1])(0.01)
            kind.iterations = step
            train_op = kind.get_updates(loss, v1.trainable_variables())[0]
        else:
            extra = {"momentum": 0.9} if optimizer == "Momentum" else {}
            train_op = getattr(v1.train, f"{optimizer}Optimizer")(0.01, **extra).minimize(loss, step)
        updates = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=tf.group(train_op, *updates))

    return model_fn


def estimator(root: Path, make: Any) -> None:
    """Trains 5 steps, which is the checkpoint, and 3 more in a copy, for their losses."""
    config = tf.estimator.RunConfig(tf_random_seed=3, save_summary_steps=None, log_step_count_steps=None)
    make(str(root), config).train(input_fn, steps=5)
    copy = root.with_name(root.name + "_more")
    shutil.copytree(root, copy)
    captured: list[float] = []

    class Capture(v1.train.LoggingTensorHook):
        def _log_tensors(self, values: Any) -> None:
            captured.append(float(values["loss"]))

    continued = make(str(copy), config)
    original = continued._call_model_fn

    def call(*args: Any, **kwargs: Any) -> Any:
        spec = original(*args, **kwargs)
        tf.identity(spec.loss, name="captured_loss")
        return spec

    continued._call_model_fn = call
    continued.train(input_fn, steps=3, hooks=[Capture({"loss": "captured_loss"}, every_n_iter=1)])
    (root / "losses.json").write_text(json.dumps(captured))
    shutil.rmtree(copy)
    prefix = tf.train.latest_checkpoint(str(root))
    expect(prefix, root / "expected.npz")
    for file in root.iterdir():
        if file.name.startswith("model.ckpt-0") or file.suffix in (".meta", ".pbtxt") or "events" in file.name:
            file.unlink()
    (root / "checkpoint").write_text(
        'model_checkpoint_path: "model.ckpt-5"\nall_model_checkpoint_paths: "model.ckpt-5"\n'
    )


def keras_model(kind: str = "functional") -> Any:
    """Returns a small model of Keras 2."""
    tf.keras.utils.set_random_seed(5)
    layers = tf.keras.layers
    if kind == "sequential":
        return tf.keras.Sequential([layers.Input((3,)), layers.Dense(4, activation="tanh"), layers.Dense(1)])
    if kind == "lstm":
        return tf.keras.Sequential([layers.Input((5, 3)), layers.LSTM(4), layers.Dense(1)])
    inputs = tf.keras.Input((3,))
    part = tf.keras.Sequential([layers.Dense(4, activation="tanh"), layers.BatchNormalization()], name="part")
    outputs = layers.Dense(1)(part(inputs))
    return tf.keras.Model(inputs, outputs)


def keras_weights(root: Path, kind: str, optimizer: Any) -> None:
    """`save_weights` in TensorFlow's format after some steps, and the loss of the next step."""
    model = keras_model(kind)
    model.compile(optimizer, "mse")
    x = np.repeat(ROWS[:, None], 5, 1) if kind == "lstm" else ROWS
    y = LABELS.astype(np.float32)
    model.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    model.save_weights(str(root / "cp.ckpt"))
    losses = [float(model.train_on_batch(x[:BATCH], y[:BATCH])) for _ in range(3)]
    (root / "losses.json").write_text(json.dumps(losses))
    expect(str(root / "cp.ckpt"), root / "expected.npz")


def zoo(root: Path) -> None:
    """Weights of a model with many kinds of layers, and what it predicts."""
    tf.keras.utils.set_random_seed(6)
    layers = tf.keras.layers
    image, words = tf.keras.Input((8, 8, 2)), tf.keras.Input((5,), dtype="int32")
    x = layers.Conv2D(3, 3, activation="relu")(image)
    x = layers.DepthwiseConv2D(3, padding="same")(x)
    x = layers.SeparableConv2D(4, 3, padding="same")(x)
    x = layers.Conv2DTranspose(3, 2)(layers.BatchNormalization()(x))
    x = layers.PReLU()(layers.LayerNormalization()(x))
    x = layers.GlobalAveragePooling2D()(layers.Dropout(0.5)(x))
    y = layers.Embedding(7, 4)(words)
    y = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(y)
    y = layers.MultiHeadAttention(2, 3)(y, y)
    y = layers.TimeDistributed(layers.Dense(3))(y)
    y = layers.RNN(layers.StackedRNNCells([layers.GRUCell(3), layers.SimpleRNNCell(2)]))(y)
    model = tf.keras.Model([image, words], layers.Dense(2)(layers.concatenate([x, y])))
    draw = np.random.RandomState(3)
    inputs = [draw.normal(size=(2, 8, 8, 2)).astype(np.float32), draw.randint(0, 7, (2, 5)).astype(np.int32)]
    # Else all biases are zero, and moving averages 0 and 1.
    model.set_weights([draw.uniform(0.1, 0.9, w.shape).astype(np.float32) for w in model.get_weights()])
    model.save_weights(str(root / "cp.ckpt"))
    np.savez(root / "predicted.npz", image=inputs[0], words=inputs[1], outputs=model.predict(inputs, verbose=0))
    expect(str(root / "cp.ckpt"), root / "expected.npz")


class Subclassed(tf.keras.Model):
    """A model with attributes of its own: a list, a dict, a model inside."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = [tf.keras.layers.Dense(3, activation="tanh") for _ in range(2)]
        self.heads = {"one": tf.keras.layers.Dense(1), "two": tf.keras.layers.Dense(1)}
        self.inner = tf.keras.Sequential([tf.keras.layers.Dense(3), tf.keras.layers.Dense(3)])
        self.scale = self.add_weight(name="scale", shape=(3,), initializer="uniform")

    def call(self, x: Any) -> Any:
        """Computes."""
        for block in self.blocks:
            x = block(x)
        x = self.inner(x) * self.scale
        return self.heads["one"](x) + 2 * self.heads["two"](x)


def subclassed(root: Path) -> None:
    """Weights of a model that is a class of its own, in a Checkpoint with other objects."""
    tf.keras.utils.set_random_seed(8)
    model = Subclassed()
    outputs = model.predict(ROWS[:4], verbose=0)
    tf.train.Checkpoint(net=model, parts=[tf.Variable(3.0), tf.Variable([1, 2])]).write(str(root / "ckpt"))
    np.savez(root / "predicted.npz", outputs=outputs)
    expect(str(root / "ckpt"), root / "expected.npz")


def saved_model(root: Path) -> None:
    """The variables of what `model.save` of Keras 2 writes to a directory."""
    model = keras_model("sequential")
    model.save(str(root))
    for path in root.iterdir():
        if path.name != "variables":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    expect(str(root / "variables" / "variables"), root / "expected.npz")


def tracked(root: Path) -> None:
    """`tf.train.Checkpoint` of a model, its optimizer and a counter, as loops of one's own save them."""
    model, optimizer = keras_model("sequential"), tf.keras.optimizers.Adam(0.01)
    step = tf.Variable(0, dtype=tf.int64)
    saver = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
    manager = tf.train.CheckpointManager(saver, str(root), 2)
    losses = []
    for number in range(7):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(ROWS[:BATCH]) - LABELS[:BATCH].astype(np.float32)) ** 2)
        losses.append(float(loss))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        step.assign_add(1)
        if number == 4:
            manager.save()
    (root / "losses.json").write_text(json.dumps(losses[5:]))
    expect(tf.train.latest_checkpoint(str(root)), root / "expected.npz")


def of_keras_model(directory: str, config: Any) -> Any:
    """Returns the Estimator of a compiled model, whose checkpoints hold objects."""
    tf.keras.backend.clear_session()
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((3,), name="x"), layers.Dense(4, activation="tanh"), layers.Dense(1)])
    model.compile(tf.keras.optimizers.legacy.Adam(0.01), tf.keras.losses.BinaryCrossentropy(from_logits=True))
    return tf.keras.estimator.model_to_estimator(model, model_dir=directory, config=config)


COLUMNS = [tf.feature_column.numeric_column("x", shape=(3,))]
CASES: dict[str, Any] = {
    "v1_dtypes": dtypes,
    "v1_shards": shards,
    **{
        f"estimator_{kind}": lambda root, kind=kind: estimator(
            root, lambda d, c: tf.estimator.Estimator(model_fn_of("v1", kind), d, c)
        )
        for kind in ("GradientDescent", "Momentum", "Adam", "Adagrad", "Adadelta", "RMSProp", "Ftrl")
    },
    "estimator_keras_Adam": lambda root: estimator(
        root, lambda d, c: tf.estimator.Estimator(model_fn_of("keras", "keras_Adam"), d, c)
    ),
    "estimator_keras_v1": lambda root: estimator(
        root, lambda d, c: tf.estimator.Estimator(model_fn_of("keras", "Adam"), d, c)
    ),
    "estimator_dnn": lambda root: estimator(
        root, lambda d, c: tf.estimator.DNNClassifier([4, 3], COLUMNS, model_dir=d, config=c)
    ),
    "estimator_dnn_v1": lambda root: estimator(
        root, lambda d, c: v1.estimator.DNNClassifier([4, 3], COLUMNS, model_dir=d, config=c)
    ),
    "estimator_linear": lambda root: estimator(
        root, lambda d, c: tf.estimator.LinearClassifier(COLUMNS, model_dir=d, config=c)
    ),
    "estimator_combined": lambda root: estimator(
        root,
        lambda d, c: tf.estimator.DNNLinearCombinedClassifier(
            model_dir=d, linear_feature_columns=COLUMNS, dnn_feature_columns=COLUMNS, dnn_hidden_units=[4], config=c
        ),
    ),
    "estimator_of_keras_model": lambda root: estimator(root, of_keras_model),
    "keras_adam": lambda root: keras_weights(root, "functional", tf.keras.optimizers.Adam(0.01)),
    "keras_legacy_adam": lambda root: keras_weights(root, "functional", tf.keras.optimizers.legacy.Adam(0.01)),
    "keras_sgd": lambda root: keras_weights(root, "sequential", tf.keras.optimizers.SGD(0.01, momentum=0.9)),
    "keras_rmsprop": lambda root: keras_weights(root, "sequential", tf.keras.optimizers.RMSprop(0.01, momentum=0.5)),
    "keras_lstm": lambda root: keras_weights(root, "lstm", tf.keras.optimizers.Adam(0.01)),
    "keras_zoo": zoo,
    "saved_model": saved_model,
    "subclassed": subclassed,
    "tracked": tracked,
}


def main(directory: str, *names: str) -> None:
    """Makes all cases, or some."""
    for name in names or CASES:
        root = Path(directory) / name
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        CASES[name](root)
        print(name, sum(file.stat().st_size for file in root.iterdir()))


if __name__ == "__main__":
    main(*sys.argv[1:])
