"""Paths of variables in a checkpoint: attributes, keys and places that lead to them, as in TensorFlow's object graph.

`net/l1/kernel` is the variable `kernel` of what `net` has as `l1`. A variable that several paths lead to is saved once;
the others are its aliases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import keras
from keras.src.models.functional import Functional
from keras.src.optimizers.base_optimizer import BaseOptimizer

from lockstep._types import Layer, Variable
from lockstep.compat.tensorflow._ops.model_seeds import is_aside
from lockstep.compat.tensorflow._ops.variable import Module
from lockstep.compat.tensorflow._types import Trackable

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# TensorFlow's names of what an optimizer begins with.
_OF_OPTIMIZERS = ("_iterations", "_learning_rate")
_OTHERS = "_variables"


def variables_at(path: str, value: Trackable) -> dict[str, Variable]:
    """Returns the variables of an object by their paths, each by all of its paths; the first is that it is saved by."""
    found: dict[str, Variable] = {}
    _walk(path, value, found, frozenset())
    return found


def states_at(path: str, value: Trackable) -> Iterator[tuple[str, Any]]:
    """Yields objects whose state is no variable, such as iterators of datasets, with their paths."""
    if hasattr(value, "set_state"):
        yield path, value
    elif isinstance(value, (Mapping, list, tuple)) or is_group(value):
        for name, part in _members(value):
            yield from states_at(f"{path}/{name}", part)


def unbuilt_at(path: str, value: Trackable) -> Iterator[tuple[str, Layer]]:
    """Yields layers that have no variables yet, with their paths: those of a layer's own layers after it."""
    if isinstance(value, keras.layers.Layer):
        if not value.built:
            yield path, value
        parts = list(_parts_of_layer(value))
    elif isinstance(value, (Module, Mapping, list, tuple)) or is_group(value):
        parts = list(_members(value))
    else:
        return
    for name, part in parts:
        yield from unbuilt_at(f"{path}/{name}", part)


def optimizers_at(path: str, value: Trackable) -> Iterator[tuple[str, Any]]:
    """Yields optimizers with their paths."""
    if isinstance(value, BaseOptimizer):
        yield path, value
    elif isinstance(value, (Mapping, list, tuple)) or is_group(value):
        for name, part in _members(value):
            yield from optimizers_at(f"{path}/{name}", part)


def is_trackable(value: object) -> bool:
    """Returns whether a checkpoint can hold a value: of it, or of all that is in it."""
    if isinstance(value, Mapping):
        return all(map(is_trackable, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(is_trackable, value))
    kinds = (keras.Variable, keras.layers.Layer, BaseOptimizer, keras.metrics.Metric, Module)
    return isinstance(value, kinds) or is_group(value) or hasattr(value, "set_state")


def is_group(value: object) -> bool:
    """Returns whether a value is a `Checkpoint`, which holds others as attributes."""
    return getattr(type(value), "_lockstep_is_group", False)


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields what is in a dict, a list, a module or a checkpoint, by name."""
    if isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(number), part) for number, part in enumerate(value))
    else:
        for name, part in sorted(vars(value).items()):
            if not name.startswith("_") and (_is_part(part) or hasattr(part, "set_state")):
                yield name, part


def _is_part(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_is_part, value.values()))
    if isinstance(value, (list, tuple)):
        return not value or any(map(_is_part, value))
    kinds = (keras.Variable, keras.layers.Layer, BaseOptimizer, keras.metrics.Metric, Module)
    return isinstance(value, kinds) or is_group(value)


def _walk(path: str, value: Any, found: dict[str, Variable], above: frozenset[int]) -> None:
    if isinstance(value, keras.Variable):
        if not is_aside(value):
            found.setdefault(path, value)
        return
    if id(value) in above:
        # An object that holds itself.
        return
    above |= {id(value)}
    if isinstance(value, BaseOptimizer):
        parts = list(_parts_of_optimizer(value))
    elif isinstance(value, keras.metrics.Metric):
        parts = [(v.name, v) for v in value.variables]
    elif isinstance(value, keras.layers.Layer):
        parts = list(_parts_of_layer(value))
    elif isinstance(value, (Module, Mapping, list, tuple)) or is_group(value):
        parts = list(_members(value))
    else:
        return
    for name, part in parts:
        _walk(f"{path}/{name}", part, found, above)
    if isinstance(value, (keras.layers.Layer, keras.metrics.Metric)):
        known = {id(v) for v in found.values()}
        for number, variable in enumerate(v for v in value.variables if not is_aside(v)):
            if id(variable) not in known:
                found[f"{path}/{_OTHERS}/{number}"] = variable


def _parts_of_optimizer(optimizer: Any) -> Iterator[tuple[str, Variable]]:
    count = 0
    for variable in optimizer.variables:
        named = [name for name in _OF_OPTIMIZERS if vars(optimizer).get(name) is variable]
        yield (named[0], variable) if named else (f"{_OTHERS}/{count}", variable)
        count += not named


def _parts_of_layer(layer: Layer) -> Iterator[tuple[str, Any]]:
    """Yields the variables and layers of a layer: by attributes, and of functional models by their number."""
    if isinstance(layer, (Functional, keras.Sequential)):
        if all(part.built for part in layer.layers):
            weighted = (part for part in layer.layers if part.weights)
            yield from ((f"layer_with_weights-{number}", part) for number, part in enumerate(weighted))
        # Known before they are built, too; TensorFlow has both.
        yield from ((f"layer-{number}", part) for number, part in enumerate(layer.layers))
    own = [*layer._trainable_variables, *layer._non_trainable_variables]
    names = {id(value): name.removeprefix("_") for name, value in vars(layer).items()}
    yield from ((names.get(id(variable)) or str(variable.name), variable) for variable in own)
    taken = {id(variable) for variable in own}
    for name, part in vars(layer).items():
        if not name.startswith("_") and id(part) not in taken and _is_part_of_layer(part):
            yield name, part


def _is_part_of_layer(value: object) -> bool:
    # The optimizer and the metrics that a model is compiled with are given to a checkpoint by themselves.
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(_is_part_of_layer, value))
    if isinstance(value, Mapping):
        return bool(value) and all(map(_is_part_of_layer, value.values()))
    return isinstance(value, (keras.Variable, Module)) or (
        isinstance(value, keras.layers.Layer) and not isinstance(value, keras.metrics.Metric)
    )
