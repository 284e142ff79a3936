"""Estimators that train alike with a strategy's replicas and with shares of batches on servers; a module that runs.

Usage: python -m tests.estimator.servers.replica_cases OUTPUT STRATEGY REPLICAS CASE...
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lockstep as ls  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import jax
import keras
import numpy as np

from lockstep import estimator
from lockstep.estimator import train
from tests.engine.keras.cases import precision
from tests.engine.keras.servers.program import divide_tables
from tests.estimator import cases

# The last update has 3 rows: two unequal shares, and fewer than four.
ROWS, GLOBAL_BATCH = 99, 12
WORDS = ("red", "green", "blue")
_IDS = 50


def input_fn(input_context: ls.data.InputContext) -> ls.data.Dataset:
    """Returns the batches of one replica."""
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 4)).astype(keras.config.floatx())
    features = {
        "x": x,
        "ids": random.integers(0, _IDS, (ROWS, 3)),
        "word": np.array([WORDS[i].encode() for i in random.integers(0, 3, ROWS)]),
    }
    labels = ((x[:, 0] > 0).astype(np.int32) + (x[:, 1] > 0.3)).astype(np.int32)
    data = ls.data.Dataset.from_tensor_slices((features, labels)).shuffle(ROWS, seed=1)
    data = data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return data.batch(GLOBAL_BATCH // input_context.num_replicas_in_sync)


def _model_fn(hidden: Callable[[Any, bool], Any], optimize: Callable[[Any], Any]) -> Callable[..., Any]:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        logits = keras.layers.Dense(3)(hidden(features, mode == "train"))
        loss = estimator.losses.sparse_softmax_cross_entropy(labels, logits)
        return estimator.EstimatorSpec(mode, loss=loss, train_op=optimize(loss) if mode == "train" else None)

    return model_fn


def _plain(features: Any, trains: bool) -> Any:
    return keras.layers.Dense(6, activation="tanh")(features["x"])


def _random(features: Any, trains: bool) -> Any:
    hidden = keras.layers.BatchNormalization()(_plain(features, trains), training=trains)
    return keras.layers.Dropout(0.3)(hidden, training=trains)


def _looked_up(features: Any, trains: bool) -> Any:
    return keras.ops.mean(keras.layers.Embedding(_IDS, 5)(features["ids"]), axis=1) + 0 * features["x"][:, :1]


def _minimized(loss: Any) -> Any:
    return train.AdamOptimizer(0.05).minimize(loss, train.get_global_step())


def _clipped(loss: Any, noise: Callable[[Any], Any] = lambda gradient: gradient) -> Any:
    optimizer = train.MomentumOptimizer(0.3, 0.9)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, norm = train.clip_by_global_norm(list(gradients), 0.1)
    train.record("norm", norm)
    pairs = zip(map(noise, clipped), variables, strict=True)
    return optimizer.apply_gradients(pairs, global_step=train.get_global_step())


def _noisy(loss: Any) -> Any:
    """Clipped gradients to which each replica adds something of its own batch."""
    return _clipped(loss, lambda gradient: gradient + 0.01 * loss)


def _columns() -> list[Any]:
    word = estimator.feature_column.categorical_column_with_vocabulary_list("word", list(WORDS))
    return [estimator.feature_column.numeric_column("x", (4,)), estimator.feature_column.embedding_column(word, 3)]


def _wide_and_deep(config: Any, model_dir: str) -> Any:
    word = estimator.feature_column.categorical_column_with_vocabulary_list("word", list(WORDS))
    return estimator.DNNLinearCombinedClassifier(
        model_dir,
        linear_feature_columns=[word],
        dnn_feature_columns=_columns(),
        dnn_hidden_units=[5],
        n_classes=3,
        config=config,
    )


def _custom(model_fn: Callable[..., Any]) -> Callable[[Any, str], Any]:
    return lambda config, model_dir: estimator.Estimator(model_fn, model_dir, config)


CASES: dict[str, Callable[[Any, str], Any]] = {
    "averages and masks": _custom(_model_fn(_random, _minimized)),
    "clipped": _custom(_model_fn(_random, _clipped)),
    "noise after clipping": _custom(_model_fn(_plain, _noisy)),
    "a table": _custom(_model_fn(_looked_up, _minimized)),
    "a table, clipped": _custom(_model_fn(_looked_up, _clipped)),
    "text": _wide_and_deep,
}
# Losses that are sums, and what a model_fn makes of gradients.
COMMON = ("a sum", "clipping a sum", "clipping two networks", "gradients of gradients", "a rate of gradients")


def run(strategy: Any, case: str, model_dir: str) -> dict[str, np.ndarray]:
    """Trains a case in float64; returns the variables, and what hooks have seen of each step."""
    if case not in CASES:
        return cases.run(strategy, case, "float64", model_dir)
    # Threads that read data must follow too: `precision` is for the calling thread only.
    jax.config.update("jax_enable_x64", True)
    with precision("float64"):
        return _train(strategy, case, model_dir)


def _train(strategy: Any, case: str, model_dir: str) -> dict[str, np.ndarray]:
    seen: dict[str, list[float]] = {"loss": []}
    if "clip" in case:
        seen["norm"] = []

    class Seen(estimator.SessionRunHook):
        def before_run(self, run_context: Any) -> Any:
            return estimator.SessionRunArgs(list(seen))

        def after_run(self, run_context: Any, run_values: Any) -> None:
            for values, value in zip(seen.values(), run_values.results, strict=True):
                values.append(float(value))

    config = estimator.RunConfig(tf_random_seed=3, train_distribute=strategy, save_checkpoints_steps=4)
    made = CASES[case](config, model_dir)
    # The second call goes on from a checkpoint, and to the end of the data.
    made.train(input_fn, hooks=[Seen()], max_steps=2)
    made.train(input_fn, hooks=[Seen()])
    values = {name: made.get_variable_value(name) for name in made.get_variable_names()}
    return {**{f"hook {name}": np.asarray(each) for name, each in seen.items()}, **values}


def main(output: str, kind: str, replicas: str, *names: str) -> None:
    """Runs cases, and writes what each comes to; servers serve until the chief has ended."""
    if kind == "mirrored":
        strategy: Any = ls.distribute.MirroredStrategy(batch_statistics="replica")
        assert strategy.num_replicas_in_sync == int(replicas)
    else:
        strategy = ls.distribute.ParameterServerStrategy(None, divide_tables, mode="sync", replicas=int(replicas))
        if ls.cluster_resolver.TFConfigClusterResolver().task_type == "ps":
            strategy._servers.job.serve_until_end()
            return
    for case in names:
        # Of all tasks, as users have it.
        values = run(strategy, case, str(Path(output).parent / "models" / case))
        np.savez(Path(output) / f"{case}.npz", **{key.replace("/", "|"): value for key, value in values.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
