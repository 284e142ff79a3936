"""Coverage of TensorFlow's names by lockstep: asked of `lockstep.compat` itself, name by name."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from lockstep._messages.reading import is_pointer
from lockstep._migrate._differences import difference_of
from lockstep._migrate._uses import OTHERS

Status = Literal["there", "differs", "missing"]
HOMES = {
    "tf": "lockstep.compat.tensorflow",
    "tfds": "lockstep.compat.tensorflow_datasets",
    # What Keras 2 called `keras`; programs for it take `tf.keras`' ways.
    "keras": "lockstep.compat.tensorflow.keras",
}
_OTHER = "It is a package of its own, built on TensorFlow, and lockstep has nothing in its place."
_INTERNAL = "It is internal to TensorFlow. Use the public name of tf.* that stands for it."
_TUTORIALS = "It is gone from TensorFlow 2, too. Use tf.keras.datasets.mnist."
_ON_HOST = "Use tf.lookup tables, tf.strings or feature columns in the dataset or the model_fn."
# How a docstring begins of a function that is there to say what to use instead; a check raises errors "unless".
_REFUSES = re.compile(r"Raises (?:an error|`?[\w.]*Error`?):")


@dataclass(frozen=True)
class Answer:
    """Says what lockstep has for a name.

    Attributes:
        status: Whether it is there, there with differences, or missing.
        advice: What differs, or what to use; empty for what is there.
    """

    status: Status
    advice: str = ""


@functools.cache
def answer(name: str) -> Answer:
    """Returns what lockstep has for one of TensorFlow's names, such as "tf.data.Dataset"."""
    root = name.partition(".")[0]
    if root in OTHERS:
        return Answer("missing", f"{root}: {_OTHER}")
    for start, advice in (("tf.core", _INTERNAL), ("tf.examples", _TUTORIALS)):
        if name == start or name.startswith(f"{start}."):
            return Answer("missing", f"{name} is not available. {advice}")
    try:
        value = _find(name)
    except Exception as error:
        # Whatever the module raises for the name is what a program would see.
        return Answer("missing", _first_line(str(error)))
    if isinstance(value, type(_find)) and _REFUSES.match(value.__doc__ or ""):
        return Answer(
            "missing", f"{name} {_first_line(value.__doc__ or '')[0].lower()}{_first_line(value.__doc__ or '')[1:]}"
        )
    if isinstance(value, type) and _needs_tensorflow(value):
        return Answer("missing", f"{name} needs TensorFlow itself. {_ON_HOST}")
    difference = difference_of(name)
    return Answer("there") if difference is None else Answer("differs", difference)


def names_of(module: str) -> list[str]:
    """Returns the public names of a module, for `from module import *`."""
    try:
        found = _find(module)
    except Exception:  # What it raises is reported where the module is imported.
        return []
    return [name for name in dir(found) if not name.startswith("_")]


def _find(name: str) -> Any:
    """Returns what a name stands for, as far as it can be known before the program runs.

    Raises:
        Exception: Whatever the module raises that lacks it.
    """
    root, _, rest = name.partition(".")
    value: Any = importlib.import_module(HOMES[root])
    path = root
    for part in rest.split(".") if rest else ():
        path = f"{path}.{part}"
        value = _attribute(value, part, path)
        # Attributes of values, such as tf.float32.max, are theirs to have.
        if not isinstance(value, ModuleType | type):
            break
    return value


def _attribute(value: Any, part: str, path: str) -> Any:
    try:
        return getattr(value, part)
    except AttributeError as error:
        if isinstance(value, ModuleType):
            # A module that nothing has imported yet.
            try:
                return importlib.import_module(f"{value.__name__}.{part}")
            except ModuleNotFoundError:
                raise error from None
        raise AttributeError(f"{path} is not available. See docs/tensorflow_names.md for what there is.") from None


def _needs_tensorflow(kind: type) -> bool:
    """Returns whether a layer of Keras refuses to be made without TensorFlow, as those that look words up do."""
    try:
        return "requires TensorFlow" in inspect.getsource(kind.__init__)
    except (OSError, TypeError):  # Classes of C have no source.
        return False


def _first_line(text: str) -> str:
    lines = (line for line in text.strip().split("\n\n")[0].splitlines() if not is_pointer(line))
    return " ".join(" ".join(lines).split())
