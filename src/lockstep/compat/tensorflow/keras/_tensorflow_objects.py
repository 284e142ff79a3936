"""Models, optimizers and variables from the objects in a checkpoint of TensorFlow 2.

Such a checkpoint is a graph: a model has layers, a layer has a kernel. Attributes are called alike in Keras 2 and 3,
and the layers of functional and sequential models are counted in the same order. Each variable that is restored gets
the stored value as it is; one here that has none there is an error, one there that has none here is named in a warning.

Source: keras/engine/functional.py (`_trackable_children`) of Keras 2.15; tensorflow/python/checkpoint/checkpoint.py.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras.src.optimizers.base_optimizer import BaseOptimizer

from lockstep._types import Layer, Model, Optimizer, Variable
from lockstep.checkpoint.internal import Bundle, tensorflow_names, tensorflow_objects
from lockstep.compat.tensorflow._types import Trackable
from lockstep.errors import CheckpointError, StartupOrderError, UnsupportedError

_LAYER = re.compile(r"layer_with_weights-([0-9]+)")
# What Keras 2 put beside a model's variables, and what is another way to them.
_ASIDE = re.compile(r"layer-[0-9]+|keras_api|signatures|loss.*|.*metrics.*|optimizer|.*variables|.*losses|_.*cache.*")
# Attributes that Keras 3 has renamed.
_RENAMED = {"depthwise_kernel": "kernel"}
_SHOWN = 8
# Behind the path to each value.
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_ARGUMENTS = ("beta_1", "beta_2", "decay", "iter", "iterations", "learning_rate", "momentum", "rho", "save_counter")
# What counts a Checkpoint's saves.
_COUNTER = "save_counter"
_ITERATIONS, _RATES = ("iter", "iterations"), ("learning_rate",)


def restore_model(bundle: Bundle, model: Model) -> None:
    """Gives a model, and the optimizer that it is compiled with, the values of a checkpoint.

    Raises:
        CheckpointError: If the checkpoint is damaged, or lacks a variable of the model.
        StartupOrderError: If the model has no variables yet.
        UnsupportedError: If the checkpoint has no objects: TensorFlow 1's `Saver` wrote it.
    """
    restore = _Restore(bundle)
    restore.add_model(0, model, "the model")
    restore.finish()


def restore_objects(bundle: Bundle, objects: Mapping[str, Trackable]) -> None:
    """Gives objects, by the names that they were saved with, the values of a checkpoint; `root` is that without a name.

    Raises:
        CheckpointError: If the checkpoint is damaged, or lacks an object or a variable.
        StartupOrderError: If a model has no variables yet.
        UnsupportedError: If the checkpoint has no objects: TensorFlow 1's `Saver` wrote it.
    """
    restore = _Restore(bundle)
    optimizers: list[tuple[int, Optimizer]] = []
    for name, value in objects.items():
        node = 0 if name == "root" else tensorflow_objects.child(restore.graph, 0, name)
        if node is None and name == _COUNTER:
            # Keras' save_weights counts nothing.
            continue
        if node is None:
            known = ", ".join(dict(restore.children(0)))
            raise CheckpointError(
                f"A checkpoint holds what it was saved with. Received: a request for {name!r}; {bundle.file} has "
                f"{known}. Leave the object out, or restore it from another checkpoint."
            )
        if isinstance(value, BaseOptimizer):
            optimizers.append((node, value))
        elif isinstance(value, keras.Model):
            restore.add_model(node, value, name)
        else:
            restore.add(node, value, name)
    # After the variables, by which what an optimizer keeps of them is found.
    for node, optimizer in optimizers:
        restore.add_optimizer(node, optimizer, None)
    restore.finish()


@dataclass
class _Restore:
    """Values of a checkpoint for variables; they are assigned when all of them have been found."""

    bundle: Bundle
    graph: Any = field(init=False)
    # Keys by variables, which compare by value, so that they are known by id; and the numbers of nodes gone to.
    _keys: dict[int, tuple[Variable, str]] = field(default_factory=dict[int, Any])
    _optimizer_keys: list[tuple[Variable, str]] = field(default_factory=list[Any])
    _names: dict[str, str] = field(default_factory=dict[str, str])
    _seen: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])

    def __post_init__(self) -> None:
        graph = self.bundle.object_graph()
        if graph is None or not graph.nodes:
            raise UnsupportedError(
                f"{self.bundle.file} holds variables by name, as TensorFlow 1 saved them, and no objects. Read them "
                "with tf.train.load_checkpoint and assign them, or let an Estimator go on from it."
            )
        self.graph = graph

    def children(self, node: int) -> list[tuple[str, int]]:
        """Returns the attributes of a node, and their numbers."""
        return list(tensorflow_objects.children(self.graph, node))

    def add_model(self, node: int, model: Model, name: str) -> None:
        """Finds the values of a model and of the optimizer that it is compiled with."""
        place = node
        inner = tensorflow_objects.child(self.graph, node, "model")
        # `tf.train.Checkpoint(model=model)` has the model below its root; `save_weights` has it there.
        if inner is not None and not any(_LAYER.fullmatch(child) for child, _ in self.children(node)):
            place = inner
        self.add(place, model, name)
        optimizer = getattr(model, "optimizer", None)
        for number in (tensorflow_objects.child(self.graph, around, "optimizer") for around in (place, node)):
            if number is not None and isinstance(optimizer, BaseOptimizer):
                self.add_optimizer(number, optimizer, model.trainable_variables)
                break

    def add(self, node: int, value: Trackable, name: str) -> None:
        """Finds the values of an object; raises errors about what has none."""
        if hasattr(value, "set_state"):
            raise UnsupportedError(
                f"TensorFlow's positions of iterators are its own. Received: {name}, to restore from "
                f"{self.bundle.file}. Leave it out of the Checkpoint; its data begin at their beginning."
            )
        if isinstance(value, keras.layers.Layer) and not value.built:
            raise StartupOrderError(
                f"A model's variables are restored into those it has. Received: {name}, which is not built. Call the "
                "model on one batch, or its build(input_shape), before it is restored."
            )
        self._walk(node, value)
        wanted = _variables_of(value)
        missing = [v.path for v in wanted if id(v) not in self._keys]
        if missing:
            more = f" and {len(missing) - _SHOWN} others" if len(missing) > _SHOWN else ""
            raise CheckpointError(
                f"A checkpoint is restored into objects like those that were saved. {self.bundle.file} has no value "
                f"for {', '.join(missing[:_SHOWN])}{more} of {name}. Make it as the program did that saved."
            )

    def add_optimizer(self, node: int, optimizer: Optimizer, trained: Sequence[Variable] | None) -> None:
        """Finds the values of an optimizer, whose state is made if it is not there; another kind of optimizer warns."""
        slots = tensorflow_objects.slots(self.graph, node, self._names)
        if trained is None:
            trained = [variable for variable, key in self._keys.values() if key in slots]
        if not optimizer.built and trained:
            optimizer.build(trained)
        pairs: list[tuple[Variable, str]] = []
        missing: list[str] = []
        for variable in optimizer.variables:
            key = self._optimizer_key(node, variable, trained, slots)
            if key is not None:
                pairs.append((variable, key))
            elif variable.name not in (tensorflow_names.RATE, tensorflow_names.ITERATION):
                missing.append(variable.path)
        taken = {key for _, key in pairs}
        missing += [key for kept in slots.values() for key in kept.values() if key not in taken]
        if missing:
            warnings.warn(
                f"{self.bundle.file} has the state of another optimizer than {type(optimizer).__name__}: the weights "
                f"are restored, the optimizer starts anew. They differ in {', '.join(missing[:_SHOWN])}.",
                stacklevel=2,
            )
            return
        self._optimizer_keys += pairs

    def finish(self) -> None:
        """Assigns all values that were found, and names those that nothing takes."""
        pairs = [*self._keys.values(), *self._optimizer_keys]
        values = [(variable, self._value(variable, key)) for variable, key in pairs]
        # After all have been read and compared: a checkpoint is restored whole, or not at all.
        for variable, value in values:
            variable.assign(value)
        used = {key for _, key in pairs}
        stored = [key for key, layout in self.bundle.layouts.items() if layout.dtype.kind != "O"]
        left = [key for key in stored if key not in used and not _is_argument(key)]
        if left:
            more = f" and {len(left) - _SHOWN} others" if len(left) > _SHOWN else ""
            warnings.warn(
                f"{self.bundle.file} has values that nothing here takes: {', '.join(left[:_SHOWN])}{more}.",
                stacklevel=2,
            )

    def _walk(self, node: int, value: Trackable) -> None:
        if (node, id(value)) in self._seen:
            return
        self._seen.add((node, id(value)))
        stored = tensorflow_objects.variable(self.graph, node)
        if stored is not None and isinstance(value, keras.Variable):
            self._keys[id(value)] = (value, stored.key)
            self._names[stored.key] = stored.full_name
        for name, number in self.children(node):
            part = _part(value, name)
            if part is not None:
                self._walk(number, part)

    def _optimizer_key(
        self, node: int, variable: Variable, trained: Sequence[Variable], slots: Mapping[str, Mapping[str, str]]
    ) -> str | None:
        for ours, theirs in ((tensorflow_names.ITERATION, _ITERATIONS), (tensorflow_names.RATE, _RATES)):
            if variable.name == ours:
                return self._scalar(node, theirs)
        for owner in trained:
            # Keras 3 calls it "dense_kernel_momentum", of the variable "dense/kernel".
            slot = variable.name.removeprefix(f"{owner.path.replace('/', '_')}_")
            if slot != variable.name and id(owner) in self._keys:
                kept = slots.get(self._keys[id(owner)][1], {})
                found = [kept[name] for name in tensorflow_names.SLOTS.get(slot, (slot,)) if name in kept]
                if found:
                    return found[0]
        return None

    def _scalar(self, optimizer: int, names: Sequence[str]) -> str | None:
        for name in names:
            node = tensorflow_objects.child(self.graph, optimizer, name)
            stored = None if node is None else tensorflow_objects.variable(self.graph, node)
            if stored is not None:
                return stored.key
        return None

    def _value(self, variable: Variable, key: str) -> np.ndarray[Any, Any]:
        if key not in self.bundle.layouts:
            raise CheckpointError(f"{self.bundle.file} lists {key}, and has no value for it. Copy its files again.")
        value = self.bundle.read(key)
        if value.shape != tuple(variable.shape):
            raise CheckpointError(
                f"A checkpoint is restored into variables of the same shapes. {self.bundle.file} has {key} with "
                f"{value.shape}; {variable.path} is {tuple(variable.shape)} here. Make it as the program did "
                "that saved."
            )
        return value


def _part(value: Trackable, name: str) -> Any:
    """Returns the part of an object that was saved under a name, or `None`."""
    if isinstance(value, (list, tuple)):
        return value[int(name)] if name.isdigit() and int(name) < len(value) else None
    if isinstance(value, Mapping):
        return value.get(name)
    layer = _LAYER.fullmatch(name)
    if layer and isinstance(value, keras.Model):
        # `weights` has no seeds and no metrics, as in Keras 2, whose numbers these are.
        layers: list[Layer] = [layer for layer in value.layers if layer.weights]
        return layers[int(layer[1])] if int(layer[1]) < len(layers) else None
    if _ASIDE.fullmatch(name) and isinstance(value, keras.Model):
        return None
    part = getattr(value, name, None)
    return part if part is not None else getattr(value, _RENAMED.get(name, name), None)


def _variables_of(value: Trackable) -> list[Variable]:
    """Returns the variables of an object that must get a value."""
    if isinstance(value, keras.Variable):
        return [value]
    if isinstance(value, keras.layers.Layer):
        # Without seeds of random numbers, which Keras 2 did not save.
        return list(value.weights)
    if isinstance(value, Mapping):
        return [variable for part in value.values() for variable in _variables_of(part)]
    if isinstance(value, (list, tuple)):
        return [variable for part in value for variable in _variables_of(part)]
    return list(getattr(value, "variables", ()))


def _is_argument(key: str) -> bool:
    """Returns whether a key is of a number that is an argument here, or counts how often was saved."""
    return key.removesuffix(_VALUE).rpartition("/")[2].removeprefix("_") in _ARGUMENTS
