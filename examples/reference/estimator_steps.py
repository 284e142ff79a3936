"""Examples of the reference: what a model_fn uses: optimizers, schedules, losses, metrics, summaries."""

import tempfile

import lockstep as ls

# isort: split
import jax.numpy as jnp
import keras
import numpy as np

folder = tempfile.mkdtemp()
gradients = [jnp.array([3.0, 4.0])]
with ls.checkpoint.CheckpointStore(f"{folder}/other") as store:
    store.save(1, {"dense/kernel": np.ones((1, 3), "float32")})
prefix = ls.checkpoint.latest_checkpoint(f"{folder}/other")


def input_fn():
    x = np.linspace(0, 1, 8, dtype="float32")[:, None]
    return ls.data.Dataset.from_tensor_slices(({"x": x}, (x[:, 0] * 2.9).astype("int32"))).batch(4)


def run(model_fn):
    """Trains and evaluates a model_fn."""
    estimator = ls.estimator.Estimator(model_fn, tempfile.mkdtemp())
    estimator.train(input_fn, steps=2)
    return estimator.evaluate(input_fn)


def trained_by(optimizer):
    """Returns a model_fn that trains with an optimizer."""

    def model_fn(features, labels, mode):
        logits = keras.layers.Dense(3)(features["x"])
        loss = ls.estimator.losses.sparse_softmax_cross_entropy(labels, logits)
        train_op = optimizer().minimize(loss, ls.estimator.train.get_global_step())
        return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


# %% TensorFlow 1's gradient descent, in a model_fn: `optimizer.minimize(loss, get_global_step())`
optimizer = ls.estimator.train.GradientDescentOptimizer(0.1)
assert isinstance(optimizer, ls.estimator.train.Optimizer)

# %% TensorFlow 1's Adagrad
optimizer = ls.estimator.train.AdagradOptimizer(0.1, initial_accumulator_value=0.1)

# %% TensorFlow 1's Adadelta
optimizer = ls.estimator.train.AdadeltaOptimizer(learning_rate=1.0, rho=0.95)

# %% TensorFlow 1's Ftrl, with regularization
optimizer = ls.estimator.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01)

# %% TensorFlow 1's RMSProp
optimizer = ls.estimator.train.RMSPropOptimizer(0.01, decay=0.9, momentum=0.9, centered=True)

# %% Proximal gradient descent: weights that do not matter become zero
optimizer = ls.estimator.train.ProximalGradientDescentOptimizer(0.1, l1_regularization_strength=0.01)

# %% Proximal Adagrad
optimizer = ls.estimator.train.ProximalAdagradOptimizer(0.1, l2_regularization_strength=0.01)

# %% One update for the mean of two batches' gradients
optimizer = ls.estimator.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=2, total_num_replicas=2)
hook = optimizer.make_session_run_hook(is_chief=True)

# %% Learning rates that fall in steps
rate = ls.estimator.train.piecewise_constant(150, boundaries=[100, 200], values=[0.1, 0.01, 0.001])
same = ls.estimator.train.piecewise_constant_decay(150, boundaries=[100, 200], values=[0.1, 0.01, 0.001])
assert rate == same == np.float32(0.01)

# %% Learning rates along a cosine, once or with restarts
once = ls.estimator.train.cosine_decay(0.1, global_step=5, decay_steps=10)
again = ls.estimator.train.cosine_decay_restarts(0.1, global_step=15, first_decay_steps=10)
assert np.isclose(once, 0.05)

# %% Cosines on a line, and with noise
rate = ls.estimator.train.linear_cosine_decay(0.1, global_step=5, decay_steps=10)
noisy = ls.estimator.train.noisy_linear_cosine_decay(0.1, global_step=5, decay_steps=10)

# %% Learning rates that fall with time
inverse = ls.estimator.train.inverse_time_decay(0.1, global_step=10, decay_steps=10, decay_rate=1.0)
natural = ls.estimator.train.natural_exp_decay(0.1, global_step=10, decay_steps=10, decay_rate=1.0)
assert np.isclose(inverse, 0.05) and np.isclose(natural, 0.1 / np.e)

# %% Learning rates along a polynomial
rate = ls.estimator.train.polynomial_decay(0.1, global_step=5, decay_steps=10, end_learning_rate=0.0)
assert np.isclose(rate, 0.05)

