"""Training programs as users write them, run by plain Keras on one device and by lockstep on every layout.

Each takes the strategy and the float type, trains on data that no number of replicas divides, and returns everything
that must agree: weights, history, evaluation, predictions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras
import numpy as np
from keras import layers, ops
from keras.src.backend.common import dtypes

EXAMPLES, BATCH, EPOCHS = 103, 10, 3


@contextlib.contextmanager
def precision(floatx: str, optimized: bool = False) -> Iterator[None]:
    """Computes in `floatx` throughout.

    On JAX, Keras' own type promotion turns float64 into float32 (in batch normalisation, for one), also in plain Keras.
    In float64, where what is computed counts and not how fast, XLA spares itself its costly optimizations, unless
    `optimized` says that programs are compiled as users' are; the cases in float32 always are.
    """
    table = dtypes.BIT64_TO_BIT32_DTYPE
    jax.config.update("jax_disable_most_optimizations", floatx == "float64" and not optimized)
    with jax.enable_x64(floatx == "float64"):
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(floatx)
        table["float64"] = floatx
        try:
            yield
        finally:
            table["float64"] = "float32"
            keras.config.set_floatx("float32")
            keras.config.set_dtype_policy("float32")
            jax.config.update("jax_disable_most_optimizations", False)


def run(strategy: Any, case: str, floatx: str, optimized: bool = False) -> dict[str, np.ndarray]:
    """Runs one of `CASES`."""
    with precision(floatx, optimized):
        keras.utils.set_random_seed(7)
        keras.backend.clear_session()
        return CASES[case](strategy, np.random.default_rng(1), floatx)


def _results(model: Any, history: Any, x: Any, y: Any, **evaluate: Any) -> dict[str, np.ndarray]:
    found = {f"weight {i} {v.path}": np.asarray(v) for i, v in enumerate(model.variables)}
    found |= {f"history {k}": np.asarray(v) for k, v in history.history.items()}
    scores = model.evaluate(x, y, batch_size=17, verbose=0, return_dict=True, **evaluate)
    found |= {f"evaluate {k}": np.asarray(v) for k, v in scores.items()}
    predictions = model.predict(x, batch_size=21, verbose=0)
    flat = jax.tree.leaves(predictions)
    return found | {f"prediction {i}": np.asarray(p) for i, p in enumerate(flat)}


def _classified(rng: np.random.Generator, floatx: str, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(EXAMPLES, *shape)).astype(floatx), rng.integers(0, 4, EXAMPLES, dtype="int32")


def _mlp(*extra: Any) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((12,)),
            layers.Dense(16, activation="tanh", kernel_regularizer=keras.regularizers.L2(1e-2)),
            *extra,
            layers.Dense(4, bias_regularizer="l1"),
        ]
    )


def _crossentropy() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _optimised(optimizer: Callable[[], Any], weights: str = "") -> Callable[..., dict[str, np.ndarray]]:
    def case(strategy: Any, rng: np.random.Generator, floatx: str) -> dict[str, np.ndarray]:
        x, y = _classified(rng, floatx, 12)
        with strategy.scope():
            model = _mlp()
            model.compile(optimizer(), _crossentropy(), metrics=["accuracy"], weighted_metrics=["accuracy"])
        weighted: dict[str, Any] = {}
        if weights == "sample":
            weighted["sample_weight"] = rng.uniform(0.1, 2, EXAMPLES).astype(floatx)
        elif weights == "class":
            weighted["class_weight"] = {0: 0.5, 1: 2.0, 2: 1.0, 3: 3.0}
        split = {} if weights else {"validation_split": 0.21}
        history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, **weighted, **split)
        return _results(model, history, x, y)

    return case


def _batch_normalisation(strategy: Any, rng: np.random.Generator, floatx: str) -> dict[str, np.ndarray]:
    x, y = _classified(rng, floatx, 12)
    with strategy.scope():
        model = _mlp(layers.BatchNormalization())
        model.compile(keras.optimizers.Adam(1e-2), _crossentropy(), metrics=["accuracy"])
    history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, validation_data=(x[:31], y[:31]))
    return _results(model, history, x, y)


def _dropout(strategy: Any, rng: np.random.Generator, floatx: str) -> dict[str, np.ndarray]:
    x, y = _classified(rng, floatx, 12)
    with strategy.scope():
        model = _mlp(layers.Dropout(0.4), layers.GaussianNoise(0.1))
        model.compile("adam", _crossentropy(), metrics=["accuracy"])
    history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0)
    return _results(model, history, x, y)


def _wide(strategy: Any, rng: np.random.Generator, floatx: str) -> dict[str, np.ndarray]:
    """Layers of a size for which one device alone has kernels of its own, in float32."""
    x, y = _classified(rng, floatx, 40)
    with strategy.scope():
        wide = layers.Dense(96, activation="tanh", kernel_regularizer="l2")
        model = keras.Sequential([keras.Input((40,)), wide, layers.Dense(64, activation="tanh"), layers.Dense(4)])
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), _crossentropy(), metrics=["accuracy"])
    history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
    return _results(model, history, x, y)


def _contrastive_loss(y_true: Any, y_pred: Any) -> Any:
    """Every example against every other one of the batch."""
    similar = ops.matmul(y_pred, ops.transpose(y_pred))
    same = ops.cast(ops.equal(y_true[:, None], y_true[None, :]), y_pred.dtype)
    return ops.mean(ops.logsumexp(similar, axis=1) - ops.mean(same * similar, axis=1))


def _contrastive(strategy: Any, rng: np.random.Generator, floatx: str) -> dict[str, np.ndarray]:
    x, y = _classified(rng, floatx, 12)
    with strategy.scope():
        model = keras.Sequential([keras.Input((12,)), layers.Dense(8, activation="tanh"), layers.UnitNormalization()])
        model.compile(keras.optimizers.SGD(0.05), _contrastive_loss)
    history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0)
    return _results(model, history, x, y)


def _auc(strategy: Any, rng: np.random.Generator, floatx: str) -> dict[str, np.ndarray]:
    x = rng.normal(size=(EXAMPLES, 12)).astype(floatx)
    y = (x[:, 0] + 0.3 * x[:, 1] > 0).astype(floatx)
    with strategy.scope():
        model = keras.Sequential([keras.Input((12,)), layers.Dense(1, activation="sigmoid")])
        metrics = [keras.metrics.AUC(), keras.metrics.BinaryAccuracy(), keras.metrics.Precision(name="precise")]
        model.compile(keras.optimizers.Adam(1e-2), "binary_crossentropy", metrics=metrics)
    history = model.fit(x, y[:, None], batch_size=BATCH, epochs=EPOCHS, verbose=0)
    return _results(model, history, x, y[:, None])


def _convolutional(strategy: Any, rng: np.random.Generator, floatx: str) -> dict[str, np.ndarray]:
    x, y = _classified(rng, floatx, 10, 10, 3)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((10, 10, 3)),
                layers.Conv2D(6, 3, activation="tanh"),
                layers.DepthwiseConv2D(3, padding="same"),
                layers.AveragePooling2D(2),
                layers.GroupNormalization(2),
                layers.Flatten(),
                layers.Dense(4),
            ]
        )
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), _crossentropy(), metrics=["accuracy"])
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    return _results(model, history, x, y)


def _time_distributed(strategy: Any, rng: np.random.Generator, floatx: str) -> dict[str, np.ndarray]:
    """Layers that Keras calls for one moment after the other, and lockstep for all of them."""
    x, y = _classified(rng, floatx, 3, 7, 7, 2)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((3, 7, 7, 2)),
                layers.TimeDistributed(layers.Conv2D(4, 3, activation="relu")),
                layers.TimeDistributed(layers.MaxPooling2D(2)),
                layers.TimeDistributed(layers.BatchNormalization()),
                layers.TimeDistributed(layers.Flatten()),
                layers.TimeDistributed(layers.Dropout(0.2, seed=1)),
                layers.TimeDistributed(layers.Dense(5, activation="tanh")),
                layers.GRU(4),
            ]
        )
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), _crossentropy(), metrics=["accuracy"])
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    return _results(model, history, x, y)


def _augmented(strategy: Any, rng: np.random.Generator, floatx: str) -> dict[str, np.ndarray]:
    """Layers that Keras runs operation by operation, and lockstep compiles."""
    x, y = _classified(rng, floatx, 10, 8, 3)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((10, 8, 3)),
                layers.RandomFlip("horizontal", seed=1),
                layers.RandomRotation(0.2, seed=2),
                layers.RandomZoom(0.2, seed=3),
                layers.RandomTranslation(0.2, 0.2, "constant", seed=4),
                layers.RandomShear(0.2, 0.2, seed=5),
                layers.Flatten(),
                layers.Dense(4),
            ]
        )
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), _crossentropy(), metrics=["accuracy"])
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    return _results(model, history, x, y)


def _masked_recurrent(strategy: Any, rng: np.random.Generator, floatx: str) -> dict[str, np.ndarray]:
    x = rng.integers(1, 20, (EXAMPLES, 9), dtype="int32")
    x[np.arange(9)[None, :] >= rng.integers(1, 10, EXAMPLES)[:, None]] = 0
    y = rng.normal(size=(EXAMPLES, 9, 2)).astype(floatx)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((9,), dtype="int32"),
                # More than a batch looks up: replicas sum the rows, not the table.
                layers.Embedding(500, 6, mask_zero=True),
                layers.GRU(5, return_sequences=True),
                layers.LSTM(4, return_sequences=True, go_backwards=True),
                layers.Dense(2),
            ]
        )
        model.compile(keras.optimizers.Adam(1e-2, clipnorm=1.0), "mse", metrics=["mae"])
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    return _results(model, history, x, y)


def _two_inputs_two_outputs(strategy: Any, rng: np.random.Generator, floatx: str) -> dict[str, np.ndarray]:
    a, b = (rng.normal(size=(EXAMPLES, n)).astype(floatx) for n in (5, 3))
    y = {"first": rng.integers(0, 4, EXAMPLES, dtype="int32"), "second": rng.normal(size=(EXAMPLES, 2)).astype(floatx)}
    with strategy.scope():
        left, right = keras.Input((5,), name="left"), keras.Input((3,), name="right")
        hidden = layers.Dense(7, activation="tanh")(layers.Concatenate()([left, right]))
        outputs = {"first": layers.Dense(4, name="first")(hidden), "second": layers.Dense(2, name="second")(hidden)}
        model = keras.Model({"left": left, "right": right}, outputs)
        model.compile(
            keras.optimizers.Adam(1e-2, use_ema=True, ema_overwrite_frequency=7),
            {"first": _crossentropy(), "second": "mse"},
            loss_weights={"first": 1.0, "second": 0.3},
            metrics={"first": ["accuracy"], "second": ["mae"]},
        )
    x = {"left": a, "right": b}
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    return _results(model, history, x, y)


class _CustomStep(keras.Model):
    """A subclassed model, built on its first batch, with a step, a loss and a metric of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = layers.Dense(9, activation="tanh")
        self.drop = layers.Dropout(0.2)
        self.out = layers.Dense(4)
        self.norm = keras.metrics.Mean(name="norm")

    def call(self, x: Any, training: bool = False) -> Any:
        hidden = self.drop(self.hidden(x), training=training)
        self.add_loss(1e-3 * ops.sum(ops.square(hidden)))
        return self.out(hidden)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: Any = True
    ) -> Any:
        return super().compute_loss(x, y, y_pred, sample_weight, training) + 1e-2 * ops.mean(ops.square(y_pred))

    def train_step(self, state: Any, data: Any) -> Any:
        trainable, non_trainable, optimizer, metrics = state
        x, y = data[:2]
        compute = jax.value_and_grad(self.compute_loss_and_updates, has_aux=True)
        (_, (loss, y_pred, non_trainable, metrics)), grads = compute(
            trainable, non_trainable, metrics, x, y, None, training=True, optimizer_variables=optimizer
        )
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, [g * 0.5 for g in grads], trainable)
        mapping = list(zip(self.metrics_variables, metrics, strict=True))
        with keras.StatelessScope(state_mapping=mapping) as scope:
            self._loss_tracker.update_state(loss, sample_weight=ops.shape(y_pred)[0])
            self.norm.update_state(ops.sqrt(sum(ops.sum(ops.square(g)) for g in grads)))
            logs = self.get_metrics_result()
        metrics = [scope.get_current_value(v) for v in self.metrics_variables]
        return logs, (trainable, non_trainable, optimizer, metrics)


