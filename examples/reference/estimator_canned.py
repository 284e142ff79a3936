"""Examples of the reference: canned estimators, heads, hooks, exporters and feature columns."""

import os
import tempfile

import lockstep as ls

# isort: split
import jax.numpy as jnp
import keras
import numpy as np

folder = tempfile.mkdtemp()
column = ls.estimator.feature_column.numeric_column("x")


def input_fn():
    x = np.linspace(0, 1, 8, dtype="float32")[:, None]
    return ls.data.Dataset.from_tensor_slices(({"x": x}, (x[:, 0] > 0.5).astype("int32"))).batch(4)


def numbers_fn():
    x = np.linspace(0, 1, 8, dtype="float32")[:, None]
    return ls.data.Dataset.from_tensor_slices(({"x": x}, 2 * x)).batch(4)


def receiver_fn():
    x = ls.estimator.export.placeholder("float32", [None, 1])
    return ls.estimator.export.ServingInputReceiver({"x": x}, {"x": x})


# %% The mean of the labels, against which other models are compared
baseline = ls.estimator.BaselineClassifier(f"{folder}/baseline", n_classes=2)
baseline.train(input_fn, steps=2)
print(baseline.evaluate(input_fn)["accuracy"])

# %% The mean of numbers
baseline = ls.estimator.BaselineRegressor(f"{folder}/baseline_regressor")
baseline.train(numbers_fn, steps=2)

# %% A linear regression
linear = ls.estimator.LinearRegressor([column], model_dir=f"{folder}/linear_regressor")
linear.train(numbers_fn, steps=2)
print(next(linear.predict(numbers_fn))["predictions"])

# %% A deep regression
deep = ls.estimator.DNNRegressor([8], [column], f"{folder}/deep_regressor", optimizer="Adam")
deep.train(numbers_fn, steps=2)

# %% Wide and deep, for classes
both = ls.estimator.DNNLinearCombinedClassifier(
    f"{folder}/wide", linear_feature_columns=[column], dnn_feature_columns=[column], dnn_hidden_units=[8]
)
both.train(input_fn, steps=2)

# %% Wide and deep, for numbers
both = ls.estimator.DNNLinearCombinedRegressor(
    f"{folder}/wide_regressor", linear_feature_columns=[column], dnn_feature_columns=[column], dnn_hidden_units=[8]
)
both.train(numbers_fn, steps=2)

# %% A head of two classes
head = ls.estimator.BinaryClassHead()
model = ls.estimator.LinearEstimator(head, [column], model_dir=f"{folder}/binary")
model.train(input_fn, steps=2)

# %% A head of several classes
head = ls.estimator.MultiClassHead(n_classes=3)
model = ls.estimator.DNNEstimator(head, [8], [column], f"{folder}/classes")
model.train(input_fn, steps=2)

# %% A head of several labels at once
head = ls.estimator.MultiLabelHead(n_classes=3)
loss = head.loss(np.array([[1, 0, 1]]), np.array([[2.0, -1.0, 0.5]], "float32"))

# %% A head of numbers, with any estimator that takes one
head = ls.estimator.RegressionHead(label_dimension=1)
model = ls.estimator.DNNLinearCombinedEstimator(
    head, f"{folder}/regression", dnn_feature_columns=[column], dnn_hidden_units=[8]
)
model.train(numbers_fn, steps=2)

# %% The mean, for any head
model = ls.estimator.BaselineEstimator(ls.estimator.RegressionHead(), f"{folder}/mean")
model.train(numbers_fn, steps=2)

# %% Chances as labels, and counts as labels
chances = ls.estimator.LogisticRegressionHead()
counts = ls.estimator.PoissonRegressionHead()
print(chances.logits_dimension, counts.logits_dimension)

# %% Several heads of one network
first, second = ls.estimator.RegressionHead(name="price"), ls.estimator.BinaryClassHead(name="sold")
head = ls.estimator.MultiHead([first, second], head_weights=[1.0, 0.5])
assert isinstance(head, ls.estimator.Head)
assert head.logits_dimension == 2

# %% Metrics of your own beside an estimator's
classifier = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/metrics")
classifier.train(input_fn, steps=2)


def mean_chance(labels, predictions):
    mean = keras.metrics.Mean(name="chance")
    mean.update_state(predictions["logistic"])
    return {"chance": mean}


