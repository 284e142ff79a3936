"""Every name of Keras is there, as it is there now."""

from __future__ import annotations

import importlib
import operator
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import pytest

import lockstep.compat.tensorflow.keras as tf_keras
from lockstep.errors import UnsupportedError

HERE = "lockstep.compat.tensorflow.keras"
ROOT = Path(keras.__path__[0])
FOUND = [file.parent.relative_to(ROOT).as_posix().replace("/", ".") for file in sorted(ROOT.rglob("__init__.py"))]
MODULES = [name for name in FOUND if not name.startswith(("src", "_", "."))]
# Classes with arguments of Keras 2, which make objects of Keras' classes, and what needs TensorFlow in Keras.
REPLACED = {
    "layers": {
        *("BatchNormalization", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "Dense", "Embedding", "GRU", "Input"),
        *("HashedCrossing", "Hashing", "InputLayer", "IntegerLookup", "LSTM", "SimpleRNN", "StringLookup"),
        "TextVectorization",
    },
    "metrics": {"KLDivergence"},
    "callbacks": {"BackupAndRestore", "LearningRateScheduler", "ModelCheckpoint", "ReduceLROnPlateau", "TensorBoard"},
    "models": {"load_model", "save_model"},
    "saving": {"load_model", "save_model"},
    "optimizers": {
        *("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lion", "Nadam", "RMSprop", "SGD"),
    },
    "optimizers.legacy": {"Adagrad", "Adam", "Ftrl", "Optimizer", "RMSprop", "SGD"},
    "utils": {"get_file", "set_random_seed", *(n for n in dir(keras.utils) if "_dataset_from_" in n)},
    "preprocessing": {n for n in dir(keras.preprocessing) if "_dataset_from_" in n},
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_has_the_objects_of_keras(name: str) -> None:
    ours, theirs = importlib.import_module(f"{HERE}.{name}"), importlib.import_module(f"keras.{name}")
    for each in (n for n in dir(theirs) if not n.startswith("_") and n not in REPLACED.get(name, ())):
        if f"{name}.{each}" not in MODULES:
            assert getattr(ours, each) is getattr(theirs, each), each
    assert set(ours.__all__) >= {n for n in dir(theirs) if not n.startswith("_")}


def test_the_package_itself() -> None:
    assert tf_keras.Model is keras.Model
    assert tf_keras.Sequential is keras.Sequential
    assert tf_keras.Input is tf_keras.layers.Input
    assert tf_keras.__version__ == keras.__version__
    assert {"layers", "optimizers", "estimator", "Model"} <= set(dir(tf_keras))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("layers.experimental.preprocessing", "Rescaling"),
        ("layers.experimental", "SyncBatchNormalization"),
        ("preprocessing.text", "Tokenizer"),
        ("preprocessing.image", "ImageDataGenerator"),
        ("preprocessing.image", "load_img"),
        ("preprocessing.sequence", "pad_sequences"),
        ("optimizers.schedules", "ExponentialDecay"),
        ("optimizers.experimental", "Adam"),
        ("mixed_precision", "set_global_policy"),
        ("mixed_precision.experimental", "set_policy"),
        ("experimental", "CosineDecay"),
        ("callbacks.experimental", "BackupAndRestore"),
        ("losses", "MSE"),
        ("losses", "kullback_leibler_divergence"),
        ("losses", "Reduction"),
        ("metrics", "mse"),
        ("metrics", "MeanIoU"),
        ("utils", "Sequence"),
        ("utils", "to_categorical"),
        ("applications.mobilenet_v2", "preprocess_input"),
    ],
)
def test_names_of_keras_2(module: str, name: str) -> None:
    scope: dict[str, object] = {}
    exec(f"from {HERE}.{module} import {name}\nimport {HERE}.{module} as m\nassert m.{name} is {name}", scope)
    parent = tf_keras
    for part in module.split("."):
        parent = getattr(parent, part)
    assert getattr(parent, name) is scope[name]


def test_what_is_replaced_in_keras_is_replaced_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from lockstep.compat.tensorflow.keras.datasets import mnist

    monkeypatch.setattr(keras.datasets.mnist, "load_data", lambda: "replaced")
    assert mnist.load_data() == "replaced"
    assert tf_keras.datasets.mnist.load_data() == "replaced"


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        ("metrics", "MeanTensor", "keras.metrics.Metric"),
        ("wrappers.scikit_learn", "KerasClassifier", "SKLearnClassifier"),
        ("layers", "AbstractRNNCell", "state_size"),
        ("backend", "ctc_decode", "keras.ops"),
    ],
)
def test_absent_names_come_with_advice(module: str, name: str, advice: str) -> None:
    found = importlib.import_module(f"{HERE}.{module}")
    with pytest.raises(AttributeError, match=advice):
        getattr(found, name)
    with pytest.raises(ImportError, match=advice):
        exec(f"from {HERE}.{module} import {name}")


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = tf_keras.layers.nonsense
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{HERE}.nonsense")
    assert not hasattr(tf_keras, "src")


def test_what_belongs_elsewhere_says_so() -> None:
    with pytest.raises(UnsupportedError, match="MirroredStrategy"):
        tf_keras.utils.multi_gpu_model(None, 2)


def test_data_functions_give_datasets_of_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    import lockstep.data

    asked: list[Any] = []

    def replaced(*args: Any, **kwargs: Any) -> Any:
        asked.append((args, kwargs))
        found: Any = lockstep.data.Dataset.from_tensor_slices([1, 2])
        found.class_names = ["one"]
        return found, found

    monkeypatch.setattr(lockstep.data, "image_dataset_from_directory", replaced)
    for module in (tf_keras.utils, tf_keras.preprocessing):
        for dataset in module.image_dataset_from_directory(1, a=2):
            assert [element.numpy() for element in dataset] == [1, 2]
            assert dataset.class_names == ["one"]
    assert asked == [((1,), {"a": 2})] * 2


@pytest.mark.slow
def test_keras_is_as_it_was_until_this_is_imported() -> None:
    asked = (
        "Model.fit_generator",
        "optimizers.Optimizer.lr",
        "layers.Layer.output_shape",
        "metrics.Metric.reset_states",
    )
    code = "import lockstep, keras, operator as o\n" + "\n".join(
        f"try: o.attrgetter({name!r})(keras); print({name!r})\nexcept AttributeError: pass" for name in asked
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == ""
    assert all(operator.attrgetter(name)(keras) for name in asked)
