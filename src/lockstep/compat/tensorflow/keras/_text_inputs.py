"""Models that are fed with text: what their layers of text compute is computed on the host, before the step.

JAX has no text. A functional model is cut in two: the operations that lead to layers of text and categories run on the
host, and what they give is what the compiled rest of the model takes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras.src import tree
from keras.src.models.functional import operation_fn
from keras.src.ops.function import Function

from lockstep._types import Model, PyTree
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._preprocessing.host_layer import HostLayer, to_values
from lockstep.errors import ArgumentError, UnsupportedError

_HOST, _INPUT = "lockstep_host_", "lockstep_input_"
_CUT = "_lockstep_cut"


class Cut:
    """Where a functional model is cut: tensors between the operations of the host and the others.

    Args:
        model: A functional model.

    Raises:
        UnsupportedError: If something with weights comes before a layer of text.
    """

    def __init__(self, model: Model) -> None:
        self._inputs: list[Any] = list(model._inputs)
        self._names = {id(tensor): name for name, tensor in _named_inputs(model)}
        self._operations: list[Any] = [op for op in model._operations if not _is_input(op)]
        self._nodes = [node for nodes in model._nodes_by_depth.values() for node in nodes if not _is_input_node(node)]
        host = self._find_host_nodes()
        self._made_on_host = {id(t): node for node in host for t in node.output_tensors}
        # What compiled operations, or the model's own outputs, take.
        needed = [t for node in self._nodes if node not in host for t in node.input_tensors]
        needed += tree.flatten(model._outputs_struct)
        taken = {id(t): t for t in needed}
        self.between = [t for key, t in taken.items() if key in self._made_on_host]
        self.passed = [t for t in self._inputs if id(t) in taken]
        if any(t.dtype == "string" for t in (*self.between, *self.passed)):
            raise UnsupportedError(
                f"Text of the model {model.name!r} goes into layers that are compiled, or out of the model. Begin with "
                "a layer that makes numbers of it: StringLookup, TextVectorization or Hashing."
            )
        self._compiled: Any = Function([*self.between, *self.passed], model._outputs_struct)

    def _find_host_nodes(self) -> list[Any]:
        by_tensor = {id(t): node for node in self._nodes for t in node.output_tensors}
        open_nodes = [n for n in self._nodes if _has_text(n)]
        found: list[Any] = []
        while open_nodes:
            node = open_nodes.pop()
            if node in found:
                continue
            found.append(node)
            if getattr(node.operation, "trainable_weights", ()):
                raise UnsupportedError(
                    f"The layer {node.operation.name!r} has weights that are trained, and a layer of text or "
                    "categories comes after it, or is a part of it. Put those first, into the model itself."
                )
            open_nodes += [by_tensor[id(t)] for t in node.input_tensors if id(t) in by_tensor]
        return found

    def prepare(self, inputs: PyTree) -> dict[str, Any]:
        """Returns what the compiled part takes, of inputs in any form that the model takes."""
        values = {id(t): _fit(value, t) for t, value in zip(self._inputs, self._flatten(inputs), strict=True)}
        prepared = {f"{_HOST}{i:04d}": _to_numpy(self._compute(t, values)) for i, t in enumerate(self.between)}
        return prepared | {f"{_INPUT}{i:04d}": values[id(t)] for i, t in enumerate(self.passed)}

    def _flatten(self, inputs: PyTree) -> list[Any]:
        if isinstance(inputs, dict):
            missing = [self._names[id(t)] for t in self._inputs if self._names[id(t)] not in inputs]
            if missing:
                raise ArgumentError(f"The model's inputs are named {missing}. Received a dict of {sorted(inputs)}.")
            return [inputs[self._names[id(t)]] for t in self._inputs]
        if len(self._inputs) == 1:
            is_wrapped = isinstance(inputs, (list, tuple)) and len(inputs) == 1 and np.ndim(inputs[0]) > 0
            return [inputs[0] if is_wrapped else inputs]
        if not isinstance(inputs, (list, tuple)) or len(inputs) != len(self._inputs):
            raise ArgumentError(
                f"The model takes {len(self._inputs)} inputs: a list, or a dict of {list(self._names.values())}. "
                f"Received: {type(inputs).__name__}."
            )
        return list(inputs)

    def _compute(self, tensor: Any, values: dict[int, Any]) -> Any:
        """Returns the value of a tensor, and adds to `values` what was computed on the way."""
        if id(tensor) not in values:
            node = self._made_on_host[id(tensor)]
            for given in node.input_tensors:
                self._compute(given, values)
            args, kwargs = node.arguments.fill_in(values)
            results = tree.flatten(node.operation(*args, **kwargs))
            values.update({id(t): r for t, r in zip(node.output_tensors, results, strict=True)})
        return values[id(tensor)]

    def run(self, prepared: dict[str, Any], training: Any, kwargs: dict[str, Any]) -> Any:
        """Returns the model's outputs for what `prepare` gave."""
        outputs = self._compiled._run_through_graph(
            [prepared[key] for key in sorted(prepared)],
            operation_fn=lambda operation: operation_fn(operation, training=training, **kwargs),
        )
        return outputs[0] if isinstance(outputs, list) and len(outputs) == 1 else outputs