print(ls.estimator.add_metrics(classifier, mean_chance).evaluate(input_fn)["chance"])

# %% The features of serialised examples, for a classifier and for a regression
spec = ls.estimator.classifier_parse_example_spec([column], label_key="y")
print(spec, ls.estimator.regressor_parse_example_spec([column], label_key="y"))

# %% The best export: whenever an evaluation has a smaller loss
exporter = ls.estimator.BestExporter("best", receiver_fn, exports_to_keep=2)
classifier = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/exports")
ls.estimator.train_and_evaluate(
    classifier,
    ls.estimator.TrainSpec(input_fn, max_steps=2),
    ls.estimator.EvalSpec(input_fn, steps=1, exporters=[exporter]),
)
assert os.path.isdir(f"{folder}/exports/export/best")

# %% An export of every evaluation, and one at the end
latest = ls.estimator.LatestExporter("latest", receiver_fn, exports_to_keep=2)
final = ls.estimator.FinalExporter("final", receiver_fn)
spec = ls.estimator.EvalSpec(input_fn, exporters=[latest, final])


# %% An exporter of your own
class Announce(ls.estimator.Exporter):
    @property
    def name(self):
        return "announce"

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        print(checkpoint_path, eval_result["loss"])


spec = ls.estimator.EvalSpec(input_fn, exporters=[Announce()])


# %% A hook of your own
class Watch(ls.estimator.SessionRunHook):
    def before_run(self, run_context: ls.estimator.SessionRunContext):
        return ls.estimator.SessionRunArgs({"loss": "loss"})

    def after_run(self, run_context, run_values: ls.estimator.SessionRunValues):
        if run_values.results["loss"] < 0.01:
            run_context.request_stop()


classifier = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/hook")
classifier.train(input_fn, steps=2, hooks=[Watch()])


# %% What is done before and after each checkpoint
class Announced(ls.estimator.CheckpointSaverListener):
    def after_save(self, session, global_step_value):
        print("saved", global_step_value)


hook = ls.estimator.CheckpointSaverHook(f"{folder}/listened", save_steps=1, listeners=[Announced()])
classifier = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/listened")
classifier.train(input_fn, steps=2, saving_listeners=[Announced()])

# %% Summaries every so many steps, and a profile
hooks = [
    ls.estimator.SummarySaverHook(save_steps=100, output_dir=folder),
    ls.estimator.ProfilerHook(save_steps=1000, output_dir=folder),
]

# %% Workers that begin one after another
hook = ls.estimator.GlobalStepWaiterHook(wait_until_step=0)

# %% Values of the last step, when training has ended
hook = ls.estimator.FinalOpsHook({"loss": "loss"})

# %% When to do something: every so many steps or seconds
timer = ls.estimator.SecondOrStepTimer(every_steps=10)
if timer.should_trigger_for_step(10):
    timer.update_last_triggered_step(10)
assert not timer.should_trigger_for_step(11)

# %% Values that are fed at every step come from the input function: this is refused
try:
    ls.estimator.FeedFnHook(lambda: {"x": 1.0})
except ls.errors.UnsupportedError as error:
    print(error)

# %% A loss that is not finite
try:
    raise ls.estimator.NanLossDuringTrainingError
except RuntimeError as error:
    print(error)


# %% What is done before the first step of a new training
def init_fn(scaffold, session):
    print("weights are there")


scaffold = ls.estimator.Scaffold(init_fn=init_fn)

# %% Weights from another training, some of them by another name
ls.estimator.LinearClassifier([column], model_dir=f"{folder}/old").train(input_fn, steps=2)
warm = ls.estimator.WarmStartSettings(f"{folder}/old", vars_to_warm_start=".*linear.*")
classifier = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/new", warm_start_from=warm)
classifier.train(input_fn, steps=2)

# %% A vocabulary that has grown since the other training
with open(f"{folder}/old.txt", "w") as file:
    file.write("cat\ndog\n")
with open(f"{folder}/new.txt", "w") as file:
    file.write("dog\ncat\nbird\n")
vocabulary = ls.estimator.VocabInfo(f"{folder}/new.txt", 3, 0, f"{folder}/old.txt")

# %% The strategies of training and evaluation
strategy = ls.distribute.MirroredStrategy()
distribution = ls.estimator.DistributeConfig(train_distribute=strategy)
config = ls.estimator.RunConfig(experimental_distribute=distribution)

