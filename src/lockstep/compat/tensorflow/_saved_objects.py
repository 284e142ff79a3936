"""`tf.saved_model.save`: models of Keras and modules with their functions, as exports of lockstep.

The export's own files hold the tree of objects, and a program for each way in which a function is called. A model of
Keras is saved as Keras' own directory besides, so that `tf.keras.models.load_model` gives the whole model.
"""

from __future__ import annotations

import json
import logging
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
from keras.src import tree

from lockstep import saved_model
from lockstep._nest import flatten
from lockstep._types import Model, Variable
from lockstep.checkpoint.internal import take_place
from lockstep.compat.tensorflow._ops.variable import Module
from lockstep.compat.tensorflow._saved_functions import Call, SavedFunction, calls_of
from lockstep.compat.tensorflow._saved_options import SaveOptions
from lockstep.compat.tensorflow._saved_signatures import output_names, signature_of
from lockstep.compat.tensorflow._spec import TensorSpec
from lockstep.compat.tensorflow._types import PathLike, Trackable
from lockstep.compat.tensorflow.keras._saves import save_directory
from lockstep.compat.tensorflow.keras._text_inputs import functional_of, has_host_layers
from lockstep.errors import ArgumentError, UnsupportedError

# Among the export's own files: the tree of objects, and how functions are called.
OBJECT = "object.json"
CALL = "__call__"
_DEFAULT = saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


def save(obj: Trackable, export_dir: PathLike, signatures: Any = None, options: Any = None) -> None:
    """Saves a model of Keras, or a module: its variables, those of its modules, and their functions.

    A `tf.function` with an `input_signature` is saved for what that says, another one for what it was called with.

    Args:
        obj: A `keras.Model`, or a `tf.Module`.
        export_dir: The directory; a former export there is replaced when the new one is complete.
        signatures: A function with an `input_signature` or of `get_concrete_function`, or several by name. Default: the
            model's call, or the only function of the module, as "serving_default".
        options: `SaveOptions`, which change no result.

    Raises:
        ArgumentError: If there is nothing that can be saved, or a signature does not say what it takes.
        UnsupportedError: If a function cannot be exported.

    Source: tf.saved_model.save.
    """
    if options is not None and not isinstance(options, SaveOptions):
        raise ArgumentError(f"options is a tf.saved_model.SaveOptions. Received: {options!r:.80}.")
    named = signatures if isinstance(signatures, Mapping) else {} if signatures is None else {_DEFAULT: signatures}
    content = _Content(obj, named)
    model = obj if isinstance(obj, keras.Model) else None
    if model is None and not content.functions and not content.variables:
        raise ArgumentError(
            "tf.saved_model.save saves models of Keras, and variables and functions of a tf.Module. Received a "
            f"{type(obj).__name__} without any."
        )
    target = Path(export_dir).absolute()
    if target.is_dir() and any(target.iterdir()) and not _is_export(target):
        raise ArgumentError(
            f"An export is a directory of its own. Received: {target}, which holds other files. Name a new directory."
        )
    staged = target.with_name(f".{target.name}.unfinished-{uuid.uuid4().hex[:8]}")
    content.write(staged)
    if model is not None:
        save_directory(model, staged)
    take_place(staged, target, target.with_name(f".{target.name}.previous"))


def _is_export(directory: Path) -> bool:
    return saved_model.contains_saved_model(str(directory)) or (directory / "metadata.json").exists()


