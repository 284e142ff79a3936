"""Views: modules that show a module of Keras, and this package's names in place of some.

A view holds no copies. It asks, in this order: the module of this package that belongs to it, the module of `keras`,
and for some `keras._tf_keras.keras`, where Keras keeps old names.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from lockstep.compat.tensorflow import _jax_methods

_HERE = "lockstep.compat.tensorflow.keras"

# Modules of this package whose names stand in place of, or beside, those of a module of Keras.
_OURS = {
    "backend": "_backend",
    "callbacks": "_callbacks",
    "layers": "_layers",
    "metrics": "_metric_aliases",
    "models": "_models",
    "optimizers": "_optimizers",
    "optimizers.experimental": "_optimizers",
    "optimizers.legacy": "_legacy_optimizers",
    "saving": "_models",
    "utils": "_utils",
}
_PREPROCESSING = (
    *("CategoryEncoding", "CenterCrop", "Discretization", "HashedCrossing", "Hashing", "IntegerLookup"),
    *("Normalization", "RandomContrast", "RandomCrop", "RandomFlip", "RandomRotation", "RandomTranslation"),
    *("RandomZoom", "Rescaling", "Resizing", "StringLookup", "TextVectorization"),
)
# Functions of Keras 2's backend that keep name and meaning.
_BACKEND = (
    *("abs", "cos", "equal", "exp", "greater", "greater_equal", "less", "less_equal", "log", "max", "maximum", "min"),
    *("minimum", "not_equal", "prod", "reshape", "round", "sigmoid", "sign", "sin", "softplus", "softsign", "square"),
    *("stack", "stop_gradient", "sum", "tanh"),
)
# Names that Keras 2 had in another module, or under another name: "module" or "module:name". A module with no names
# here is one that Keras 3 does not have, whose view gives advice.
_MOVED: dict[str, dict[str, str]] = {
    "": {"Input": f"{_HERE}._layers", "latest_checkpoint": f"{_HERE}._saves"},
    "backend": dict.fromkeys(_BACKEND, "keras.ops"),
    "backend.experimental": {},
    "callbacks.experimental": {"BackupAndRestore": f"{_HERE}._callbacks"},
    "estimator": {"model_to_estimator": "lockstep.estimator"},
    "experimental": {
        **dict.fromkeys(("CosineDecay", "CosineDecayRestarts"), "keras.optimizers.schedules"),
        "SidecarEvaluator": f"{_HERE}._sidecar",
        **dict.fromkeys(("LinearModel", "WideDeepModel"), f"{_HERE}._premade"),
    },
    "layers.experimental": {
        "EinsumDense": "keras.layers",
        # Statistics are those of the global batch already.
        "SyncBatchNormalization": f"{_HERE}._layers:BatchNormalization",
    },
    "layers.experimental.preprocessing": dict.fromkeys(_PREPROCESSING, f"{_HERE}.layers"),
    "metrics.experimental": {},
    "mixed_precision.experimental": {
        **dict.fromkeys(("LossScaleOptimizer", "Policy", "global_policy"), "keras.mixed_precision"),
        "set_policy": "keras.mixed_precision:set_global_policy",
    },
    "models.experimental": {},
    "preprocessing": dict.fromkeys(
        ("image_dataset_from_directory", "text_dataset_from_directory", "timeseries_dataset_from_array"),
        f"{_HERE}._utils",
    ),
    "preprocessing.text": {},
    "utils": {"SidecarEvaluator": f"{_HERE}._sidecar"},
    "utils.experimental": {
        "DatasetCreator": f"{_HERE}._dataset_creator",
        "SidecarEvaluator": f"{_HERE}._sidecar",
    },
    "wrappers.scikit_learn": {},
}
# keras._tf_keras has aliases for programs of Keras 2; in these modules they do not import TensorFlow.
_OLD_NAMES = ("losses", "metrics", "preprocessing.image", "preprocessing.sequence", "preprocessing.text")

# Advice about names of Keras 2 that have no counterpart here.
_ADVICE: dict[str, str] = {
    "callbacks.BaseLogger": "Keras 3 averages metrics itself; leave the callback out.",
    "callbacks.SidecarEvaluatorModelExport": "Use callbacks.ModelCheckpoint, and an evaluator task that loads it.",
    "dtensor": "Shard with keras.distribution, or train under a strategy of lockstep.distribute.",
    "experimental.SequenceFeatures": "Use keras.layers preprocessing layers.",
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
    "wrappers.scikit_learn.KerasClassifier": "Keras 3 has it as keras.wrappers.SKLearnClassifier.",
    "wrappers.scikit_learn.KerasRegressor": "Keras 3 has it as keras.wrappers.SKLearnRegressor.",
}
_BELOW: dict[str, str] = {
    "backend": "Keras 3 has its functions in keras.ops.",
    "dtensor": _ADVICE["dtensor"],
}


# No copies: a program, or a test, may replace a function in keras itself (keras.datasets.mnist.load_data).
class View(ModuleType):
    """A module that looks its names up elsewhere, each time."""

    def __getattr__(self, name: str) -> Any:
        _jax_methods.note_import(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        return lookup(_inner(self.__name__), name)

    def __dir__(self) -> list[str]:
        return names(_inner(self.__name__))


def lookup(inner: str, name: str) -> Any:
    """Returns what `name` is in the view of `keras.<inner>`.

    Raises:
        AttributeError: If there is no such name; it says what to use instead, if that is known.
    """
    if name == "__all__":
        return [n for n in names(inner) if not n.startswith("_")]
    # Python asks modules for __path__, __file__ and the like; keras.src is private.
    if (name.startswith("_") and name != "__version__") or name == "src":
        raise AttributeError(f"module {_full(inner)!r} has no attribute {name!r}")
    own = _own_module(inner)
    if own is not None and name in own.__all__:
        return getattr(own, name)
    if name in _MOVED.get(inner, {}):
        module, _, other = _MOVED[inner][name].partition(":")
        return getattr(importlib.import_module(module), other or name)
    if _is_view(_join(inner, name)):
        return importlib.import_module(_full(_join(inner, name)))
    for keras_module in _keras_modules(inner):
        # hasattr imports modules that Keras loads late.
        if name in vars(keras_module) or hasattr(keras_module, name):
            return getattr(keras_module, name)
    raise AttributeError(f"module {_full(inner)!r} has no attribute {name!r}. {_advice(inner, name)}".rstrip())


def _advice(inner: str, name: str) -> str:
    """Returns what to use instead of `name` of `keras.<inner>`, or nothing if that is unknown."""
    full = f"{inner}.{name}" if inner else name
    return _ADVICE.get(full, _BELOW.get(inner, ""))


def names(inner: str) -> list[str]:
    """Returns the names in the view of `keras.<inner>`."""
    own = _own_module(inner)
    public: set[str] = {*(own.__all__ if own is not None else ()), *_MOVED.get(inner, ())}
    for keras_module in _keras_modules(inner):
        public.update(name for name in dir(keras_module) if not name.startswith("_") and name != "src")
    inside = [other for other in (*_OURS, *_MOVED) if other.rpartition(".")[0] == inner and other]
    return sorted(public | {other.rpartition(".")[2] for other in inside})


def _own_module(inner: str) -> ModuleType | None:
    return importlib.import_module(f"{_HERE}.{_OURS[inner]}") if inner in _OURS else None


def _keras_modules(inner: str) -> Iterator[ModuleType]:
    for root in ("keras", "keras._tf_keras.keras") if inner in _OLD_NAMES else ("keras",):
        name = f"{root}.{inner}" if inner else root
        if _exists(name):
            yield importlib.import_module(name)


def _is_view(inner: str) -> bool:
    parts = inner.split(".")
    if any(part.startswith("_") for part in parts) or parts[0] == "src":
        return False
    return inner in _OURS or inner in _MOVED or _exists(f"keras.{inner}")


def _exists(module: str) -> bool:
    if module in sys.modules:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _inner(module: str) -> str:
    return module[len(_HERE) + 1 :]


def _full(inner: str) -> str:
    return f"{_HERE}.{inner}" if inner else _HERE


def _join(inner: str, name: str) -> str:
    return f"{inner}.{name}" if inner else name


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes a view for `import lockstep.compat.tensorflow.keras.<module of keras>`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(_HERE + "."):
            return None
        inner = _inner(fullname)
        if _is_view(inner):
            # A package, so that `import ...keras.layers.experimental` asks for the inner module next.
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        _explain(inner)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return View(spec.name, f"What `keras.{_inner(spec.name)}` has, and what Keras 2 had there.")

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing: a view has no content of its own."""


def _explain(inner: str) -> None:
    """Raises an error with advice for a name that `from ... import` does not find, if there is any.

    Python drops the message of the `AttributeError` in that case, but asks for a module of that name before.
    """
    parent, _, name = inner.rpartition(".")
    text = _advice(parent, name)
    if text and (parent == "" or _is_view(parent)):
        raise ImportError(f"cannot import name {name!r} from {_full(parent)!r}. {text}")


def install() -> None:
    """Lets the views be imported, once per process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        # Last: modules that this package has are found before.
        sys.meta_path.append(_Finder())