# %% Training ends when a metric of the evaluations is good, or does not get better
classifier = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/stopped")
early = ls.estimator.experimental
hooks = [
    early.stop_if_higher_hook(classifier, "accuracy", 0.99),
    early.stop_if_lower_hook(classifier, "loss", 0.01),
    early.stop_if_no_increase_hook(classifier, "accuracy", 1000),
    early.stop_if_no_decrease_hook(classifier, "loss", 1000),
]

# %% Training ends when a metric is above a limit
classifier = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/early")
hook = ls.estimator.experimental.stop_if_higher_hook(classifier, "accuracy", 0.99, min_steps=100)

# %% Training ends when a metric is below a limit
classifier = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/early")
hook = ls.estimator.experimental.stop_if_lower_hook(classifier, "loss", 0.01, min_steps=100)

# %% Training ends when a metric no longer grows
classifier = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/early")
hook = ls.estimator.experimental.stop_if_no_increase_hook(classifier, "accuracy", max_steps_without_increase=1000)

# %% Training ends when a metric no longer falls
classifier = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/early")
hook = ls.estimator.experimental.stop_if_no_decrease_hook(classifier, "loss", max_steps_without_decrease=1000)

# %% Training ends by a rule of your own
classifier = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/rule")
hook = ls.estimator.experimental.make_early_stopping_hook(
    classifier, lambda: os.path.exists(f"{folder}/stop"), run_every_secs=None, run_every_steps=10
)

# %% A worker that ends when a checkpoint of this step is there
classifier = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/worker")
hook = ls.estimator.experimental.make_stop_at_checkpoint_step_hook(classifier, last_step=1000)

# %% Metrics of all evaluations so far, by step
classifier = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/read")
classifier.train(input_fn, steps=2)
classifier.evaluate(input_fn)
print(ls.estimator.experimental.read_eval_metrics(classifier.eval_dir()))

# %% Evaluations in the middle of training, in the same process
classifier = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/memory")
hook = ls.estimator.experimental.InMemoryEvaluatorHook(classifier, input_fn, every_n_iter=100)

# %% Logits of a linear and of a deep part, in a model_fn
linear_part = ls.estimator.experimental.linear_logit_fn_builder(units=1, feature_columns=[column])
deep_part = ls.estimator.experimental.dnn_logit_fn_builder(
    units=1,
    hidden_units=[8],
    feature_columns=[column],
    activation_fn=keras.activations.relu,
    dropout=None,
    input_layer_partitioner=None,
    batch_norm=False,
)


# %% Columns in a model_fn: the input of a network
def with_columns(features, labels, mode):
    net = ls.estimator.feature_column.input_layer(features, [column])
    logits = keras.layers.Dense(1)(net)[:, 0]
    loss = ls.estimator.losses.sigmoid_cross_entropy(labels, logits)
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


ls.estimator.Estimator(with_columns, f"{folder}/columns").train(input_fn, steps=2)


# %% Columns in a model_fn: a linear model of them
def with_linear_model(features, labels, mode):
    logits = ls.estimator.feature_column.linear_model(features, [column])[:, 0]
    loss = ls.estimator.losses.sigmoid_cross_entropy(labels, logits)
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


ls.estimator.Estimator(with_linear_model, f"{folder}/linear_model").train(input_fn, steps=2)

# %% Columns as a layer of Keras
layer = ls.estimator.feature_column.DenseFeatures([column])
assert layer({"x": jnp.ones((2, 1))}).shape == (2, 1)

# %% Numbers as categories
day = ls.estimator.feature_column.categorical_column_with_identity("day", num_buckets=7)
vectors = ls.estimator.feature_column.embedding_column(day, dimension=2)

# %% Words of a file
with open(f"{folder}/words.txt", "w") as file:
    file.write("cat\ndog\n")
words = ls.estimator.feature_column.categorical_column_with_vocabulary_file("animal", f"{folder}/words.txt")

# %% Categories with weights
words = ls.estimator.feature_column.categorical_column_with_hash_bucket("words", 100)
weighted = ls.estimator.feature_column.weighted_categorical_column(words, "frequencies")

# %% One table for two columns
watched = ls.estimator.feature_column.categorical_column_with_identity("watched", 100)
wanted = ls.estimator.feature_column.categorical_column_with_identity("wanted", 100)
shared = ls.estimator.feature_column.shared_embeddings([watched, wanted], dimension=4)