# %% Gradients of a bounded size
assert ls.estimator.train.global_norm(gradients) == 5.0
print(ls.estimator.train.clip_by_norm(gradients[0], 1.0), ls.estimator.train.clip_by_value(gradients[0], -3.5, 3.5))


# %% Gradients that are changed before they are applied, with any optimizer
def model_fn(features, labels, mode):
    logits = keras.layers.Dense(3)(features["x"])
    loss = ls.estimator.losses.sparse_softmax_cross_entropy(labels, logits)
    pairs = ls.estimator.train.GradientDescentOptimizer(0.1).compute_gradients(loss)
    halves = [(0.5 * gradient, variable) for gradient, variable in pairs]
    step = ls.estimator.train.get_global_step()
    train_op = ls.estimator.train.apply_gradients(halves, keras.optimizers.SGD(0.1), step)
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


print(run(model_fn)["loss"])


# %% Two training operations in one step
def model_fn(features, labels, mode):
    wide, deep = keras.layers.Dense(3)(features["x"]), keras.layers.Dense(3, name="deep")(features["x"])
    loss = ls.estimator.losses.sparse_softmax_cross_entropy(labels, wide + deep)
    slow = ls.estimator.train.GradientDescentOptimizer(0.01)
    train_op = ls.estimator.train.group(slow.minimize(loss, ls.estimator.train.get_global_step()))
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


run(model_fn)


# %% The global step: in a model_fn the number of steps before this one
def model_fn(features, labels, mode):
    step = ls.estimator.train.create_global_step()
    ls.estimator.train.assert_global_step(step)
    logits = keras.layers.Dense(3)(features["x"])
    loss = ls.estimator.losses.sparse_softmax_cross_entropy(labels, logits)
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


run(model_fn)


# %% The global step in a hook: a value that is asked for with a step is of before the step is counted
class Steps(ls.estimator.SessionRunHook):
    def before_run(self, run_context):
        step = ls.estimator.train.get_global_step()
        assert isinstance(step, ls.estimator.train.GlobalStep)
        return ls.estimator.SessionRunArgs(step)

    def after_run(self, run_context, run_values):
        assert ls.estimator.train.global_step(run_context.session) == run_values.results + 1


estimator = ls.estimator.Estimator(trained_by(lambda: ls.estimator.train.AdagradOptimizer(0.1)), f"{folder}/steps")
estimator.train(input_fn, steps=2, hooks=[Steps()])


# %% Weights that begin with those of a checkpoint
def model_fn(features, labels, mode):
    logits = keras.layers.Dense(3, name="dense")(features["x"])
    ls.estimator.train.init_from_checkpoint(prefix, {"dense/kernel": "dense/kernel"})
    loss = ls.estimator.losses.sparse_softmax_cross_entropy(labels, logits)
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


run(model_fn)


# %% A value that hooks and TensorBoard see, by a name
def model_fn(features, labels, mode):
    logits = keras.layers.Dense(3)(features["x"])
    loss = ls.estimator.losses.sparse_softmax_cross_entropy(labels, logits)
    ls.estimator.train.record("largest logit", jnp.max(logits))
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


run(model_fn)

# %% What is in a checkpoint
print(ls.estimator.train.list_variables(prefix))
kernel = ls.estimator.train.load_variable(prefix, "dense/kernel")
reader = ls.estimator.train.load_checkpoint(prefix)
assert reader.has_tensor("dense/kernel")

# %% Which checkpoints there are
assert ls.estimator.train.checkpoint_exists(prefix)
state = ls.estimator.train.get_checkpoint_state(f"{folder}/other")
print(state.model_checkpoint_path, ls.estimator.train.get_checkpoint_mtimes([prefix]))

# %% Each new checkpoint
for path in ls.estimator.train.checkpoints_iterator(f"{folder}/other", timeout=0.1):
    print(path)

# %% The list of checkpoints, and one that goes
ls.estimator.train.update_checkpoint_state(f"{folder}/other", prefix, [prefix])
ls.estimator.train.remove_checkpoint(prefix)