def _named_inputs(model: Model) -> Iterator[tuple[str, Any]]:
    struct = model._inputs_struct
    if isinstance(struct, dict):
        yield from struct.items()
        return
    for tensor in model._inputs:
        yield tensor.name, tensor


def _is_input(operation: Any) -> bool:
    return isinstance(operation, keras.layers.InputLayer)


def _is_input_node(node: Any) -> bool:
    return node.is_input or _is_input(node.operation)


def _has_text(node: Any) -> bool:
    tensors = (*node.input_tensors, *node.output_tensors)
    return has_host_layers(node.operation) or any(t.dtype == "string" for t in tensors)


def has_host_layers(layer: Any) -> bool:
    """Returns whether a layer, or one inside of it, is computed on the host."""
    if isinstance(layer, HostLayer):
        return True
    # Of other operations of Keras there are none inside.
    flatten = getattr(layer, "_flatten_layers", None)
    return flatten is not None and any(isinstance(one, HostLayer) for one in flatten(include_self=False))


def _fit(value: Any, tensor: Any) -> np.ndarray:
    """Returns an input's value with the rank and the dtype of its placeholder."""
    array = to_values(value)
    if tensor.dtype != "string" and array.dtype != object:
        array = array.astype(tensor.dtype)
    rank = len(tensor.shape)
    if array.ndim == rank - 1 and tensor.shape[-1] == 1:
        return array[..., None]
    return array[..., 0] if array.ndim == rank + 1 and array.shape[-1] == 1 else array


def _to_numpy(value: Any) -> np.ndarray:
    array = np.asarray(value)
    return array.view(np.ndarray)


# A type checker would take the model for Keras' own class, whose private parts are used.
def _is_sequential(model: Model) -> bool:
    return isinstance(model, keras.Sequential)


def functional_of(model: Model) -> Any:
    """Returns the functional model that a model is or has, or None."""
    if _is_sequential(model):
        return model._functional
    return model if hasattr(model, "_inputs_struct") and hasattr(model, "_nodes_by_depth") else None


def cut_of(model: Model) -> Cut | None:
    """Returns where a model is cut, or None if it has no layer of the host."""
    functional = functional_of(model)
    if functional is None or not has_host_layers(model):
        return None
    known = vars(functional).get(_CUT)
    if known is None:
        known = Cut(functional)
        # Keras' __setattr__ would track it, and save it.
        object.__setattr__(functional, _CUT, known)
    return known


def is_prepared(inputs: PyTree) -> bool:
    """Returns whether inputs are what `Cut.prepare` gives."""
    return isinstance(inputs, dict) and bool(inputs) and str(next(iter(inputs))).startswith((_HOST, _INPUT))


