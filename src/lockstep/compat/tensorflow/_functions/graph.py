"""The graph of a concrete function: its operations, as JAX has traced them, under TensorFlow's names."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from lockstep._engine.step.jaxprs import constants_of, open_jaxpr
from lockstep._types import JaxprAtom, JaxprEquation
from lockstep.compat.tensorflow._dtypes import as_dtype
from lockstep.compat.tensorflow._shape import TensorShape
from lockstep.errors import ArgumentError, DataNotFoundError

# Operations of JAX that TensorFlow calls otherwise than the words of their names.
_TYPES = {
    "add": "AddV2",
    "add_any": "AddV2",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
    "broadcast_in_dim": "BroadcastTo",
    "concatenate": "ConcatV2",
    "cond": "If",
    "conv_general_dilated": "Conv2D",
    "convert_element_type": "Cast",
    "div": "RealDiv",
    "dot_general": "MatMul",
    "eq": "Equal",
    "ge": "GreaterEqual",
    "gt": "Greater",
    "integer_pow": "Pow",
    "iota": "Range",
    "le": "LessEqual",
    "log1p": "Log1p",
    "logistic": "Sigmoid",
    "lt": "Less",
    "max": "Maximum",
    "min": "Minimum",
    "ne": "NotEqual",
    "reduce_max": "Max",
    "reduce_min": "Min",
    "reduce_prod": "Prod",
    "reduce_sum": "Sum",
    "scan": "While",
    "select_n": "SelectV2",
    "while": "While",
}
_VARIABLE = "lockstep_variable"


@dataclass(eq=False)
class GraphTensor:
    """A tensor of a graph: a result of an operation. Source: tf.Tensor of a tf.Graph."""

    op: Operation
    value_index: int
    shape: Any
    dtype: Any

    @property
    def name(self) -> str:
        """The operation's name, and the number of the result."""
        return f"{self.op.name}:{self.value_index}"

    def __repr__(self) -> str:
        return f"<tf.Tensor {self.name!r} shape={self.shape} dtype={self.dtype.name}>"


@dataclass(eq=False)
class Operation:
    """An operation of a graph. Source: tf.Operation."""

    name: str
    type: str
    inputs: list[GraphTensor] = field(default_factory=list[GraphTensor])
    outputs: list[GraphTensor] = field(default_factory=list[GraphTensor])

    def __repr__(self) -> str:
        return f"<tf.Operation {self.name!r} type={self.type}>"