# %% Losses of classes
labels, logits = jnp.array([0, 2]), jnp.array([[2.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
by_number = ls.estimator.losses.sparse_softmax_cross_entropy(labels, logits)
by_vector = ls.estimator.losses.softmax_cross_entropy(jnp.eye(3)[labels], logits, label_smoothing=0.0)
assert np.isclose(by_number, by_vector)

# %% A loss of margins, and of directions
assert ls.estimator.losses.hinge_loss(labels=jnp.array([1.0, 0.0]), logits=jnp.array([0.5, -0.5])) == 0.5
x = jnp.array([[1.0, 0.0]])
assert ls.estimator.losses.cosine_distance(x, x, axis=1) == 0.0

# %% Errors between pairs of values
loss = ls.estimator.losses.mean_pairwise_squared_error(jnp.array([[1.0, 2.0]]), jnp.array([[1.0, 4.0]]))

# %% A loss of your own, with weights, added up as you say
weighted = ls.estimator.losses.compute_weighted_loss(
    jnp.array([1.0, 2.0]), weights=jnp.array([0.0, 1.0]), reduction=ls.estimator.losses.Reduction.SUM
)
assert weighted == 2.0


# %% All losses of a model_fn together
def model_fn(features, labels, mode):
    layer = keras.layers.Dense(3, kernel_regularizer="l2")
    ls.estimator.losses.sparse_softmax_cross_entropy(labels, layer(features["x"]))
    ls.estimator.losses.add_loss(jnp.float32(0.1))
    assert len(ls.estimator.losses.get_losses()) == 2
    print(ls.estimator.losses.get_regularization_losses(), ls.estimator.losses.get_regularization_loss())
    loss = ls.estimator.losses.get_total_loss()
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


run(model_fn)


# %% Metrics of a detector, at limits of your own
def model_fn(features, labels, mode):
    positive, chance = labels > 0, keras.layers.Dense(1, "sigmoid")(features["x"])[:, 0]
    loss = ls.estimator.losses.log_loss(positive, chance)
    metrics = {
        "precision": ls.estimator.metrics.precision_at_thresholds(positive, chance, [0.3, 0.7]),
        "recall": ls.estimator.metrics.recall_at_thresholds(positive, chance, [0.3, 0.7]),
        "true +": ls.estimator.metrics.true_positives_at_thresholds(positive, chance, [0.3, 0.7]),
        "false +": ls.estimator.metrics.false_positives_at_thresholds(positive, chance, [0.3, 0.7]),
        "true -": ls.estimator.metrics.true_negatives_at_thresholds(positive, chance, [0.3, 0.7]),
        "false -": ls.estimator.metrics.false_negatives_at_thresholds(positive, chance, [0.3, 0.7]),
    }
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


print(run(model_fn))


# %% The best trade between sensitivity and specificity
def model_fn(features, labels, mode):
    positive, chance = labels > 0, keras.layers.Dense(1, "sigmoid")(features["x"])[:, 0]
    loss = ls.estimator.losses.log_loss(positive, chance)
    metrics = {
        "sensitivity": ls.estimator.metrics.sensitivity_at_specificity(positive, chance, specificity=0.5),
        "specificity": ls.estimator.metrics.specificity_at_sensitivity(positive, chance, sensitivity=0.5),
    }
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


print(run(model_fn))


# %% Metrics of the k best classes
def model_fn(features, labels, mode):
    logits = keras.layers.Dense(3)(features["x"])
    loss = ls.estimator.losses.sparse_softmax_cross_entropy(labels, logits)
    wanted = keras.ops.cast(labels, "int64")[:, None]
    best = keras.ops.cast(keras.ops.top_k(logits, 2)[1], "int64")
    metrics = {
        "precision": ls.estimator.metrics.precision_at_k(wanted, logits, k=2),
        "recall": ls.estimator.metrics.recall_at_k(wanted, logits, k=2),
        "average precision": ls.estimator.metrics.average_precision_at_k(wanted, logits, k=2),
        "precision of the best": ls.estimator.metrics.precision_at_top_k(wanted, best, k=2),
        "recall of the best": ls.estimator.metrics.recall_at_top_k(wanted, best, k=2),
        "precision by its first name": ls.estimator.metrics.sparse_precision_at_k(wanted, logits, k=2),
        "average precision by its first name": ls.estimator.metrics.sparse_average_precision_at_k(wanted, logits, k=2),
    }
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


print(run(model_fn))


# %% Metrics by class
def model_fn(features, labels, mode):
    logits = keras.layers.Dense(3)(features["x"])
    loss = ls.estimator.losses.sparse_softmax_cross_entropy(labels, logits)
    predicted = keras.ops.argmax(logits, axis=-1)
    metrics = {
        "iou": ls.estimator.metrics.mean_iou(labels, predicted, num_classes=3),
        "accuracy": ls.estimator.metrics.mean_per_class_accuracy(labels, predicted, num_classes=3),
        "distance": ls.estimator.metrics.mean_cosine_distance(
            keras.ops.one_hot(labels, 3), keras.ops.normalize(logits), dim=1
        ),
    }
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


print(run(model_fn))


# %% Metrics of numbers
def model_fn(features, labels, mode):
    wanted = 1.0 + keras.ops.cast(labels, "float32")[:, None]
    predicted = keras.layers.Dense(1)(features["x"])
    loss = ls.estimator.losses.mean_squared_error(wanted, predicted)
    metrics = {
        "relative error": ls.estimator.metrics.mean_relative_error(wanted, predicted, normalizer=wanted),
        "below 1": ls.estimator.metrics.percentage_below(predicted, threshold=1.0),
        "mean": ls.estimator.metrics.mean_tensor(keras.ops.mean(predicted, axis=0)),
    }
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


print(run(model_fn))


# %% Summaries for TensorBoard, in a model_fn
def model_fn(features, labels, mode):
    logits = keras.layers.Dense(3)(features["x"])
    loss = ls.estimator.losses.sparse_softmax_cross_entropy(labels, logits)
    ls.estimator.summary.scalar("largest", jnp.max(logits))
    ls.estimator.summary.histogram("logits", logits)
    ls.estimator.summary.image("features", jnp.reshape(features["x"], (1, 2, 2, 1)))
    everything = ls.estimator.summary.merge_all()
    assert everything is not None
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


run(model_fn)


# %% Text for TensorBoard, and several summaries as one
def model_fn(features, labels, mode):
    logits = keras.layers.Dense(3)(features["x"])
    loss = ls.estimator.losses.sparse_softmax_cross_entropy(labels, logits)
    ls.estimator.summary.text("about", "a linear model")
    both = ls.estimator.summary.merge(
        [
            ls.estimator.summary.scalar("smallest", jnp.min(logits)),
            ls.estimator.summary.scalar("mean", jnp.mean(logits)),
        ]
    )
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    hook = ls.estimator.SummarySaverHook(save_steps=1, output_dir=folder, summary_op=both)
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[hook])


run(model_fn)

# %% Sound is refused
try:
    ls.estimator.summary.audio("sound", np.zeros((1, 100)), 8000)
except ls.errors.UnsupportedError as error:
    print(error)

# %% An event file of your own, one for a directory
writer = ls.estimator.summary.FileWriter(f"{folder}/events")
writer.add_summary(ls.summary.Summary(value=[ls.summary.Summary.Value(tag="loss", simple_value=0.5)]), 1)
writer.close()
shared = ls.estimator.summary.FileWriterCache.get(f"{folder}/shared")

# %% The value of a summary, written when a hook wants it
made = []


def model_fn(features, labels, mode):
    logits = keras.layers.Dense(3)(features["x"])
    loss = ls.estimator.losses.sparse_softmax_cross_entropy(labels, logits)
    made.append(ls.estimator.summary.scalar("largest", ls.estimator.train.record("largest logit", jnp.max(logits))))
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Write(ls.estimator.SessionRunHook):
    def before_run(self, run_context):
        return ls.estimator.SessionRunArgs("largest logit")

    def after_run(self, run_context, run_values):
        with ls.summary.EventFile(f"{folder}/largest") as events:
            ls.estimator.summary.write(events, made[0], run_values.results, step=1)


ls.estimator.Estimator(model_fn, f"{folder}/written").train(input_fn, steps=1, hooks=[Write()])

# %% A summary as TensorBoard's message
import dataclasses

message = ls.estimator.summary.as_summary(dataclasses.replace(made[0], value=0.5))
assert message.value[0].tag.endswith("largest")
