"""Examples of the reference: Estimators, their metrics, losses, schedules, columns and hooks."""

import tempfile

import lockstep as ls

# isort: split
import keras
import numpy as np

folder = tempfile.mkdtemp()


def input_fn():
    x = np.linspace(0, 1, 8, dtype="float32")[:, None]
    return ls.data.Dataset.from_tensor_slices(({"x": x}, (x[:, 0] > 0.5).astype("int32"))).batch(4)


# %% A model_fn, trained and evaluated
def model_fn(features, labels, mode):
    logits = keras.layers.Dense(1)(features["x"])[:, 0]
    if mode == ls.estimator.ModeKeys.PREDICT:
        return ls.estimator.EstimatorSpec(mode, predictions={"logit": logits})
    loss = ls.estimator.losses.sigmoid_cross_entropy(labels, logits)
    if mode == ls.estimator.ModeKeys.EVAL:
        return ls.estimator.EstimatorSpec(mode, loss=loss)
    rate = ls.estimator.train.exponential_decay(0.1, ls.estimator.train.get_global_step(), 100, 0.9)
    optimizer = ls.estimator.train.AdamOptimizer(rate)
    train_op = optimizer.minimize(loss, ls.estimator.train.get_or_create_global_step())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


config = ls.estimator.RunConfig(save_checkpoints_steps=2)
classifier = ls.estimator.Estimator(model_fn, f"{folder}/model", config)
metrics, _ = ls.estimator.train_and_evaluate(
    classifier, ls.estimator.TrainSpec(input_fn, max_steps=2), ls.estimator.EvalSpec(input_fn)
)
print(metrics["loss"], ls.estimator.train.latest_checkpoint(f"{folder}/model"))


# %% Metrics of a classifier
def binary(features, labels, mode):
    logits = keras.layers.Dense(1)(features["x"])[:, 0]
    chance = keras.ops.sigmoid(logits)
    predicted = keras.ops.cast(chance > 0.5, "int32")
    loss = ls.estimator.losses.log_loss(labels, chance)
    found = {
        "accuracy": ls.estimator.metrics.accuracy(labels, predicted),
        "auc": ls.estimator.metrics.auc(labels, chance),
        "precision": ls.estimator.metrics.precision(labels, predicted),
        "recall": ls.estimator.metrics.recall(labels, predicted),
        "true positives": ls.estimator.metrics.true_positives(labels, predicted),
        "false positives": ls.estimator.metrics.false_positives(labels, predicted),
        "true negatives": ls.estimator.metrics.true_negatives(labels, predicted),
        "false negatives": ls.estimator.metrics.false_negatives(labels, predicted),
        "mean": ls.estimator.metrics.mean(chance),
    }
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=found)


classifier = ls.estimator.Estimator(binary, f"{folder}/binary")
classifier.train(input_fn, steps=2)
print(classifier.evaluate(input_fn))


# %% Metrics and losses of a regression
def regression(features, labels, mode):
    labels = keras.ops.cast(labels, "float32")
    predicted = keras.layers.Dense(1)(features["x"])[:, 0]
    loss = ls.estimator.losses.mean_squared_error(labels, predicted)
    loss = loss + ls.estimator.losses.huber_loss(labels, predicted)
    loss = loss + ls.estimator.losses.absolute_difference(labels, predicted)
    found = {
        "mae": ls.estimator.metrics.mean_absolute_error(labels, predicted),
        "mse": ls.estimator.metrics.mean_squared_error(labels, predicted),
        "rmse": ls.estimator.metrics.root_mean_squared_error(labels, predicted),
    }
    optimizer = ls.estimator.train.MomentumOptimizer(0.01, momentum=0.9)
    pairs = optimizer.compute_gradients(loss)
    gradients, _ = ls.estimator.train.clip_by_global_norm([g for g, _ in pairs], 1.0)
    clipped = [(g, v) for g, (_, v) in zip(gradients, pairs, strict=True)]
    train_op = optimizer.apply_gradients(clipped, ls.estimator.train.get_global_step())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=found)


regressor = ls.estimator.Estimator(regression, f"{folder}/regression")
regressor.train(input_fn, steps=2, hooks=[ls.estimator.StopAtStepHook(num_steps=2)])
print(regressor.evaluate(input_fn))

# %% A linear classifier of a numeric column
column = ls.estimator.feature_column.numeric_column("x")
linear = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/linear")
linear.train(input_fn, steps=2)
print(linear.evaluate(input_fn)["accuracy"])

# %% A deep classifier of buckets
x = ls.estimator.feature_column.numeric_column("x")
buckets = ls.estimator.feature_column.bucketized_column(x, [0.25, 0.5, 0.75])
deep = ls.estimator.DNNClassifier([8], [ls.estimator.feature_column.indicator_column(buckets)], f"{folder}/deep")
deep.train(input_fn, steps=2)

# %% Categories as vectors
city = ls.estimator.feature_column.categorical_column_with_vocabulary_list("city", ["Bern", "Rome", "Oslo"])
vectors = ls.estimator.feature_column.embedding_column(city, dimension=2)

# %% Categories by hash, crossed
street = ls.estimator.feature_column.categorical_column_with_hash_bucket("street", 100)
crossed = ls.estimator.feature_column.crossed_column(["street", "city"], hash_bucket_size=1000)

# %% Arrays as input
train_input_fn = ls.estimator.inputs.numpy_input_fn(
    {"x": np.ones((8, 1), "float32")}, np.ones(8, "int32"), batch_size=4, shuffle=False
)

# %% Hooks
hooks = [
    ls.estimator.StepCounterHook(every_n_steps=100),
    ls.estimator.LoggingTensorHook(["loss"], every_n_iter=100),
    ls.estimator.NanTensorHook("loss"),
]

# %% A model of Keras as an Estimator
model = keras.Sequential([keras.Input((1,), name="x"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
estimator = ls.estimator.model_to_estimator(model, model_dir=f"{folder}/keras")
