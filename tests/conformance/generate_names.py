"""Writes the table of TensorFlow's internal places of public objects.

It runs on TensorFlow 2.15, without lockstep:

    PYTHON_WITH_TENSORFLOW tests/conformance/generate_names.py

For each module of TensorFlow, Keras 2 and tf.estimator, and each of its names that is bound to a public object: the
object's public names without "tf.", those of TensorFlow 2 first. The table holds names only.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
_ROOT = Path(__file__).resolve().parents[2]
TABLE = _ROOT / "src/lockstep/compat/tensorflow/python/_names.json"
# More names of one object than these say nothing new.
_MOST = 2
_PLAIN = (bool, int, float, complex, str, bytes, tuple, list, dict, type(None))
_PUBLIC = ("keras", "tf_estimator", "estimator")
_FOREIGN = ("typing", "__future__", "typing_extensions")
_PREFIXES = ("tensorflow.python.", "tensorflow_estimator.python.", "keras.src.")
# Modules that are not imported with TensorFlow itself, and that programs and tests import.
_EXTRA = ("tensorflow.python.data", "tensorflow.python.distribute", "tensorflow_estimator.python.estimator")


def _walk(module: types.ModuleType, path: str, seen: set[int]) -> Iterator[tuple[str, object]]:
    if id(module) in seen:
        return
    seen.add(id(module))
    for name in sorted(n for n in dir(module) if not n.startswith("_")):
        # `tf.compat` holds both versions again, which have walks of their own.
        if path in ("", "v1.") and name in ("compat", "raw_ops", "keras_preprocessing"):
            continue
        try:
            value = getattr(module, name)
        except (AttributeError, ImportError):
            continue
        if isinstance(value, types.ModuleType):
            # Some public modules import internal ones, whose names are none of the interface.
            if "_api" not in value.__name__ and ".api" not in value.__name__ and value.__name__ not in _PUBLIC:
                continue
            yield from _walk(value, f"{path}{name}.", seen)
        elif not isinstance(value, _PLAIN) and getattr(value, "__module__", "") not in _FOREIGN:
            yield f"{path}{name}", value


def main() -> None:
    import tensorflow as tf

    for package in _EXTRA:
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            try:
                importlib.import_module(found.name)
            except Exception:
                continue
    names: dict[int, list[str]] = {}
    kept: list[object] = []
    for root, path in ((tf, ""), (tf.compat.v1, "v1.")):
        for name, value in _walk(root, path, set()):
            kept.append(value)
            names.setdefault(id(value), []).append(name)
    for found in names.values():
        found.sort(key=lambda n: (n.startswith("v1."), "experimental" in n, n.count("."), len(n), n))
    keras: list[dict[str, str | list[str]]] = []
    table: dict[str, dict[str, str | list[str]]] = {}
    for key, module in sorted(sys.modules.items()):
        # A collection of everything, which nobody imports from.
        if not key.startswith(_PREFIXES) or key == "tensorflow.python.ops.standard_ops":
            continue
        public = {n: names[id(v)][:_MOST] for n, v in sorted(vars(module).items()) if id(v) in names}
        public = {n: v[0] if len(v) == 1 else v for n, v in public.items() if not n.startswith("__")}
        if key.startswith("keras."):
            keras.append(public)
        elif public:
            table[key] = public
    # TensorFlow has an older Keras of its own inside, laid out otherwise: the names alone are those of tf.keras.
    by_name: dict[str, set[str]] = {}
    for public in keras:
        for name, found in public.items():
            first = found if isinstance(found, str) else found[0]
            by_name.setdefault(name, set()).add(first.removeprefix("v1."))
    table["keras"] = {n: next(iter(found)) for n, found in sorted(by_name.items()) if len(found) == 1}
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(json.dumps(table, separators=(",", ":")) + "\n")
    print(len(table), sum(map(len, table.values())), TABLE.stat().st_size)


if __name__ == "__main__":
    main()
