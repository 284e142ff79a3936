"""Graphs of objects in TensorFlow 2's checkpoints: which variable belongs to which attribute of which object.

Source: tensorflow/core/protobuf/trackable_object_graph.proto; tensorflow/python/checkpoint/graph_view.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# Other attributes are of tables, iterators and configurations.
_VALUE = "VARIABLE_VALUE"
# Where optimizers of Keras 2.11 and later hold what they know of variables.
_VARIABLES = "variables"


@dataclass(frozen=True)
class Variable:
    """Variable that an object graph knows.

    Attributes:
        key: Its name in the checkpoint.
        full_name: Its name in the program that saved it, such as "dense/kernel".
    """

    key: str
    full_name: str


def full_names(graph: Any) -> dict[str, str]:
    """Returns the full name of each variable in a graph, by key; those without one are left out."""
    found = {a.checkpoint_key: a.full_name for node in graph.nodes for a in node.attributes if a.name == _VALUE}
    return {key: name for key, name in found.items() if name}


def child(graph: Any, node: int, name: str) -> int | None:
    """Returns the number of the node that is an attribute of another one, public or with an underscore, or `None`."""
    found = dict(children(graph, node))
    return found.get(name, found.get(f"_{name}"))


def children(graph: Any, node: int) -> Iterator[tuple[str, int]]:
    """Yields the attributes of a node that are nodes, and their numbers."""
    for reference in graph.nodes[node].children:
        # A damaged graph may refer to nodes that it does not have.
        if 0 <= reference.node_id < len(graph.nodes):
            yield reference.local_name, reference.node_id


def variable(graph: Any, node: int) -> Variable | None:
    """Returns the variable that a node is, or `None`."""
    value = next((a for a in graph.nodes[node].attributes if a.name == _VALUE), None)
    return None if value is None else Variable(value.checkpoint_key, value.full_name)


def slots(graph: Any, optimizer: int, trained: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Returns what an optimizer keeps of variables: keys by the slot's name, such as "m", by the variable's key.

    Args:
        graph: The graph.
        optimizer: The optimizer's node.
        trained: Full names of the variables that it may train, by key.
    """
    found: dict[str, dict[str, str]] = {}
    for slot in graph.nodes[optimizer].slot_variables:
        numbers = (slot.original_variable_node_id, slot.slot_variable_node_id)
        if all(0 <= number < len(graph.nodes) for number in numbers):
            owner, value = (variable(graph, number) for number in numbers)
            if owner is not None and value is not None:
                found.setdefault(owner.key, {})[slot.slot_name] = value.key
    held = child(graph, optimizer, _VARIABLES)
    for _, node in children(graph, held) if held is not None else ():
        value = variable(graph, node)
        for key, name in trained.items():
            # Such as "Adam/m/dense/kernel", of the variable "dense/kernel".
            if value is not None and name and value.full_name.endswith(f"/{name}"):
                kind = value.full_name.removesuffix(f"/{name}").rpartition("/")[2]
                found.setdefault(key, {})[kind] = value.key
    return found
