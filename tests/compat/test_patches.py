"""Attributes of Keras and JAX that compat changes: its README lists them all, and plain Keras is as it was."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import LockstepError

TABLE = Path(inspect.getfile(tf)).with_name("README.md")

# Imports first what the change is not to be taken for: modules, and the adapter of lockstep.data.
CHANGED = """
import json, sys
import jax._src.array, keras, keras.src.legacy.preprocessing.image
if {package!r} != "lockstep":
    import lockstep.data
    lockstep.data.Dataset

def attributes():
    # Values, not ids: what is kept alive has no other's address.
    found = {{}}
    for name, module in sorted(sys.modules.items()):
        if module is None or not name.startswith(("keras.src", "jax._src")):
            continue
        for key, value in list(vars(module).items()):
            if not key.startswith("__") and not isinstance(value, type(sys)):
                found[name, name.rpartition(".")[2] + "." + key] = value
            if isinstance(value, type) and value.__module__.startswith(("keras", "jax")):
                for inner, attribute in list(vars(value).items()):
                    found[id(value), value.__qualname__ + "." + inner] = attribute
    return found

before = attributes()
owners = {{owner for owner, _ in before}}
import {package}
after = attributes()
print(json.dumps(sorted({{name for (owner, name), value in after.items() if owner in owners
    and before.get((owner, name), sys) is not value}})))
"""

PLAIN = """
import inspect, json, re, sys
if sys.argv[1] == "with":
    import lockstep.compat.tensorflow
import jax, jax.numpy as jnp, keras, numpy as np, zipfile
keras.utils.set_random_seed(1)
x, y = np.arange(24, dtype="float32").reshape(8, 3) / 24, np.arange(8) % 2
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(2)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
history = model.fit(x, y, batch_size=4, epochs=2, verbose=0)
model.save(sys.argv[2] + "/a.keras")
model.save_weights(sys.argv[2] + "/a.weights.h5")
loaded = keras.models.load_model(sys.argv[2] + "/a.keras")
loaded.load_weights(sys.argv[2] + "/a.weights.h5")
config = zipfile.ZipFile(sys.argv[2] + "/a.keras").read("config.json").decode()
config = re.sub('"shared_object_id": [0-9]+', "", config)  # An address.

def refused(function, *arguments, **named):
    try:
        function(*arguments, **named)
    except Exception as error:
        return type(error).__name__ + ": " + str(error)

