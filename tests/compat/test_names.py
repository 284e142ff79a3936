"""Which names there are, what the others say, and that docs/tensorflow_names.md lists exactly these."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import lockstep.compat.tensorflow as tf
from lockstep.compat.tensorflow._missing import ADVICE
from tests.compat import names_page
from tests.compat.names_page import modules

MODULES = modules()


@pytest.mark.parametrize("name", MODULES)
def test_every_name_is_there_and_documented(name: str) -> None:
    module = MODULES[name]
    assert len(module.__all__) == len(set(module.__all__))
    for exported in module.__all__:
        value = getattr(module, exported)
        ours = str(getattr(value, "__module__", "")).startswith("lockstep.compat")
        assert not ours or not callable(value) or value.__doc__, f"{name}.{exported}"
        assert exported in dir(module)


@pytest.mark.parametrize("name", MODULES)
def test_an_unknown_name_says_where_to_look(name: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"{name}.no_such_name")) as caught:
        MODULES[name].no_such_name  # noqa: B018
    assert "docs/tensorflow_names.md" in str(caught.value) or "Keras" in str(caught.value)


# There in some installations.
SOMETIMES = {"tf.compat.v1.flags"}
# Modules that are others of tf under another name, so that the advice is found under both.
SAME_MODULES = ("tf.compat.v1.estimator.experimental", "tf.compat.v1.initializers")


@pytest.mark.parametrize("name", sorted(set(ADVICE) - SOMETIMES))
def test_advice_is_given_for_names_that_are_not_there(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    if module not in MODULES:  # A module that is not there either: its own advice is given first.
        assert module in ADVICE or module in ("tf.keras", *SAME_MODULES)
        return
    with pytest.raises(AttributeError, match=re.escape(ADVICE[name][:30])):
        getattr(MODULES[module], attribute)


def test_the_page_lists_what_there_is() -> None:
    assert names_page.PAGE.read_text(encoding="utf-8") == names_page.page() + "\n", (
        "Names have changed: python -m tests.compat.names_page"
    )


@pytest.mark.slow
def test_modules_are_imported_as_programs_do() -> None:
    statements = [
        "import lockstep.compat.tensorflow.compat.v1 as tf1",
        "tf1.logging.set_verbosity(tf1.logging.INFO)",
        "from lockstep.compat.tensorflow import data",
        "data.Dataset.range(3)",
        "from lockstep.compat.tensorflow.keras import layers",
        "layers.Dense(1)",
        "from lockstep.compat.tensorflow.io import gfile",
        "gfile.exists('x')",
        "from lockstep.compat.tensorflow.distribute.cluster_resolver import TFConfigClusterResolver",
        "import lockstep.compat.tensorflow.experimental.numpy as tnp",
        "tnp.zeros(1)",
        "import lockstep.compat.tensorflow as tf",
        "tf.compat.v1.disable_eager_execution()",
        "tf.losses.MeanSquaredError()",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(statements)], check=True, timeout=60)


def test_older_names_are_functions_of_tf() -> None:
    v1 = tf.compat.v1
    assert v1.random_uniform is tf.random.uniform
    assert v1.float32 is tf.float32
    assert v1.to_float([1, 2]).dtype == tf.float32
    with pytest.raises(AttributeError, match="no graphs"):
        v1.Session  # noqa: B018


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [d.device_type for d in tf.config.list_physical_devices("CPU")] == ["CPU"]
    assert len(tf.config.list_logical_devices("CPU")) == 4
    gpus = tf.config.list_physical_devices("GPU")
    assert all(g.name.startswith("/physical_device:GPU:") for g in gpus)
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    tf.config.experimental.set_memory_growth(gpu, True)
    with pytest.raises(RuntimeError, match="before JAX"):
        tf.config.experimental.set_memory_growth(gpu, False)


def test_text_in_either_form() -> None:
    assert tf.compat.as_bytes("é") == "é".encode()
    assert tf.compat.as_text(b"a") == tf.compat.as_str("a") == "a"
    with pytest.raises(ValueError, match="bytes or str"):
        tf.compat.as_text(1)
