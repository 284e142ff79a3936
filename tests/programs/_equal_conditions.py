"""Makes TensorFlow and lockstep start from the same numbers, and read the same stand-ins, for `third_party`.

Everything here is done to both alike. The functions that are replaced are called first, so that a program fails where
they fail; their results are exchanged for numbers that are a function of a shape and of how often it was asked for.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import io
import math
import random
import sys
import tempfile
import types
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.programs import _gym, _stand_ins, _tfds

EPOCHS, STEPS, ROWS = 2, 10, 512
DRAWN: Counter[str] = Counter()
RESULTS: list[tuple[str, float]] = []
# What programs drew where numbers cannot be the same for both: in compiled code, and by samplers.
DRAWN_OTHERWISE: set[str] = set()


_prepared: set[str] = set()


def begin(full: bool) -> None:
    """Sets what a program begins with: the sizes of stand-ins, and the generators of Python and numpy."""
    if full:
        _stand_ins.SIZES.update(train=60000, test=10000)
    random.seed(0)
    np.random.seed(0)


def prepare(mode: str) -> None:
    """Imports TensorFlow, or lockstep in its place, and changes what is said above; once in a process."""
    if _prepared:
        return
    _prepared.add(mode)
    root = "tensorflow" if mode == "tensorflow" else "lockstep.compat.tensorflow"
    tf = importlib.import_module(root)
    _stubs()
    _downloads(tf, mode)
    _tfds.install(tf, mode)
    _weights(tf, mode)
    if mode == "tensorflow":
        _rates(tf)
    _random_operations(tf)
    _order(tf)
    _short(tf, mode)
    # Graphviz is a program of its own.
    tf.keras.utils.plot_model = lambda *_, **__: None


def _draw(key: str, shape: Any) -> Any:
    DRAWN[key] += 1
    return _stand_ins.draws(f"{key} {DRAWN[key]}").uniform(-1, 1, shape)


def _stubs() -> None:
    """Puts small modules in the place of packages that draw, play or show."""
    for name in ("IPython", "IPython.display", "tensorflow_docs", "tensorflow_docs.vis", "tensorflow_docs.vis.embed"):
        if name not in sys.modules:
            sys.modules[name] = _Silent(name)
    # Matplotlib asks for it.
    sys.modules["IPython"].version_info = (8, 24)  # pyright: ignore[reportAttributeAccessIssue]
    sys.modules["IPython"].display = sys.modules["IPython.display"]  # pyright: ignore[reportAttributeAccessIssue]
    docs = sys.modules["tensorflow_docs"]
    docs.vis = sys.modules["tensorflow_docs.vis"]  # pyright: ignore[reportAttributeAccessIssue]
    sys.modules["gym"] = sys.modules["gymnasium"] = _gym  # pyright: ignore[reportArgumentType]
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.show = lambda *_, **__: plt.close("all")


class _Silent(types.ModuleType):
    """A module whose functions do nothing."""

    __path__ = ()  # pyright: ignore[reportAssignmentType]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def _downloads(tf: Any, mode: str) -> None:
    def urlretrieve(url: str, filename: Any = None, *_: Any, **__: Any) -> Any:
        if filename is None:
            filename = tempfile.mkstemp()[1]
        _stand_ins.write(str(url), filename)
        return str(filename), {}

    def urlopen(url: Any, *_: Any, **__: Any) -> Any:
        path = tempfile.mkstemp()[1]
        _stand_ins.write(getattr(url, "full_url", url), path)
        return io.BytesIO(Path(path).read_bytes())

    urllib.request.urlretrieve, urllib.request.urlopen = urlretrieve, urlopen  # pyright: ignore[reportAttributeAccessIssue]
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("keras", "lockstep", "tensorflow"):
            space = getattr(module, "__dict__", {})
            if "urlretrieve" in space:
                space["urlretrieve"] = urlretrieve
            # Stand-ins have other hashes than the files that they stand for.
            if "validate_file" in space:
                space["validate_file"] = lambda *_, **__: True
    import pandas as pd

    read_csv = pd.read_csv

    def read(path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, str) and path.startswith(("http:", "https:")):
            # The name stays, for its ending says how it is compressed.
            local = Path(tempfile.mkdtemp()) / path.rsplit("/", 1)[-1]
            _stand_ins.write(path, local)
            path = str(local)
        return read_csv(path, *args, **kwargs)

    pd.read_csv = read
    # Trained weights of models cannot be had; they are those that a new model begins with.
    applications = tf.keras.applications
    for name in dir(applications):
        member = getattr(applications, name)
        if isinstance(member, types.ModuleType):
            for inner in dir(member):
                _without_weights(member, inner)
        else:
            _without_weights(applications, name)


def _without_weights(module: Any, name: str) -> None:
    build = getattr(module, name)
    if not name[:1].isupper() or not callable(build):
        return

    def model(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("weights", "imagenet") == "imagenet":
            kwargs["weights"] = None
        return build(*args, **kwargs)

    setattr(module, name, model)


def _weights(tf: Any, mode: str) -> None:
    if mode == "tensorflow":
        names = ["keras.src.initializers.initializers", "keras.src.initializers.initializers_v1"]
        names += ["tensorflow.python.ops.init_ops", "tensorflow.python.ops.init_ops_v2"]
    else:
        names = ["keras.src.initializers.random_initializers"]
    found = [kind for name in names for kind in vars(importlib.import_module(name)).values() if isinstance(kind, type)]
    # Each class once, though it has several names: each call draws one number for each weight.
    for kind in dict.fromkeys(found):
        call = vars(kind).get("__call__")
        words = ("Random", "Normal", "Uniform", "VarianceScaling", "Orthogonal")
        if call is not None and any(word in kind.__name__ for word in words):
            kind.__call__ = _initial(call, tf, mode)  # pyright: ignore[reportAttributeAccessIssue]


def _rates(tf: Any) -> None:
    """Makes optimizers take `lr=`, as TensorFlow did up to 2.10 and lockstep does; 2.15 warns and leaves it out."""
    for kind in vars(tf.keras.optimizers).values():
        if isinstance(kind, type) and issubclass(kind, tf.keras.optimizers.Optimizer):
            kind.__init__ = _with_rate(kind.__init__)  # pyright: ignore[reportAttributeAccessIssue]


def _with_rate(begin: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(begin)
    def with_rate(self: Any, *args: Any, **kwargs: Any) -> None:
        if "lr" in kwargs:
            kwargs["learning_rate"] = kwargs.pop("lr")
        begin(self, *args, **kwargs)

    return with_rate


def _initial(call: Callable[..., Any], tf: Any, mode: str) -> Callable[..., Any]:
    def initial(self: Any, shape: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        result = call(self, shape, dtype, *args, **kwargs) if args or kwargs or dtype else call(self, shape)
        sizes = tuple(int(size) for size in shape)
        fans = max(1, sum(sizes[-2:]) * math.prod(sizes[:-2])) if sizes else 1
        values = _draw(f"weights {sizes}", sizes) * math.sqrt(6 / fans)
        if mode == "tensorflow":
            return tf.constant(values, result.dtype)
        import keras
        from keras.src.backend.common.stateless_scope import in_stateless_scope

        if in_stateless_scope():
            # Shapes alone are wanted; the variable asks again when it begins.
            DRAWN[f"weights {sizes}"] -= 1
        return keras.ops.convert_to_tensor(np.asarray(values, "float32"), dtype=result.dtype)

    return initial


def note_models(space: dict[str, Any], tf: Any) -> None:
    """Adds what the weights of a program's models sum up to at its end, unless it drew other numbers on each side."""
    for name, value in sorted(space.items()):
        if isinstance(value, tf.keras.Model) and not DRAWN_OTHERWISE:
            weights = value.trainable_weights if value.built else []
            RESULTS.extend((f"weights {name}", float(np.abs(np.asarray(w)).sum())) for w in weights)


