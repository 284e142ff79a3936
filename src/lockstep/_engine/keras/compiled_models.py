"""Which models' steps are compiled: those whose layers JAX can trace, unless the program says otherwise.

Keras asks each layer for `supports_jit`, whatever the backend. The layers that turn, zoom, move, shear and tilt
pictures say no, and Keras then runs the whole step operation by operation. On JAX they are traced like any other: the
tutorial's network for pictures of 180x180, with rotation and zoom, took 2,062 ms of CPU time a step that way, compiled
393 (2-core EPYC).
"""

from __future__ import annotations

import weakref
from typing import Any

import keras

from lockstep._engine.keras.ownership import ownership
from lockstep._types import Model

# Of these classes themselves: what a class of the user's adds to one is not known.
_TRACED = ("RandomPerspective", "RandomRotation", "RandomShear", "RandomTranslation", "RandomZoom")
# The position of `jit_compile` among the arguments of `compile`, after the model.
_POSITION = 7
# Models whose program leaves it open, or asks for it; Keras keeps only what it has made of that.
_may_compile: weakref.WeakSet[Any] = weakref.WeakSet()


def note_request(model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Remembers whether a call of `compile` with these arguments lets steps be compiled."""
    asked = args[_POSITION] if len(args) > _POSITION else kwargs.get("jit_compile", "auto")
    if asked not in ("auto", True):
        return _may_compile.discard(model)
    _may_compile.add(model)
    if ownership(model) is not None and not model.jit_compile:
        # For who saves the model: loaded, it would not be compiled because its file says so.
        model._compile_config.config["jit_compile"] = "auto"


def is_compiled(model: Model) -> bool:
    """Returns whether steps of `model` are compiled, or run as they are."""
    if model.run_eagerly:
        return False
    return bool(model.jit_compile) or (model in _may_compile and all(map(_is_traced, model._flatten_layers())))


def _is_traced(layer: Any) -> bool:
    return layer.supports_jit or any(type(layer) is getattr(keras.layers, name, None) for name in _TRACED)