def holds_text(inputs: PyTree) -> bool:
    """Returns whether inputs hold text of the host."""
    if isinstance(inputs, np.ndarray):
        return inputs.dtype.kind in "OSUT"
    if isinstance(inputs, dict):
        return any(map(holds_text, inputs.values()))
    if isinstance(inputs, (list, tuple)):
        return any(
            map(holds_text, inputs[:1] if inputs and isinstance(inputs[0], (str, bytes, int, float)) else inputs)
        )
    return isinstance(inputs, (str, bytes))


def build_for(model: Model, inputs: PyTree) -> None:
    """Builds a sequential model that begins with a layer of the host, for inputs of the shape of these."""
    if not _is_sequential(model) or model._functional is not None or not model._layers:
        return
    first = model._layers[0]
    if not isinstance(first, HostLayer) or isinstance(inputs, (dict, tuple)):
        return
    values = to_values(inputs)
    dtype = "string" if values.dtype == object else "int64"
    placeholder = keras.layers.InputLayer(batch_shape=(None, *values.shape[1:]), dtype=dtype)
    model._layers = [placeholder, *model._layers]
    model._maybe_rebuild()


def columns_of(model: Model) -> Any:
    """Returns the layer of feature columns that a model begins with, or None."""
    # Only programs with columns import those.
    if "lockstep.estimator.feature_column" not in sys.modules:
        return None
    from lockstep.compat.tensorflow.keras import _column_inputs

    return _column_inputs.columns_of(model)


def _encode_data(layer: Any, data: Any) -> Any:
    """Returns data for fit, evaluate or predict of a model with feature columns, with integers in place of text."""
    from lockstep.compat.tensorflow.keras._column_inputs import encode

    def encode_element(*element: Argument) -> Any:
        features, rest = encode(layer, element[0]), element[1:]
        return (features, *rest) if rest else features

    if hasattr(data, "element_spec") and hasattr(data, "map"):
        return data.map(encode_element)
    if isinstance(data, Iterator):
        return (encode_element(*one) if isinstance(one, tuple) else encode_element(one) for one in data)
    return encode(layer, data)


def prepare_data(model: Model, data: Any, method: str) -> Any:
    """Returns data for fit, evaluate or predict with the host's part of the model computed, if it has one.

    Args:
        model: The model.
        data: Inputs, or a dataset or generator of `inputs`, `(inputs, targets)` or `(inputs, targets, weights)`.
        method: The name of the method, for errors.

    Raises:
        UnsupportedError: For data of other kinds.
    """
    columns = None if data is None or is_prepared(data) else columns_of(model)
    if columns is not None:
        return _encode_data(columns, data)
    if is_prepared(data) or data is None or not has_host_layers(model):
        return data
    is_dataset = hasattr(data, "element_spec") and hasattr(data, "map")
    if is_dataset and functional_of(model) is None and isinstance(model, keras.Sequential):
        first = next(iter(data.take(1)))
        build_for(model, first[0] if isinstance(first, tuple) else first)
    elif not is_dataset:
        build_for(model, data)
    cut = cut_of(model)
    if cut is None:
        # A model of a class of its own: its call decides, and says what is not possible.
        return data

    def prepare(*element: Argument) -> Any:
        inputs, rest = element[0], element[1:]
        return (cut.prepare(inputs), *rest) if rest else cut.prepare(inputs)

    if is_dataset:
        return data.map(prepare)
    if isinstance(data, keras.utils.PyDataset):
        raise UnsupportedError(
            f"{method}() of a model with layers of text takes arrays, datasets and generators. Received a "
            f"{type(data).__name__}. Pass a generator: (sequence[i] for i in range(len(sequence)))."
        )
    if isinstance(data, Iterator):
        return (prepare(*element) if isinstance(element, tuple) else prepare(element) for element in data)
    return cut.prepare(data)
