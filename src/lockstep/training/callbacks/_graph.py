"""The graph of a Keras model, as TensorBoard's graph plugin reads it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# The plugin knows these types; of any other it logs a warning with the whole configuration.
_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
_DTYPES = frozenset((*_INTEGERS, *_FLOATS, "bool", "string"))
_MODELS = ("Functional", "Sequential")


def graph_of(configuration: str) -> str:
    """Returns the configuration of a Sequential or functional model, reduced to what the graph plugin draws.

    The plugin reads Keras' own configuration, too, and fails on some: calls with numbers among their arguments, outputs
    in dicts, inputs that are no list, layers whose configuration has "layers". It also leaves out keyword arguments.

    Args:
        configuration: What `model.to_json()` returns.
    """
    return json.dumps(_layer(json.loads(configuration), is_root=True))


def graph_def_of(configuration: str) -> bytes:
    """Returns the same graph as a serialized `GraphDef`.

    The plugin opens a directory with its "op graph", and fails where there is only the conceptual one.

    Args:
        configuration: What `model.to_json()` returns.
    """
    graph = importlib.import_module("tensorboardX.proto.graph_pb2").GraphDef()
    model = _layer(json.loads(configuration), is_root=True)
    # Without the model's own name, which would be the only box of the picture until somebody opens it.
    _add_model(graph, model["config"], "", [])
    return graph.SerializeToString()


def _add_model(graph: Any, config: Mapping[str, Any], scope: str, feeds: Sequence[str]) -> list[str]:
    """Adds the layers of a model, fed by the nodes `feeds`, under `scope`; returns the nodes of its outputs."""
    is_functional = "input_layers" in config
    before, unfed = list(feeds), list(feeds)
    outputs: dict[str, list[str]] = {}
    for layer in config.get("layers", ()):
        name = layer["config"]["name"]
        if layer["class_name"] == "InputLayer":
            # Each input of a model in a model is fed by one node; a sequence has one.
            inputs = [unfed.pop(0)] if unfed else []
        elif is_functional:
            places = [place for node in layer.get("inbound_nodes", ()) for place in _places_of(node)]
            inputs = [
                outputs[owner][min(index, len(outputs[owner]) - 1)] for owner, index in places if owner in outputs
            ]
        else:
            inputs = before
        before = outputs[name] = _add_layer(graph, layer, f"{scope}{name}", inputs)
    if is_functional:
        return [outputs[owner][min(index, len(outputs[owner]) - 1)] for owner, _, index in config["output_layers"]]
    return before


def _add_layer(graph: Any, layer: Mapping[str, Any], path: str, inputs: Sequence[str]) -> list[str]:
    if "layers" in layer["config"]:
        return _add_model(graph, layer["config"], f"{path}/", inputs)
    graph.node.add(name=path, op=layer["class_name"], input=list(dict.fromkeys(inputs)))
    return [path]


def _places_of(node: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for arguments in node["args"]:
        for argument in arguments:
            owner, _, index = argument["config"]["keras_history"]
            yield str(owner), int(index)


def _layer(layer: Mapping[str, Any], is_root: bool = False) -> dict[str, Any]:
    config: Mapping[str, Any] = layer.get("config") or {}
    # Layers of Keras have the name of their configuration; one of a user's may have another, or none.
    kept: dict[str, Any] = {"name": str(config.get("name") or layer.get("name") or layer.get("class_name"))}
    if (dtype := _dtype(config.get("dtype"))) is not None:
        kept["dtype"] = dtype
    if layer.get("class_name") in _MODELS and config.get("layers"):
        kept["layers"] = [_layer(part) for part in config["layers"]]
        if layer["class_name"] == "Functional":
            kept["input_layers"] = [name for name, _, _ in _places(config.get("input_layers"))]
            kept["output_layers"] = [list(place) for place in _places(config.get("output_layers"))]
    name = str(layer.get("class_name")).encode("ascii", "replace").decode()
    found: dict[str, Any] = {"class_name": name, "config": kept}
    if "inbound_nodes" in layer and not is_root:
        found["inbound_nodes"] = [_call(node) for node in layer["inbound_nodes"]]
    return found


def _call(node: Any) -> dict[str, Any]:
    """Returns a call of a layer with the tensors among its arguments, wherever in them they are."""
    histories = list(_histories(node))
    return {"args": [[{"config": {"keras_history": history}} for history in histories]]}


def _histories(value: Any) -> Iterator[list[Any]]:
    """Yields where each Keras tensor in a configuration comes from: layer, number of the call, number of the output."""
    if isinstance(value, dict):
        history = (
            value.get("config", {}).get("keras_history") if value.get("class_name") == "__keras_tensor__" else None
        )
        if history is not None:
            yield list(history[:3])
            return
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _histories(part)


def _places(value: Any) -> Iterator[tuple[str, int, int]]:
    """Yields the places (layer, call, output) in a list, a dict, or alone."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, Sequence) or isinstance(value, str):
        return
    if len(value) == 3 and isinstance(value[0], str) and isinstance(value[1], int):
        yield value[0], value[1], int(value[2])
        return
    for part in value:
        yield from _places(part)


def _dtype(value: Any) -> str | None:
    """Returns the type of a layer's computation: a policy such as "mixed_float16" has none that the plugin knows."""
    if isinstance(value, dict):
        value = value.get("config", {}).get("name")
    return value if isinstance(value, str) and value in _DTYPES else None