def _custom_train_step(strategy: Any, rng: np.random.Generator, floatx: str) -> dict[str, np.ndarray]:
    x, y = _classified(rng, floatx, 12)
    with strategy.scope():
        model = _CustomStep()
        model.compile(keras.optimizers.Adam(1e-2, gradient_accumulation_steps=2), _crossentropy())
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    return _results(model, history, x, y)


def _on_batch(strategy: Any, rng: np.random.Generator, floatx: str) -> dict[str, np.ndarray]:
    x, y = _classified(rng, floatx, 12)
    with strategy.scope():
        model = _mlp()
        model.compile(keras.optimizers.SGD(0.1), _crossentropy(), metrics=["accuracy"])
    found: dict[str, Any] = {}
    for i, rows in enumerate((1, 2, 3, 5, 8, 12, 13)):
        found[f"train {i}"] = np.asarray(model.train_on_batch(x[:rows], y[:rows]))
        found[f"test {i}"] = np.asarray(model.test_on_batch(x[rows : 2 * rows], y[rows : 2 * rows]))
        found[f"predict {i}"] = model.predict_on_batch(x[:rows])
    return found | {f"weight {v.path}": np.asarray(v) for v in model.variables}


CASES: dict[str, Callable[..., dict[str, np.ndarray]]] = {
    "sgd with momentum": _optimised(lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True)),
    "adam, sample weights": _optimised(lambda: keras.optimizers.Adam(1e-2), "sample"),
    "adamw, class weights": _optimised(lambda: keras.optimizers.AdamW(1e-2, weight_decay=1e-2), "class"),
    "lion": _optimised(lambda: keras.optimizers.Lion(1e-3)),
    "batch normalisation": _batch_normalisation,
    "dropout": _dropout,
    "wide layers": _wide,
    "contrastive loss": _contrastive,
    "auc": _auc,
    "convolutional": _convolutional,
    "time distributed": _time_distributed,
    "augmented pictures": _augmented,
    "masked gru and lstm": _masked_recurrent,
    "two inputs, two outputs": _two_inputs_two_outputs,
    "custom train_step": _custom_train_step,
    "on batch": _on_batch,
}
