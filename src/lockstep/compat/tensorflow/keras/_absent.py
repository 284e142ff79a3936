"""Advice about names of Keras 2 that have no counterpart here."""

from __future__ import annotations

_ADVICE: dict[str, str] = {
    "callbacks.BaseLogger": "Keras 3 averages metrics itself; leave the callback out.",
    "callbacks.SidecarEvaluatorModelExport": "Use callbacks.ModelCheckpoint, and an evaluator task that loads it.",
    "dtensor": "Shard with keras.distribution, or train under a strategy of lockstep.distribute.",
    "experimental.LinearModel": "Write it as keras.Sequential([keras.layers.Dense(units)]).",
    "experimental.SequenceFeatures": "Use keras.layers preprocessing layers.",
    "experimental.SidecarEvaluator": "Use an evaluator task that loads what callbacks.ModelCheckpoint saved.",
    "experimental.WideDeepModel": "Add the outputs of two models with the functional API.",
    "layers.AbstractRNNCell": "Derive the cell from keras.layers.Layer, with state_size and output_size.",
    "layers.LocallyConnected1D": "Keras 3 has no locally connected layers; write one from keras.layers.Layer.",
    "layers.LocallyConnected2D": "Keras 3 has no locally connected layers; write one from keras.layers.Layer.",
    "layers.RandomHeight": "A size that varies cannot be compiled; use keras.layers.RandomZoom.",
    "layers.RandomWidth": "A size that varies cannot be compiled; use keras.layers.RandomZoom.",
    "layers.experimental.RandomFourierFeatures": "Keras 3 dropped it; write it from keras.layers.Layer.",
    "layers.experimental.preprocessing.PreprocessingLayer": "Derive from keras.layers.Layer.",
    "losses.cosine_proximity": "Its name is losses.cosine_similarity.",
    "metrics.MeanMetricWrapper": "Derive from keras.metrics.Mean, or pass the function to compile(metrics=[...]).",
    "metrics.MeanRelativeError": "Keras 3 dropped it; derive it from keras.metrics.Mean.",
    "metrics.MeanTensor": "Keras 3 dropped it; derive it from keras.metrics.Metric, with a variable of the shape.",
    "models.experimental.SharpnessAwareMinimization": "Keras 3 dropped it; override train_step of the model.",
    "models.model_from_yaml": "It was removed for its insecurity; use models.model_from_json.",
    "utils.GeneratorEnqueuer": "Pass the generator to model.fit, or use lockstep.data.Dataset.from_generator.",
    "utils.OrderedEnqueuer": "Pass the Sequence to model.fit; its workers= runs it in parallel.",
    "utils.SequenceEnqueuer": "Pass the Sequence to model.fit; its workers= runs it in parallel.",
    "utils.experimental.DatasetCreator": "Give model.fit a lockstep.data.Dataset; each worker builds its own shard.",
    "wrappers.scikit_learn.KerasClassifier": "Keras 3 has it as keras.wrappers.SKLearnClassifier.",
    "wrappers.scikit_learn.KerasRegressor": "Keras 3 has it as keras.wrappers.SKLearnRegressor.",
}
_BELOW: dict[str, str] = {
    "backend": "Keras 3 has its functions in keras.ops.",
    "dtensor": _ADVICE["dtensor"],
}


def advice(inner: str, name: str) -> str:
    """Returns what to use instead of `name` of `keras.<inner>`, or nothing if that is unknown."""
    full = f"{inner}.{name}" if inner else name
    return _ADVICE.get(full, _BELOW.get(inner, ""))