def _random_operations(tf: Any) -> None:
    names = ("categorical", "gamma", "poisson", "stateless_normal", "stateless_uniform")
    for module, own in ((tf.random, names), (tf.nn, ("nce_loss", "sampled_softmax_loss", "dropout"))):
        for name in own:
            _noted(module, name)
    for name in ("normal", "uniform", "truncated_normal"):
        _fixed(tf.random, name, tf)


def _noted(module: Any, name: str) -> None:
    operation = getattr(module, name)

    @functools.wraps(operation)
    def noted(*args: Any, **kwargs: Any) -> Any:
        DRAWN_OTHERWISE.add(name)
        return operation(*args, **kwargs)

    setattr(module, name, noted)


def _fixed(module: Any, name: str, tf: Any) -> None:
    operation = getattr(module, name)

    def fixed(shape: Any, *args: Any, **kwargs: Any) -> Any:
        result = operation(shape, *args, **kwargs)
        try:
            # Only where the value is there: a constant of a compiled function would be the same in each call.
            array = np.asarray(result.numpy() if tf.executing_eagerly() else None)
        except Exception:
            DRAWN_OTHERWISE.add(name)
            return result
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            return result
        unit = _draw(f"{name} {array.shape}", array.shape)
        given = [*args, None, None]
        if name == "uniform":
            low, high = kwargs.get("minval", given[0]) or 0, kwargs.get("maxval", given[1])
            values = low + (unit + 1) / 2 * ((1 if high is None else high) - low)
        else:
            mean, deviation = kwargs.get("mean", given[0]) or 0, kwargs.get("stddev", given[1])
            values = mean + unit * math.sqrt(3) * (1 if deviation is None else deviation)
        return tf.constant(np.asarray(values), result.dtype)

    setattr(module, name, fixed)


