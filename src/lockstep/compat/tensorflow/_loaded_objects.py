"""Loads what `tf.saved_model.save` saved: a tree of objects with variables, and functions that compute with them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax import export

from lockstep import saved_model
from lockstep._types import JSON, Tensor
from lockstep.compat.tensorflow._ops.create import convert_to_tensor
from lockstep.compat.tensorflow._ops.function import Function, Options
from lockstep.compat.tensorflow._ops.variable import Module, Variable
from lockstep.compat.tensorflow._saved_values import Slot, decode, decode_signature, match
from lockstep.compat.tensorflow._spec import TensorSpec
from lockstep.compat.tensorflow._types import Argument
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.saved_model.internal import find_foreign_operation

_CALL = "__call__"


class SavedObject(Module):
    """A module or a model that `tf.saved_model.save` saved: its variables, modules and functions, as attributes.

    Attributes:
        signatures: Its signatures, by name; each returns a dict of tensors.
    """

    def __init__(self) -> None:
        """Makes an object without anything."""
        super().__init__()
        self.signatures: dict[str, Any] = {}
        self._variables: list[Any] | None = None
        self._call: Function | None = None

    def fill(
        self, functions: Mapping[str, Function], attributes: Mapping[str, Any], variables: list[Any] | None
    ) -> None:
        """Gives it functions and attributes by their names, and all variables in their order if it is the whole."""
        self._variables = variables
        for name, value in {**functions, **attributes}.items():
            if name == _CALL:
                self._call = value
            else:
                setattr(self, name, value)

    @property
    def variables(self) -> tuple[Any, ...]:
        """Its variables; of a model, in the order in which it had them."""
        return super().variables if self._variables is None else tuple(self._variables)

    def __call__(self, *args: Argument, **kwargs: Argument) -> Any:
        """Computes what the model's or the module's own call does."""
        if self._call is None:
            raise UnsupportedError("What was saved has no call of its own. Call a method, or one of its signatures.")
        return self._call(*args, **kwargs)


class Signature:
    """A signature: tensors by name, and a dict of tensors.

    Attributes:
        name: Its name.
        inputs: Specs of what it takes, by name.
        outputs: Specs of what it returns, by name.
    """

    def __init__(self, name: str, function: _Loaded, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Takes over a function and the names."""
        self.name = name
        self.inputs = _specs(inputs, function.slots("arguments"))
        self.outputs = _specs(outputs, function.slots("outputs"))
        self._call = Function(lambda *tensors: function.flat(tensors), Options(None, widens=False, autograph=False))

    @property
    def structured_input_signature(self) -> tuple[tuple[()], dict[str, TensorSpec]]:
        """Specs of the positional inputs, of which there are none, and of the named ones."""
        return (), dict(self.inputs)

    @property
    def structured_outputs(self) -> dict[str, TensorSpec]:
        """Specs of the outputs."""
        return dict(self.outputs)

    def __call__(self, inputs: Tensor = None, /, **named: Tensor) -> dict[str, Any]:
        """Computes the outputs of inputs by name, or of the only input.

        Raises:
            ArgumentError: If the inputs are not what the signature takes.
        """
        if inputs is not None:
            named = {**(inputs if isinstance(inputs, Mapping) else dict.fromkeys(self.inputs, inputs)), **named}
        if set(named) != set(self.inputs) or (
            len(named) > 1 and inputs is not None and not isinstance(inputs, Mapping)
        ):
            raise ArgumentError(
                f"The signature {self.name!r} takes {list(self.inputs.values())}. Received: {sorted(named)}."
            )
        tensors = [
            value if hasattr(value, "dtype") else convert_to_tensor(value, spec.dtype)
            for value, spec in ((named[name], spec) for name, spec in self.inputs.items())
        ]
        return dict(zip(self.outputs, self._call(*tensors), strict=True))

    def __repr__(self) -> str:
        return f"Signature({self.name!r}: {list(self.inputs.values())} -> {list(self.outputs.values())})"


def _specs(names: Sequence[str], slots: Sequence[Sequence[Slot]]) -> dict[str, TensorSpec]:
    """Returns a spec by name, which is open where the programs of a function differ."""
    columns = zip(*slots, strict=True)
    return {n: TensorSpec(_common(c), c[0].dtype, n) for n, c in zip(names, columns, strict=True)}


def _common(column: Sequence[Slot]) -> Any:
    shapes = [slot.shape for slot in column]
    if len({None if shape is None else len(shape) for shape in shapes}) > 1 or shapes[0] is None:
        return None
    return [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True)]


