"""Models for the commands: from a file, or from a function of a program."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import sys
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

import lockstep.compat.tensorflow as tf
from lockstep._types import Model
from lockstep.errors import ArgumentError

_log = logging.getLogger("lockstep")
# How Keras' warning begins.
_OPTIMIZER_LEFT_OUT = "Skipping variable loading for optimizer"
_EXAMPLE = "Examples: model.keras, model.json, model.h5, or program.py:make_model."


def load_model(where: str) -> Model:
    """Returns a model of Keras.

    Args:
        where: A file of a saved model (`.keras`, `.h5`, or a directory), a file with what `model.to_json` returned
            (`.json`), or a function without arguments: `module:function` or `program.py:function`.

    Raises:
        ArgumentError: If there is none there.
    """
    keras: Any = tf.keras
    path = Path(where)
    if path.suffix == ".json" and path.is_file():
        return keras.models.model_from_json(path.read_text())
    if path.exists():
        try:
            with _told_of_optimizers(where):
                return keras.models.load_model(where)
        except (ValueError, OSError, TypeError) as error:
            raise ArgumentError(f"{where} holds no model that can be loaded: {error}. {_EXAMPLE}") from error
    module, colon, function = where.rpartition(":")
    if not colon:
        raise ArgumentError(f"A model is read from a file, or made by a function. Received: {where!r}. {_EXAMPLE}")
    make = getattr(_module(module), function, None)
    if not callable(make):
        raise ArgumentError(f"{module} has no function {function!r} that makes a model. {_EXAMPLE}")
    # The program's own code, which the user has named: nothing that a file says is evaluated.
    model = make()
    if not isinstance(model, keras.Model):
        raise ArgumentError(f"{where} must return a model of Keras. Received: {type(model).__name__}.")
    return model


@contextlib.contextmanager
def _told_of_optimizers(where: str) -> Generator[None]:
    """Says in a line of the log that an optimizer begins anew, of which Keras warns from its own code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if _OPTIMIZER_LEFT_OUT in str(warning.message):
            _log.warning(
                "%s was saved before its optimizer had trained, or with another one: the optimizer begins anew. The "
                "weights of the model are whole.",
                where,
            )
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _module(name: str) -> Any:
    if not name.endswith(".py"):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise ArgumentError(f"{name} cannot be imported: {error}. {_EXAMPLE}") from error
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    if spec is None or spec.loader is None or not Path(name).is_file():
        raise ArgumentError(f"There is no program {name}. {_EXAMPLE}")
    module = importlib.util.module_from_spec(spec)
    # Where it lies, as when it is run itself: its own imports are found there.
    sys.path.insert(0, str(Path(name).resolve().parent))
    spec.loader.exec_module(module)
    return module
