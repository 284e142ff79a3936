"""Signatures to be exported: functions, and descriptions of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep._text import Text
from lockstep.errors import ArgumentError
from lockstep.saved_model import _names, _parsing
from lockstep.saved_model._description import TensorInfo

# Variables by name and inputs by name to outputs by name: variables are arguments and not constants, so that a program
# holds no copy of them, and several signatures share one file.
Function = Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class SignatureFunction:
    """A signature of a model, to be exported.

    Args:
        function: A pure function of the variables, by name, and the inputs, by name, that JAX can trace. Text among the
            inputs is a `lockstep._text.Text`; an input of serialised examples is a dict of what they hold, by
            name. It returns arrays, `Words` or inputs that are `Text`, by name.
        inputs: Their specifications: anything with a shape and a dtype, such as `lockstep.data.TensorSpec`; `None` in
            the shape stands for any number, in the first place for the number of examples.
        parse: Of inputs that are serialised examples: their features (`FixedLenFeature` and so on, by name).
        tags: Of what it is a part.
        method: TensorFlow's name for its kind.
    """

    function: Function
    inputs: Mapping[str, Any]
    parse: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    tags: tuple[str, ...] = (_names.SERVING,)
    method: str = _names.PREDICT_METHOD_NAME


def input_infos(signature: SignatureFunction) -> dict[str, TensorInfo]:
    """Returns the shapes and types of the inputs; raises `ArgumentError` if one to be parsed is no batch of text."""
    infos = {name: input_info(name, spec) for name, spec in signature.inputs.items()}
    for name in signature.parse:
        if name not in infos or not infos[name].is_text or len(infos[name].shape) != 1:
            raise ArgumentError(
                "Examples to be parsed are an input of text with one dimension. Received for "
                f"{name!r}: {infos.get(name, 'no such input')}."
            )
    return infos


def input_info(name: str, spec: Any) -> TensorInfo:
    """Returns shape and type of an input; raises `ArgumentError` if it has no known number of dimensions."""
    if isinstance(spec, Text):
        return TensorInfo(tuple(spec.shape), "string")
    if spec.shape is None:
        raise ArgumentError(
            f"An input of an export needs a number of dimensions. Received: {name!r} without a shape. Give it one, "
            "with None for sizes that may differ, such as [None, 28, 28]."
        )
    dtype = "string" if spec.dtype == "string" else _parsing.dtype_name(spec.dtype)
    return TensorInfo(tuple(None if size is None else int(size) for size in spec.shape), dtype)


def program_infos_by_path(
    inputs: Mapping[str, TensorInfo], parse: Mapping[str, Mapping[str, Any]]
) -> dict[str, TensorInfo]:
    """Returns shapes and types of inputs and of features of examples; raises `ArgumentError` if two share a path."""
    found = {name: info for name, info in inputs.items() if name not in parse}
    for name, spec in parse.items():
        for feature, info in _parsing.looks(spec).items():
            if f"{name}/{feature}" in found:
                raise ArgumentError(f"Inputs have names of their own. Received twice: {name}/{feature}.")
            found[f"{name}/{feature}"] = info
    return found


def nest(inputs: Mapping[str, Any], parse: Mapping[str, Mapping[str, Any]], values: Mapping[str, Any]) -> Any:
    """Returns values by path in the structure that a function takes."""
    return {
        name: {feature: values[f"{name}/{feature}"] for feature in parse[name]} if name in parse else values[name]
        for name in inputs
    }