class _Loaded:
    """A function of an export, with its programs."""

    def __init__(self, document: JSON, directory: Path, variables: Sequence[Any]) -> None:
        self._signature: inspect.Signature = decode_signature(document["signature"])
        self._programs = [_Program(one, directory, variables) for one in document["programs"]]

    def slots(self, part: str) -> list[list[Slot]]:
        """Returns the tensors that each program takes or returns, in their order."""
        return [one.slots(part) for one in self._programs]

    def __call__(self, *args: Argument, **kwargs: Argument) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        for one in self._programs:
            tensors = one.fit(bound.arguments)
            if tensors is not None:
                return one.build(one(tensors))
        raise self._error(dict(bound.arguments))

    def flat(self, tensors: Sequence[Any]) -> list[Any]:
        """Computes it for tensors in their order; returns tensors."""
        for one in self._programs:
            given: dict[int, Any] = {}
            if all(match(one.tensors[i], tensor, given) for i, tensor in enumerate(tensors)):
                return one([given[i] for i in range(len(tensors))])
        raise self._error(list(tensors))

    def _error(self, received: Any) -> ArgumentError:
        known = "; ".join(str(one) for one in self._programs)
        return ArgumentError(
            "Could not find a matching program of the saved function: it is called as it was saved. Received: "
            f"{received!r:.200}. It was saved for: {known}."
        )


class _Program:
    """Describes one program of a function.

    Attributes:
        tensors: Of each tensor that it takes, the description.
    """

    def __init__(self, document: JSON, directory: Path, variables: Sequence[Any]) -> None:
        self._document = document
        self._changed = [variables[i] for i in document["changed"]]
        self._read = [variables[i] for i in document["read"]]
        self._exported = _read_program(directory / document["file"])
        found: dict[int, Any] = {}
        decode({"dict": document["arguments"]}, lambda slot: found.setdefault(slot.number, slot))
        self.tensors = [{"tensor": i, "shape": found[i].shape, "dtype": found[i].dtype} for i in range(len(found))]

    def slots(self, part: str) -> list[Slot]:
        found: list[Slot] = []
        document = {"dict": self._document[part]} if part == "arguments" else self._document[part]
        decode(document, found.append)
        return sorted(found, key=lambda slot: slot.number)

    def fit(self, arguments: Mapping[str, Any]) -> list[Any] | None:
        """Returns the tensors of arguments that it takes; `None` for others."""
        given: dict[int, Any] = {}
        is_fit = match({"dict": self._document["arguments"]}, arguments, given)
        return [given[i] for i in range(len(given))] if is_fit else None

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        values = [[v.value for v in part] for part in (self._changed, self._read)]
        results, after = self._exported.call(*values, [jax.numpy.asarray(t) for t in tensors])
        for variable, value in zip(self._changed, after, strict=True):
            variable.assign(value)
        return list(results)

    def build(self, results: Sequence[Any]) -> Any:
        """Returns tensors in the structure of what the function returned."""
        return decode(self._document["outputs"], lambda slot: results[slot.number])

    def __str__(self) -> str:
        return str({n: decode(part, lambda s: TensorSpec(s.shape, s.dtype)) for n, part in self._named()})

    def _named(self) -> Any:
        return self._document["arguments"].items()


def _read_program(path: Path) -> export.Exported:
    exported = export.deserialize(bytearray(path.read_bytes()))
    if found := find_foreign_operation(exported):
        raise ArgumentError(
            f"A program of an export computes with its own arrays. Received: {path}, which holds {found}: one that was "
            "made to do harm writes elsewhere in the memory of this process."
        )
    return exported


def load_object(model: saved_model.LoadedModel, description: Path) -> SavedObject:
    """Returns the object of an export, from the description that `tf.saved_model.save` wrote.

    Raises:
        ArgumentError: If one of its programs reaches beyond its own arrays.
    """
    document = json.loads(description.read_text())
    variables = [
        Variable(model.variables[one["key"]], trainable=one["trainable"], name=one["name"])
        for one in document["variables"]
    ]
    functions = [_Loaded(one, description.parent, variables) for one in document["functions"]]
    objects = [SavedObject() for _ in document["objects"]]
    root = objects[0]
    options = Options(None, widens=False, autograph=False)
    for loaded, node in zip(objects, document["objects"], strict=True):
        made = {name: Function(_named(functions[i], name), options) for name, i in node["functions"].items()}
        held = {name: _attribute(value, objects, variables) for name, value in node["attributes"].items()}
        loaded.fill(made, held, variables if loaded is root else None)
    root.signatures = {
        name: Signature(name, functions[one["function"]], one["inputs"], one["outputs"])
        for name, one in document["signatures"].items()
    }
    return root


def _named(function: _Loaded, name: str) -> Callable[..., Any]:
    def call(*args: Argument, **kwargs: Argument) -> Any:
        return function(*args, **kwargs)

    call.__name__ = name
    return call


def _attribute(document: JSON, objects: Sequence[Any], variables: Sequence[Any]) -> Any:
    if "variable" in document:
        return variables[document["variable"]]
    if "object" in document:
        return objects[document["object"]]
    if "dict" in document:
        return {key: _attribute(part, objects, variables) for key, part in document["dict"].items()}
    return [_attribute(part, objects, variables) for part in document["list"]]
