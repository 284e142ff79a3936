"""Where TensorFlow's internal modules keep what is public, by a table of TensorFlow 2.15's names."""

from __future__ import annotations

import functools
import importlib
import importlib.resources
import json
from typing import Any

_ROOT = "lockstep.compat.tensorflow"
_TABLE = "_names.json"
# How TensorFlow writes the second edition of a function or class whose public name has no number.
_EDITIONS = ("", "_v2", "V2", "_v2_with_dispatch")
# Where tf.keras keeps what its names do not tell apart: older optimizers have the names of the present ones.
_KERAS = ("layers", "optimizers", "losses", "metrics", "callbacks", "initializers", "regularizers", "models", "utils")
# Functions that are internal by identity, and whose public namesakes do the same with other arguments in front.
_SAME = {
    ("tensorflow.python.data.ops.dataset_ops", "AUTOTUNE"): "data.AUTOTUNE",
    ("tensorflow.python.data.ops.dataset_ops", "INFINITE"): "data.INFINITE_CARDINALITY",
    ("tensorflow.python.data.ops.dataset_ops", "UNKNOWN"): "data.UNKNOWN_CARDINALITY",
    ("tensorflow.python.data.experimental.ops.cardinality", "INFINITE"): "data.INFINITE_CARDINALITY",
    ("tensorflow.python.data.experimental.ops.cardinality", "UNKNOWN"): "data.UNKNOWN_CARDINALITY",
    ("tensorflow.python.framework.ops", "convert_to_tensor"): "convert_to_tensor",
    ("tensorflow.python.framework.ops", "convert_n_to_tensor"): "convert_to_tensor",
    ("tensorflow.python.framework.ops", "EagerTensor"): "Tensor",
    ("tensorflow.python.framework.ops", "Tensor"): "Tensor",
    ("tensorflow.python.framework.test_util", "is_gpu_available"): "test.is_gpu_available",
    ("tensorflow.python.ops.resource_variable_ops", "ResourceVariable"): "Variable",
    ("tensorflow.python.ops.resource_variable_ops", "BaseResourceVariable"): "Variable",
    ("tensorflow.python.platform.tf_logging", "get_logger"): "get_logger",
}


@functools.cache
def _read() -> dict[str, dict[str, str | list[str]]]:
    return json.loads((importlib.resources.files(__package__ or "") / _TABLE).read_text())


@functools.cache
def modules() -> frozenset[str]:
    """Returns the full names of TensorFlow's internal modules that hold something public, and of their packages."""
    names = [m for m in _read() if m.startswith("tensorflow.python.")]
    return frozenset(
        ".".join(parts[:end]) for parts in (n.split(".") for n in names) for end in range(2, len(parts) + 1)
    )


@functools.cache
def _by_name() -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for module, names in _read().items():
        for name, public in names.items() if module != "keras" else ():
            found.setdefault(name, set()).add(public if isinstance(public, str) else public[0])
    return {name: tuple(sorted(public)) for name, public in found.items()}


@functools.cache
def public_names(module: str, name: str) -> tuple[str, ...]:
    """Returns the public names, without "tf.", of what an internal module calls `name`; none if it is internal.

    Args:
        module: The internal module's full name, such as "tensorflow.python.data.ops.dataset_ops".
        name: What the module calls it, such as "DatasetV2".
    """
    if (module, name) in _SAME:
        return (_SAME[module, name],)
    keras, _, rest = module.partition("tensorflow.python.keras")
    if not keras and (rest == "" or rest.startswith(".")):
        parts = rest.split(".")[1:]
        nested = [".".join(("keras", *parts[:end], name)) for end in range(len(parts), -1, -1)]
        known = _read()["keras"].get(name, ())
        usual = [f"keras.{part}.{name}" for part in _KERAS]
        return (*nested, *([known] if isinstance(known, str) else known), *usual)
    table = _read().get(module, {})
    for edition in _EDITIONS:
        if name + edition in table:
            public = table[name + edition]
            return (public,) if isinstance(public, str) else tuple(public)
    # Later releases moved things: what has this name in one place only is that.
    is_telling = name[:1].isupper() or "_" in name[1:]
    found = _by_name().get(name, ()) if is_telling and not name.startswith("_") else ()
    return found if len(found) == 1 else ()


def find(public: str) -> Any:
    """Returns the object of a public name, such as "data.Dataset" or "v1.data.Dataset".

    Raises:
        AttributeError: lockstep.compat.tensorflow does not have it; its message says what to use.
    """
    parts = public.split(".")
    path = ["compat", *parts] if parts[0] == "v1" else parts
    return functools.reduce(getattr, path, importlib.import_module(_ROOT))


def names(module: str) -> list[str]:
    """Returns what an internal module calls its public objects."""
    return [n for n in _read().get(module, {}) if not n.startswith("_")]