class Graph:
    """Operations of a function, in the order in which they are computed; it cannot be changed.

    Args:
        name: The function's.
        closed: What JAX has traced.
        arguments: The names of what it takes.
        variables: The names of the variables that it reads.
        results: How many of its outputs the function returns; the others are next values of variables.

    Attributes:
        inputs: The tensors that it takes.
        outputs: The tensors that it returns.

    Source: tf.Graph.
    """

    def __init__(
        self, name: str, closed: Any, arguments: Sequence[str], variables: Sequence[str], results: int
    ) -> None:
        self.name = name
        self._operations: list[Operation] = []
        self._counts: Counter[str] = Counter()
        body = open_jaxpr(closed)
        known: dict[Any, GraphTensor] = {}
        for var, argument in zip(body.invars, arguments, strict=True):
            known[var] = self._add(argument, "Placeholder", [], [var.aval]).outputs[0]
        self.inputs = list(known.values())
        for var in body.constvars:
            known[var] = self._add("Const", "Const", [], [var.aval]).outputs[0]
        self._names = iter(variables)
        self._add_all(body.eqns, known)
        found = [self._tensor(atom, known) for atom in body.outvars]
        returned = [
            self._add("Identity", "Identity", [t], [atom.aval])
            for t, atom in zip(found[:results], body.outvars[:results], strict=True)
        ]
        for tensor, atom in zip(found[results:], body.outvars[results:], strict=True):
            self._add("AssignVariableOp", "AssignVariableOp", [tensor], [atom.aval])
        self.outputs = [one.outputs[0] for one in returned]
        self._constants = constants_of(closed)

    def get_operations(self) -> list[Operation]:
        """Returns all operations."""
        return list(self._operations)

    def get_operation_by_name(self, name: str) -> Operation:
        """Returns an operation.

        Raises:
            DataNotFoundError: If there is none of this name.
        """
        for operation in self._operations:
            if operation.name == name:
                return operation
        names = ", ".join(operation.name for operation in self._operations)
        raise DataNotFoundError(f"The graph has operations named {names}. Received: {name!r}. Choose one of them.")

    def get_tensor_by_name(self, name: str) -> GraphTensor:
        """Returns a tensor, by its operation's name and the number of the result: `"Identity:0"`.

        Raises:
            ArgumentError: If the name has not this form, or the operation not so many results.
            DataNotFoundError: If there is no such operation.
        """
        operation, _, number = name.partition(":")
        if not number.isdigit():
            raise ArgumentError(f"A tensor is named by its operation and a number, as 'add:0'. Received: {name!r}.")
        outputs = self.get_operation_by_name(operation).outputs
        if int(number) >= len(outputs):
            raise ArgumentError(f"{operation!r} has {len(outputs)} results. Received: {name!r}.")
        return outputs[int(number)]

    def as_graph_def(self) -> Any:
        """Returns the graph as a `GraphDef`, with names, types and inputs."""
        graph = importlib.import_module("tensorboardX.proto.graph_pb2").GraphDef()
        for one in self._operations:
            names = [t.op.name if not t.value_index else t.name for t in one.inputs]
            graph.node.add(name=one.name, op=one.type, input=names)
        return graph

    def _add_all(self, equations: Sequence[JaxprEquation], known: dict[Any, GraphTensor]) -> None:
        for equation in equations:
            inner = equation.params.get("jaxpr") if equation.primitive.name in ("jit", "pjit", "closed_call") else None
            inputs = [self._tensor(atom, known) for atom in equation.invars]
            if inner is not None:
                # A function of JAX's own within: TensorFlow has its operations here.
                body = open_jaxpr(inner)
                within = dict(zip(body.invars, inputs, strict=True))
                for var in body.constvars:
                    within[var] = self._add("Const", "Const", [], [var.aval]).outputs[0]
                self._add_all(body.eqns, within)
                results = [self._tensor(atom, within) for atom in body.outvars]
            else:
                name = equation.primitive.name
                kind = "ReadVariableOp" if name == _VARIABLE else _TYPES.get(name, _words(name))
                label = f"{next(self._names, 'variable')}/ReadVariableOp" if name == _VARIABLE else name
                results = self._add(label, kind, inputs, [var.aval for var in equation.outvars]).outputs
            known.update(zip(equation.outvars, results, strict=True))

    def _tensor(self, atom: JaxprAtom, known: Mapping[Any, GraphTensor]) -> GraphTensor:
        if isinstance(atom, jex.Literal):
            return self._add("Const", "Const", [], [atom.aval]).outputs[0]
        return known[atom]

    def _add(self, name: str, kind: str, inputs: Sequence[GraphTensor], avals: Sequence[Any]) -> Operation:
        count = self._counts[name]
        self._counts[name] += 1
        operation = Operation(f"{name}_{count}" if count else name, kind, list(inputs))
        for number, aval in enumerate(avals):
            shape = TensorShape([size if isinstance(size, int) else None for size in aval.shape])
            operation.outputs.append(GraphTensor(operation, number, shape, _dtype(aval.dtype)))
        self._operations.append(operation)
        return operation


@dataclass(frozen=True)
class _Signature:
    name: str
    input_arg: list[GraphTensor]
    output_arg: list[GraphTensor]


class FunctionDef:
    """A function's signature and operations. Source: the FunctionDef of a concrete function.

    Attributes:
        signature: Its name, and the tensors that it takes and returns (`name`, `input_arg`, `output_arg`).
        node_def: Its operations.
    """

    def __init__(self, graph: Graph) -> None:
        """Takes them from a graph."""
        self.signature = _Signature(graph.name, graph.inputs, graph.outputs)
        self.node_def = graph.get_operations()


def _dtype(dtype: Any) -> Any:
    # Keys of random numbers are no numbers.
    return as_dtype(np.uint32 if jnp.issubdtype(dtype, jax.dtypes.extended) else dtype)


def _words(name: str) -> str:
    return "".join(word.capitalize() for word in re.split(r"[_\-]", name))