# %% What serialised examples hold for some columns
print(ls.estimator.feature_column.make_parse_example_spec([column]))

# %% Columns of sequences are refused, with what to use instead
names = ("hash_bucket", "identity", "vocabulary_file", "vocabulary_list")
try:
    ls.estimator.feature_column.sequence_numeric_column("x")
except ls.errors.UnsupportedError as error:
    print(error)
try:
    ls.estimator.feature_column.sequence_categorical_column_with_identity("x", 10)
except ls.errors.UnsupportedError as error:
    print(error)

# %% Categories of sequences, by hash, are refused
try:
    ls.estimator.feature_column.sequence_categorical_column_with_hash_bucket("x", 10)
except ls.errors.UnsupportedError as error:
    print(error)

# %% Words of sequences are refused
try:
    ls.estimator.feature_column.sequence_categorical_column_with_vocabulary_file("x", "words.txt")
except ls.errors.UnsupportedError as error:
    print(error)

# %% Words of a list, in sequences, are refused
try:
    ls.estimator.feature_column.sequence_categorical_column_with_vocabulary_list("x", ["a"])
except ls.errors.UnsupportedError as error:
    print(error)

# %% A frame of pandas as input
import pandas

frame = pandas.DataFrame({"x": [0.0, 1.0]})
pandas_fn = ls.estimator.inputs.pandas_input_fn(frame, pandas.Series([0, 1]), batch_size=2, shuffle=False)

# %% Serving: tensors as they are
exported = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/served")
exported.train(input_fn, steps=2)
x = ls.estimator.export.placeholder("float32", [None, 1])
receiver = ls.estimator.export.build_raw_serving_input_receiver_fn({"x": x})
print(exported.export_saved_model(f"{folder}/raw", receiver))

# %% Serving: serialised examples
exported = ls.estimator.LinearClassifier([column], model_dir=f"{folder}/parsed")
exported.train(input_fn, steps=2)
spec = ls.estimator.feature_column.make_parse_example_spec([column])
receiver = ls.estimator.export.build_parsing_serving_input_receiver_fn(spec)
print(exported.export_saved_model(f"{folder}/examples", receiver))


# %% Serving: examples, parsed by a function of your own
def serving_input_receiver_fn():
    serialized = ls.estimator.export.placeholder("string", [None], name="examples")
    spec = ls.estimator.feature_column.make_parse_example_spec([column])
    features = ls.estimator.export.parse_example(serialized, spec)
    return ls.estimator.export.ServingInputReceiver(features, {"examples": serialized})


# %% Serving: a single tensor as features
def tensor_receiver_fn():
    x = ls.estimator.export.placeholder("float32", [None, 1])
    return ls.estimator.export.TensorServingInputReceiver(x, {"x": x})


# %% Export of a part that evaluates
x = ls.estimator.export.placeholder("float32", [None, 1])
y = ls.estimator.export.placeholder("int64", [None])
receiver = ls.estimator.experimental.build_raw_supervised_input_receiver_fn({"x": x}, {"y": y})


# %% What an export returns, by signature
def with_outputs(features, labels, mode):
    logits = keras.layers.Dense(2)(features["x"])
    chances = keras.ops.softmax(logits)
    outputs = {
        "serving_default": ls.estimator.export.ClassificationOutput(scores=chances),
        "predict": ls.estimator.export.PredictOutput({"chances": chances}),
        "regress": ls.estimator.export.RegressionOutput(logits[:, 0]),
    }
    assert all(isinstance(output, ls.estimator.export.ExportOutput) for output in outputs.values())
    if mode == ls.estimator.ModeKeys.PREDICT:
        return ls.estimator.EstimatorSpec(mode, predictions={"chances": chances}, export_outputs=outputs)
    loss = ls.estimator.losses.sparse_softmax_cross_entropy(labels, logits)
    train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


exported = ls.estimator.Estimator(with_outputs, f"{folder}/outputs")
exported.train(input_fn, steps=2)
x = ls.estimator.export.placeholder("float32", [None, 1])
exported.export_saved_model(f"{folder}/signatures", ls.estimator.export.build_raw_serving_input_receiver_fn({"x": x}))

# %% What a part that evaluates returns
output = ls.estimator.export.EvalOutput(loss=jnp.float32(0.5), predictions={"y": jnp.ones(2)})
