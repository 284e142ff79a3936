"""`fit`, `evaluate` and `predict` with Keras 2's arguments for reading ahead, and their older forms for generators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from lockstep.compat.tensorflow.keras._patches.noted import warn_once

_READING = {"workers": 1, "use_multiprocessing": False, "max_queue_size": 10}


def install() -> None:
    """Completes `keras.Model`.

    The methods look their own base method up in each call: a strategy replaces it when its first scope is opened.
    """
    model: Any = keras.Model
    for name in ("fit", "evaluate", "predict"):
        setattr(model, name, _reading(name))
    model.fit_generator = _of_generator("fit")
    model.evaluate_generator = _of_generator("evaluate")
    model.predict_generator = _of_generator("predict")


def _reading(name: str) -> Callable[..., Any]:
    theirs = getattr(keras.Model, name)

    @functools.wraps(theirs)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = {key: kwargs.pop(key) for key in _READING if key in kwargs}
        source = args[0] if args else kwargs.get("x")
        for data in (source, kwargs.get("validation_data")):
            _prepare(data, asked)
        if asked != {key: _READING[key] for key in asked} and not _is_sequence(source):
            warn_once(
                f"{', '.join(asked)} of {name}() set how a keras.utils.Sequence is read; data of type "
                f"{type(source).__name__} is read ahead by one thread."
            )
        return getattr(super(keras.Model, self), name)(*args, **kwargs)

    return method


def _is_sequence(data: Any) -> bool:
    return isinstance(data, keras.utils.PyDataset)


def _prepare(data: Any, asked: dict[str, Any]) -> None:
    """Tells a sequence how it is to be read; one written for Keras 2 has not called its base class."""
    if not _is_sequence(data):
        return
    if not hasattr(data, "_workers"):
        keras.utils.PyDataset.__init__(data)
    for name, value in asked.items():
        setattr(data, name, max(value, 1) if name == "workers" else value)


def _of_generator(name: str) -> Callable[..., Any]:
    def method(self: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = dict(zip(_POSITIONAL[name], args, strict=False))
        arguments |= kwargs
        if name == "fit" and not _is_sequence(generator):
            arguments["shuffle"] = False  # A generator's order is its own; saying so spares a warning.
        return getattr(self, name)(generator, **arguments)

    method.__name__ = f"{name}_generator"
    method.__doc__ = f"Keras 2's older form of `{name}` for generators and sequences; `{name}` does the same."
    return method


_POSITIONAL = {
    "fit": (
        "steps_per_epoch",
        "epochs",
        "verbose",
        "callbacks",
        "validation_data",
        "validation_steps",
        "validation_freq",
        "class_weight",
        "max_queue_size",
        "workers",
        "use_multiprocessing",
        "shuffle",
        "initial_epoch",
    ),
    "evaluate": ("steps", "callbacks", "max_queue_size", "workers", "use_multiprocessing", "verbose"),
    "predict": ("steps", "callbacks", "max_queue_size", "workers", "use_multiprocessing", "verbose"),
}