def _order(tf: Any) -> None:
    shuffle = tf.data.Dataset.shuffle

    def in_order(self: Any, *args: Any, **kwargs: Any) -> Any:
        shuffle(self, *args, **kwargs)
        return self

    tf.data.Dataset.shuffle = in_order
    reorder = tf.random.shuffle

    def as_given(value: Any, *args: Any, **kwargs: Any) -> Any:
        reorder(value, *args, **kwargs)
        return tf.convert_to_tensor(value)

    tf.random.shuffle = as_given
    # It shuffles by itself.
    make = tf.data.experimental.make_csv_dataset
    tf.data.experimental.make_csv_dataset = lambda *args, **kwargs: make(*args, **{**kwargs, "shuffle": False})
    # As all of its class serve: what is dropped differs from draw to draw.
    tf.keras.layers.Dropout.call = lambda self, inputs, training=None: inputs


def _cut(data: Any) -> Any:
    if isinstance(data, tuple | list):
        cut = [_cut(part) for part in data]
        return tuple(cut) if isinstance(data, tuple) else cut
    if isinstance(data, dict):
        return {key: _cut(part) for key, part in data.items()}
    return data[:ROWS] if hasattr(data, "shape") and len(data.shape) else data


def _short(tf: Any, mode: str) -> None:
    model, dataset = tf.keras.Model, tf.data.Dataset

    def shorter(data: Any, steps: Any) -> Any:
        if isinstance(data, dataset):
            return data if steps else data.take(STEPS)
        return _cut(data) if not callable(getattr(data, "__next__", None)) else data

    fit, evaluate = model.fit, model.evaluate

    class FirstLoss(tf.keras.callbacks.Callback):
        """Keeps the loss of the first step, which is that of the weights that a model begins with."""

        def on_train_begin(self, logs: Any = None) -> None:
            self.known = False

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if not self.known and logs and "loss" in logs:
                loss = float(logs["loss"])
                if mode == "tensorflow":
                    # Keras 2 logs the sum over the replicas after a batch; an epoch's loss is the mean.
                    loss /= self.model.distribute_strategy.num_replicas_in_sync
                RESULTS.append(("first loss", loss))
            self.known = True

    def short_fit(self: Any, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        first = kwargs.get("initial_epoch", 0)
        for place, name in enumerate(("batch_size", "epochs", "verbose", "callbacks")):
            if place < len(args):
                kwargs[name] = args[place]
        kwargs["epochs"] = min(kwargs.get("epochs", 1), first + EPOCHS)
        steps = kwargs.get("steps_per_epoch")
        if steps:
            kwargs["steps_per_epoch"] = min(int(steps), STEPS)
        if kwargs.get("validation_steps"):
            kwargs["validation_steps"] = min(int(kwargs["validation_steps"]), 5)
        x, y = shorter(x, steps), None if y is None else shorter(y, steps)
        for name in ("validation_data", "sample_weight"):
            if kwargs.get(name) is not None:
                kwargs[name] = shorter(kwargs[name], kwargs.get("validation_steps"))
        kwargs["shuffle"] = False
        given = kwargs.get("callbacks") or []
        kwargs["callbacks"] = [*(given if isinstance(given, list | tuple) else [given]), FirstLoss()]
        history = fit(self, x, *([] if y is None else [y]), **kwargs)
        for name, values in history.history.items():
            RESULTS.extend((f"fit {name}", float(value)) for value in values if np.ndim(value) == 0)
        return history

    def short_evaluate(self: Any, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        x, y = shorter(x, kwargs.get("steps")), None if y is None else shorter(y, None)
        result = evaluate(self, x, *([] if y is None and not args else [y]), *args, **kwargs)
        values = list(result.values()) if isinstance(result, dict) else np.ravel(result).tolist()
        RESULTS.extend(("evaluate", float(value)) for value in values)
        return result

    model.fit, model.evaluate = short_fit, short_evaluate
    # It imports this module, for what it keeps.
    from tests.programs._equal_estimators import short_both, short_estimator

    estimators = {tf.estimator.Estimator, getattr(tf.compat.v1.estimator, "Estimator", tf.estimator.Estimator)}
    for estimator in estimators:
        short_estimator(estimator)
    for module in (tf.estimator, tf.compat.v1.estimator):
        module.train_and_evaluate = short_both(module.train_and_evaluate)


builtins.display = lambda *values, **_: print(*values)  # pyright: ignore[reportAttributeAccessIssue]
builtins.get_ipython = lambda: _Silent("ipython")  # pyright: ignore[reportAttributeAccessIssue]
