"""Lambda functions of models that this process has saved: loaded again, they are the functions that they were.

A file holds a lambda as code, which Keras refuses in safe mode, and which has lost its module: `tf` is unknown to it.
Here the process knows the function itself, by that very code, and no code of a file runs.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import types
import zipfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, cast

import keras

from lockstep._types import JSON, Model

_CONFIG = "config.json"
_LAMBDA = "__lambda__"
# What a Lambda has functions in.
_PARTS = ("function", "_output_shape", "mask")
# By their code, as files have it.
_functions: dict[str, Callable[..., Any]] = {}


def note_lambdas(model: Model) -> None:
    """Takes note of the lambda functions of a model that is saved."""
    for layer in model._flatten_layers():
        if not isinstance(layer, keras.layers.Lambda):
            continue
        for name in _PARTS:
            function = vars(layer).get(name)
            if isinstance(function, types.LambdaType) and function.__name__ == "<lambda>":
                document: Any = cast("Any", layer)._serialize_function_to_config(function)
                code = _code_of(document["config"])
                if code is not None:
                    _functions[code] = function


def _code_of(config: JSON) -> str | None:
    """Returns the code of a lambda; `None` of one with values of its own, by which it differs from others."""
    return config.get("code") if config.get("defaults") is None and config.get("closure") is None else None


@contextlib.contextmanager
def with_own_lambdas(path: Path) -> Generator[tuple[Path, dict[str, Any]]]:
    """Gives a path to load a saved model from, and custom objects for the lambda functions that this process knows."""
    config = _config_of(path) if _functions else None
    names: dict[str, Any] = {}
    changed = None if config is None else _name_functions(json.loads(config), names)
    if not names:
        yield path, {}
        return
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, path.name)
        (_copy_directory if path.is_dir() else _copy_archive)(path, copy, json.dumps(changed))
        yield copy, names


def _name_functions(document: JSON, names: dict[str, Any]) -> Any:
    """Returns a configuration with names in place of lambda functions that are known."""
    if isinstance(document, list):
        return [_name_functions(part, names) for part in document]
    if not isinstance(document, dict):
        return document
    if document.get("class_name") == _LAMBDA:
        function = _functions.get(str(_code_of(document["config"])))
        if function is None:
            return document
        name = f"lockstep_lambda_{len(names)}"
        names[name] = function
        return {"module": "builtins", "class_name": "function", "config": name, "registered_name": "function"}
    return {key: _name_functions(part, names) for key, part in document.items()}


def _config_of(path: Path) -> bytes | None:
    """Returns the configuration of a directory or a `.keras` file; `None` of what is neither."""
    try:
        if path.is_dir():
            return (path / _CONFIG).read_bytes()
        with zipfile.ZipFile(path) as archive:
            return archive.read(_CONFIG)
    except (OSError, KeyError, zipfile.BadZipFile):
        return None


def _copy_directory(path: Path, copy: Path, config: str) -> None:
    copy.mkdir()
    for entry in path.iterdir():
        if entry.name != _CONFIG:
            # Weights may be large.
            (copy / entry.name).symlink_to(entry.absolute())
    (copy / _CONFIG).write_text(config)


def _copy_archive(path: Path, copy: Path, config: str) -> None:
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as changed:
        for entry in archive.infolist():
            changed.writestr(entry, config if entry.filename == _CONFIG else archive.read(entry))
