"""`tf.saved_model.save`: models of Keras and modules with their functions, as exports of lockstep.

A function becomes a program whose variables are arguments; what else the object has is not saved. A model of Keras is
saved as Keras' own directory besides, so that `tf.keras.models.load_model` gives the whole model.
"""

from __future__ import annotations

import inspect
import json
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import keras
from keras.src import tree

from lockstep import saved_model
from lockstep._types import Model, PyTree, Variable
from lockstep.checkpoint.internal import take_place
from lockstep.compat.tensorflow._ops.variable import Module
from lockstep.compat.tensorflow._saved_options import SaveOptions
from lockstep.compat.tensorflow._spec import TensorSpec
from lockstep.compat.tensorflow._types import PathLike, Trackable
from lockstep.compat.tensorflow.keras._saves import save_directory
from lockstep.compat.tensorflow.keras._text_inputs import functional_of, has_host_layers
from lockstep.errors import ArgumentError, UnsupportedError

# Among the export's own files: how its programs are called as methods.
FUNCTIONS = "functions.json"
CALL = "__call__"
_DEFAULT = saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


class _Exported:
    """A function to be exported, under the name of a signature.

    Args:
        function: A function of arrays.
        specs: What it is given, by the name of the argument, in order.
        variables: What it may read, by name.
    """

    def __init__(self, function: Callable[..., Any], specs: Mapping[str, Any], variables: dict[str, Variable]) -> None:
        self._function, self.specs, self._variables = function, specs, variables
        # Known once it is traced: the structure of what it returns, with names in place of the tensors.
        self.outputs: PyTree = None

    def signature(self) -> saved_model.SignatureFunction:
        """Returns what is written."""
        return saved_model.SignatureFunction(self.run, dict(self.specs))

    def run(self, values: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the outputs by name, for variables and inputs by name."""
        mapping = [(variable, values[name]) for name, variable in self._variables.items()]
        with keras.StatelessScope(state_mapping=mapping):
            results = self._function(*(inputs[name] for name in self.specs))
        self.outputs = _name_outputs(results)
        return dict(zip(tree.flatten(self.outputs), tree.flatten(results), strict=True))

    def describe(self) -> dict[str, Any]:
        """Returns how it is called, as JSON has it."""
        return {"arguments": list(self.specs), "outputs": self.outputs}


def _name_outputs(results: PyTree) -> Any:
    if isinstance(results, dict) and not any(isinstance(v, (dict, list, tuple)) for v in results.values()):
        return {key: str(key) for key in results}
    count = iter(range(len(tree.flatten(results))))
    return tree.map_structure(lambda _: f"output_{next(count)}", results)


def save(obj: Trackable, export_dir: PathLike, signatures: Any = None, options: Any = None) -> None:
    """Saves a model of Keras, or a module's functions that have an `input_signature`, with their variables.

    Args:
        obj: A `keras.Model` that is built, or a `tf.Module`.
        export_dir: The directory; a former export there is replaced when the new one is complete.
        signatures: A function with an `input_signature`, or several by name. Default: the model's call, or the only
            function of the module, as "serving_default".
        options: `SaveOptions`, which change no result.

    Raises:
        ArgumentError: If there is nothing that can be saved, or a function has no `input_signature`.
        UnsupportedError: If a function cannot be exported.

    Source: tf.saved_model.save.
    """
    if options is not None and not isinstance(options, SaveOptions):
        raise ArgumentError(f"options is a tf.saved_model.SaveOptions. Received: {options!r:.80}.")
    functions = dict(_methods_of(obj))
    named = signatures if isinstance(signatures, Mapping) else {} if signatures is None else {_DEFAULT: signatures}
    model = obj if isinstance(obj, keras.Model) else None
    variables = _variables_of(obj)
    exported = {name: _of_function(name, function, variables) for name, function in {**functions, **named}.items()}
    if model is not None:
        _add_call(model, exported, variables)
    elif len(functions) == 1 and not named:
        exported[_DEFAULT] = _of_function(_DEFAULT, next(iter(functions.values())), variables)
    if not exported and model is None:
        raise ArgumentError(
            "tf.saved_model.save saves models of Keras, and functions of a tf.Module that say what they take: "
            f"@tf.function(input_signature=[tf.TensorSpec(...)]). Received a {type(obj).__name__} without any."
        )
    target = Path(export_dir).absolute()
    if target.is_dir() and any(target.iterdir()) and not _is_export(target):
        raise ArgumentError(
            f"An export is a directory of its own. Received: {target}, which holds other files. Name a new directory."
        )
    staged = target.with_name(f".{target.name}.unfinished-{uuid.uuid4().hex[:8]}")
    if exported:
        _write(staged, exported, variables)
    if model is not None:
        save_directory(model, staged)
    take_place(staged, target, target.with_name(f".{target.name}.previous"))


def _is_export(directory: Path) -> bool:
    return saved_model.contains_saved_model(str(directory)) or (directory / "metadata.json").exists()


def _write(directory: Path, exported: dict[str, _Exported], variables: dict[str, Variable]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        description = Path(temporary, FUNCTIONS)
        for one in exported.values():
            # Traced once ahead, for the structure of what it returns: the description is written with the programs.
            jax.eval_shape(one.run, {k: v.value for k, v in variables.items()}, _examples_of(one))
        description.write_text(json.dumps({name: one.describe() for name, one in exported.items()}))
        saved_model.write(
            str(directory),
            {name: one.signature() for name, one in exported.items()},
            {name: variable.value for name, variable in variables.items()},
            assets={FUNCTIONS: str(description)},
        )


def _examples_of(exported: _Exported) -> dict[str, Any]:
    return {
        name: jax.ShapeDtypeStruct([1 if size is None else int(size) for size in spec.shape], _dtype_name(spec))
        for name, spec in exported.specs.items()
    }


def _dtype_name(spec: Any) -> str:
    return str(getattr(spec.dtype, "name", spec.dtype))


def _methods_of(obj: Trackable) -> Iterator[tuple[str, Any]]:
    """Yields the functions of an object that say what they take."""
    names = dict.fromkeys(name for part in (obj, *type(obj).__mro__) for name in vars(part))
    for name in sorted(names):
        value = vars(obj).get(name, getattr(type(obj), name, None))
        if hasattr(value, "python_function") and getattr(value, "input_signature", None) is not None:
            yield name, getattr(obj, name)


def _variables_of(obj: Trackable) -> dict[str, Variable]:
    if not isinstance(obj, (keras.layers.Layer, Module)):
        held = [v for v in vars(obj).values() if isinstance(v, keras.Variable)] if hasattr(obj, "__dict__") else []
    else:
        held = list(obj.variables)
    # Two variables may have one path.
    return {f"{number:04d}:{variable.path}": variable for number, variable in enumerate(held)}


def _of_function(name: str, function: Any, variables: dict[str, Variable]) -> _Exported:
    specs = getattr(function, "input_signature", None)
    python_function = getattr(function, "python_function", None)
    if specs is None or python_function is None:
        raise ArgumentError(
            f"The signature {name!r} must be a function that says what it takes: @tf.function(input_signature=["
            f"tf.TensorSpec(...)]). Received: {type(function).__name__} without an input_signature."
        )
    parameters = [p for p in inspect.signature(python_function).parameters if p != "self"]
    if any(not hasattr(spec, "shape") for spec in specs):
        raise UnsupportedError(f"An exported function takes tensors. Received for {name!r}: {specs!r}.")
    named = {getattr(spec, "name", None) or parameters[i]: spec for i, spec in enumerate(specs)}
    return _Exported(python_function, named, variables)


def _add_call(model: Model, exported: dict[str, _Exported], variables: dict[str, Variable]) -> None:
    """Adds the call of a model, which programs with text on the host do not have."""
    if not getattr(model, "built", False) or not getattr(model, "inputs", None):
        if not exported:
            raise ArgumentError(
                f"The model {model.name!r} must be built, and know its inputs, to be exported. Make it a functional or "
                "sequential model with an Input, or give signatures=."
            )
        return
    if has_host_layers(model):
        return
    struct = functional_of(model)._inputs_struct
    specs = {name: TensorSpec(tensor.shape, tensor.dtype, name) for name, tensor in _input_names(model)}
    outputs = [layer.name for layer in model.layers[-1:]] if isinstance(model, keras.Sequential) else model.output_names

    def call(*values: Any) -> Any:
        return model(keras.tree.pack_sequence_as(struct, list(values)), training=False)

    def call_by_name(*values: Any) -> Any:
        results = call(*values)
        return results if isinstance(results, dict) else dict(zip(outputs, tree.flatten(results), strict=True))

    exported.setdefault(CALL, _Exported(call, specs, variables))
    exported.setdefault(_DEFAULT, _Exported(call_by_name, specs, variables))


def _input_names(model: Model) -> Iterator[tuple[str, Any]]:
    for tensor in model.inputs:
        name = tensor.name
        if name.startswith("keras_tensor") and isinstance(model, keras.Sequential):
            # Keras 2's name of the input that a first layer's input_shape makes.
            name = f"{model.layers[0].name}_input"
        yield name, tensor