class _Content:
    """Content of an export: objects by their numbers, the first of which is saved; functions; and signatures."""

    def __init__(self, obj: Trackable, named: Mapping[str, Any]) -> None:
        self.variables = _variables_of(obj)
        self._largest = max((size for v in self.variables for size in v.shape), default=1)
        self._places = {id(v): number for number, v in enumerate(self.variables)}
        self.functions: list[SavedFunction] = []
        self._known: dict[Any, int] = {}
        self._nodes: list[dict[str, Any]] = []
        self._signatures: dict[str, dict[str, Any]] = {}
        self._servable: dict[str, saved_model.SignatureFunction] = {}
        self._add_node(obj)
        for name, function in named.items():
            self._add_signature(name, self._of_signature(name, function))
        own = self._nodes[0]["functions"]
        if isinstance(obj, keras.Model):
            self._add_call(obj, is_only=not named and not own)
        elif len(own) == 1 and not named and self.functions[next(iter(own.values()))].inputs:
            self._add_signature(_DEFAULT, next(iter(own.values())))

    def write(self, directory: Path) -> None:
        """Writes it all."""
        with tempfile.TemporaryDirectory() as temporary:
            files: dict[str, str] = {}

            def add_file(content: bytes) -> str:
                name = f"function_{len(files)}.jax"
                files[name] = str(Path(temporary, name))
                Path(files[name]).write_bytes(content)
                return name

            document = {
                "variables": [{"key": k, "name": v.name, "trainable": bool(v.trainable)} for k, v in self._by_key()],
                "objects": self._nodes,
                "functions": [one.describe(self.variables, add_file) for one in self.functions],
                "signatures": self._signatures,
            }
            description = Path(temporary, OBJECT)
            description.write_text(json.dumps(document))
            values = {key: variable.value for key, variable in self._by_key()}
            saved_model.write(str(directory), self._servable, values, {OBJECT: str(description), **files})

    def _by_key(self) -> Iterator[tuple[str, Variable]]:
        # Two variables may have one path.
        for number, variable in enumerate(self.variables):
            yield f"{number:04d}:{variable.path}", variable

    def _add_node(self, obj: Any) -> int:
        """Describes an object and what is in it; returns its number."""
        found = self._known.get(id(obj))
        if found is not None:
            return found
        number = self._known[id(obj)] = len(self._nodes)
        node: dict[str, Any] = {"functions": {}, "attributes": {}}
        self._nodes.append(node)
        for name, function in _methods_of(obj):
            node["functions"][name] = self._add_function(name, function)
        if isinstance(obj, keras.layers.Layer):
            # A layer's own attributes are Keras'; its variables are among all variables.
            return number
        for name, value in sorted(vars(obj).items()):
            described = None if name.startswith("_") else self._describe(value)
            if described is not None:
                node["attributes"][name] = described
        return number

    def _describe(self, value: Any) -> Any:
        if isinstance(value, keras.Variable):
            place = self._places.get(id(value))
            return None if place is None else {"variable": place}
        if isinstance(value, (Module, keras.layers.Layer)):
            return {"object": self._add_node(value)}
        if isinstance(value, Mapping):
            parts = {str(key): self._describe(part) for key, part in value.items()}
            return (
                {"dict": {key: part for key, part in parts.items() if part is not None}}
                if any(parts.values())
                else None
            )
        if isinstance(value, (list, tuple)):
            parts = [self._describe(part) for part in value]
            return {"list": parts} if parts and None not in parts else None
        return None

    def _add_function(self, name: str, function: Any) -> int:
        return self._keep(name, function.python_function, calls_of(function))

    def _keep(self, name: str, function: Callable[..., Any], calls: list[Call]) -> int:
        self.functions.append(SavedFunction(name, function, calls, self._largest))
        return len(self.functions) - 1

    def _of_signature(self, name: str, function: Any) -> int:
        if not hasattr(function, "python_function") or len(calls_of(function)) != 1:
            raise ArgumentError(
                f"The signature {name!r} must be a function that says what it takes: @tf.function(input_signature=["
                "tf.TensorSpec(...)]), or one of get_concrete_function. Received: "
                f"{type(function).__name__} without an input_signature."
            )
        return self._add_function(name, function)

    def _add_signature(self, name: str, number: int, outputs: list[str] | None = None) -> None:
        function = self.functions[number]
        inputs = [spec.name or parameter for parameter, spec in function.inputs]
        if len(set(inputs)) != len(inputs):
            raise UnsupportedError(f"A signature takes tensors by name. Received for {name!r}: {function.inputs!r}.")
        outputs = outputs or output_names(function.results)
        self._signatures[name] = {"function": number, "inputs": inputs, "outputs": outputs}
        served = signature_of(function, inputs, outputs, dict(self._by_key()))
        if served is not None:
            self._servable[name] = served

    def _add_call(self, model: Model, is_only: bool) -> None:
        """Adds the call of a model, which programs with text on the host do not have."""
        if not getattr(model, "built", False) or not getattr(model, "inputs", None):
            if is_only:
                logging.getLogger("lockstep").warning(
                    "%s is saved without a function to call: its inputs are not known. Make it a functional or "
                    "sequential model with an Input, or give signatures=.",
                    model.name,
                )
            return
        if has_host_layers(model):
            return
        struct = functional_of(model)._inputs_struct
        names = iter([name for name, _ in _input_names(model)])
        specs = tree.map_structure(lambda t: TensorSpec(t.shape, t.dtype, next(names)), struct)

        def call(inputs: Any, training: bool = False) -> Any:
            return model(inputs, training=training)

        if CALL not in self._nodes[0]["functions"]:
            self._nodes[0]["functions"][CALL] = self._keep(CALL, call, [Call(*flatten(((specs,), {})))])
        if _DEFAULT not in self._signatures:
            number = self._nodes[0]["functions"][CALL]
            is_sequential = isinstance(model, keras.Sequential)
            outputs = [layer.name for layer in model.layers[-1:]] if is_sequential else list(model.output_names)
            is_dict = isinstance(self.functions[number].results, Mapping)
            self._add_signature(_DEFAULT, number, None if is_dict else outputs)


def _methods_of(obj: Trackable) -> Iterator[tuple[str, Any]]:
    """Yields the functions of an object that say what they take, or were called."""
    names = dict.fromkeys(name for part in (obj, *type(obj).__mro__) for name in vars(part))
    for name in sorted(names):
        value = vars(obj).get(name, getattr(type(obj), name, None))
        # What a bound function was compiled for lies beside the attributes.
        if name.startswith("_lockstep_") or not hasattr(value, "python_function"):
            continue
        bound = getattr(obj, name)
        if hasattr(bound, "programs") and calls_of(bound):
            yield name, bound


def _variables_of(obj: Trackable) -> list[Variable]:
    if isinstance(obj, (keras.layers.Layer, Module)):
        return list({id(v): v for v in obj.variables}.values())
    held = vars(obj).values() if hasattr(obj, "__dict__") else ()
    return [v for v in held if isinstance(v, keras.Variable)]


def _input_names(model: Model) -> Iterator[tuple[str, Any]]:
    for tensor in model.inputs:
        name = tensor.name
        if name.startswith("keras_tensor") and isinstance(model, keras.Sequential):
            # Keras 2's name of the input that a first layer's input_shape makes.
            name = f"{model.layers[0].name}_input"
        yield name, tensor