class Scaled(keras.layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(None, "ones")
        self.shift = self.add_weight((3,), "zeros", name="shift")

    def call(self, x):
        return x * self.scale + self.shift

layer = Scaled()
scaled = layer(x)
classes = [keras.Model, keras.Sequential, keras.layers.Layer, keras.layers.Dense, keras.optimizers.Optimizer,
           keras.optimizers.Adam, keras.metrics.Metric, keras.losses.Loss, keras.Variable]
methods = ["__init__", "fit", "evaluate", "predict", "compile", "save", "save_weights", "load_weights", "add_weight",
           "add", "apply_gradients", "apply", "reset_state"]
print(json.dumps({
    "history": history.history,
    "evaluated": model.evaluate(x, y, verbose=0),
    "predicted": model.predict(x, verbose=0).tolist(),
    "loaded": loaded.predict(x, verbose=0).tolist(),
    "config": config,
    "weights": [(v.path, v.name, np.asarray(v).tolist()) for v in [*model.variables, *model.optimizer.variables]],
    "scaled": [np.asarray(scaled).tolist(), [(v.path, list(v.shape)) for v in layer.weights]],
    "iterations": int(model.optimizer.iterations),
    "shapes": [model.input_shape, model.output_shape, str(model.inputs), str(model.outputs)],
    "refusals": [refused(keras.layers.Dense, 2, bogus=1), refused(keras.optimizers.Adam, bogus=1),
                 refused(model.compile, bogus=1), refused(keras.Sequential([keras.layers.Dense(2)]).predict, None)],
    "signatures": {f"{c.__name__}.{m}": str(inspect.signature(getattr(c, m))) for c in classes for m in methods
                   if hasattr(c, m)},
    "jax": [hasattr(jnp.ones(1), name) for name in ("numpy", "get_shape", "set_shape")]
         + [jax.jit(lambda v: v + hasattr(v, "numpy"))(1.0).item()],
}, default=str))
"""


def output_of(code: str, *arguments: str) -> Any:
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, timeout=240, capture_output=True, text=True
    )
    return json.loads(process.stdout.splitlines()[-1])


def listed() -> set[str]:
    rows = [line for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([\w.]+)`", row.split(" | ")[0])}


@pytest.mark.slow
def test_the_table_lists_every_changed_attribute() -> None:
    assert set(output_of(CHANGED.format(package="lockstep.compat.tensorflow"))) == listed()


@pytest.mark.slow
def test_lockstep_alone_changes_nothing() -> None:
    assert output_of(CHANGED.format(package="lockstep")) == []


@pytest.mark.slow
def test_plain_keras_is_as_it_was(tmp_path: Path) -> None:
    found = {}
    for way in ("without", "with"):
        (tmp_path / way).mkdir()
        found[way] = output_of(PLAIN, way, str(tmp_path / way))
    for what, expected in found["without"].items():
        assert found["with"][what] == expected, what
    assert found["with"]["jax"] == [False, False, False, 1.0]


def test_modules_that_import_compat_see_tensorflows_methods() -> None:
    assert hasattr(jnp.ones(1), "numpy")
    for number, text in enumerate(
        (
            "from lockstep.compat.tensorflow import constant",
            "from lockstep.compat.tensorflow import float32",
            "import lockstep.compat.tensorflow.keras as k",
            "from lockstep.compat.tensorflow.keras import Model",
            "from lockstep.compat.tensorflow.keras.layers import Dense",
        )
    ):
        names: dict[str, Any] = {"__name__": f"a_program_{number}", "x": jnp.ones(1)}
        exec(f"{text}\nvalue = x.numpy()", names)
        assert names["value"] == 1
    within: dict[str, Any] = {"__name__": "a_program", "x": jnp.ones(1)}
    exec("def f():\n import lockstep.compat.tensorflow as tf\n return x.get_shape()\nshape = f()", within)
    assert within["shape"] == (1,)


@pytest.mark.parametrize("name", ["numpy", "get_shape", "set_shape"])
def test_other_modules_see_none(name: str) -> None:
    ask = "seen = hasattr(x, name), hasattr(type(x), name), getattr(x, name, None)"
    for x in (jnp.ones(1), jax.jit(jnp.sin).trace(1.0).jaxpr.jaxpr.invars[0].aval):
        names: dict[str, Any] = {"__name__": "a_library", "x": x, "name": name}
        exec(ask, names)
        assert names["seen"] == (False, False, None)
    with pytest.raises(AttributeError, match="a_library does not import it"):
        exec(f"x.{name}", {"__name__": "a_library", "x": jnp.ones(1)})


MADE = """
import keras
layer = keras.layers.Dense(2)
model = keras.Sequential([keras.Input((3,)), layer])
model.compile("sgd", "mse", metrics=["mae"])
optimizer, metric = model.optimizer, keras.metrics.Mean()
"""
OURS = [
    *("layer.input_shape", "layer.get_input_at", "layer.reset_states", "model.fit_generator", "model.predict_classes"),
    *("model.updates", "optimizer.lr", "optimizer.weights", "optimizer.minimize", "metric.reset_states"),
]


@pytest.mark.parametrize("name", OURS)
def test_objects_of_other_programs_have_no_more_than_keras_gives_them(name: str) -> None:
    owner, _, attribute = name.partition(".")
    for start, expected in (("import lockstep.compat.tensorflow as tf\n", True), ("", False)):
        names: dict[str, Any] = {"__name__": f"a_program_{expected}"}
        exec(start + MADE, names)
        assert hasattr(names[owner], attribute) is expected


def test_keras_methods_take_no_more_for_other_programs() -> None:
    names: dict[str, Any] = {"__name__": "a_library"}
    exec(MADE, names)
    assert names["model"].metrics_names == ["loss", "compile_metrics"]
    names["optimizer"].lr = 7.0
    assert names["optimizer"].lr == 7.0
    assert float(names["optimizer"].learning_rate) == pytest.approx(0.01)
    for call in (
        "keras.layers.Dense(1, weights=[])",
        "keras.optimizers.SGD(lr=0.1)",
        "keras.metrics.Metric('m')",
        "model.compile('sgd', experimental_steps_per_execution=2)",
        "model.fit([[1.0] * 3], [[1.0] * 2], workers=2)",
        "model.save('a_directory')",
        "optimizer.apply_gradients([], name='n')",
        "optimizer.iterations = 1",
    ):
        with pytest.raises((AttributeError, TypeError, ValueError)) as caught:
            exec(call, names)
        assert not isinstance(caught.value, LockstepError)


def test_models_that_keras_makes_for_a_program_belong_to_it(tmp_path: Path) -> None:
    library: dict[str, Any] = {"__name__": "a_library"}
    exec(MADE, library)
    library["model"].save(str(tmp_path / "a.keras"))
    for start, expected in (("import lockstep.compat.tensorflow as tf\n", True), ("", False)):
        names: dict[str, Any] = {"__name__": f"a_program_{expected}", "path": str(tmp_path / "a.keras"), **library}
        exec(f"{start}import keras\nmodels = [keras.models.load_model(path), keras.models.clone_model(model)]", names)
        for model in names["models"]:
            assert hasattr(model, "fit_generator") is expected
            assert hasattr(model.layers[0], "get_input_at") is expected
