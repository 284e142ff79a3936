"""A step on one CPU device with lockstep's own kernels in place of some of XLA's (`_native`)."""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._native import calls
from lockstep._step.native_products import Product, product_of
from lockstep._step.native_updates import Update, update_of
from lockstep._step.partition.flat import Constant, Equation, Flat, Value, flatten
from lockstep._step.partition.layout import NoRule
from lockstep._step.partition.rules.base import bind
from lockstep._step.partition.uses import Uses
from lockstep._step.recorded import Recorded
from lockstep._xla import setting

_Node = Equation | Product | Update


def with_native_kernels(recorded: Recorded, carried: Any) -> Callable[[Any, Any], Any] | None:
    """Returns the step with the kernels; `None` if there is nothing for them to do, or they are not there, or off.

    Args:
        recorded: The step.
        carried: What it takes first, and returns as it is to be taken next.
    """
    if not setting.enabled():
        return None
    try:
        flat = flatten(recorded.jaxpr, kept=("random_bits",))
    except NoRule:
        return None
    nodes = _in_order(list(_nodes(flat, _pairs(flat, len(jax.tree.leaves(carried))))))
    if nodes is None or all(isinstance(node, Equation) for node in nodes):
        return None

    def step(carried: Any, batch: Any) -> Any:
        return jax.tree.unflatten(recorded.structure, _run(flat, nodes, jax.tree.leaves((carried, batch))))

    return step


def _pairs(flat: Flat, count: int) -> dict[Value, Value]:
    """The input whose place an output takes in the next step, by output."""
    return dict(zip(flat.outputs[len(flat.outputs) - count :], flat.inputs[:count], strict=True))


def _nodes(flat: Flat, pairs: Mapping[Value, Value]) -> Iterator[_Node]:
    """What a step does, with the kernels; not in order."""
    uses = Uses(flat)
    products = {equation: found for equation in flat.equations if (found := product_of(equation, uses.maker))}
    replaced = set[Equation]()
    for equation, product in products.items():
        update = None if equation in replaced else update_of(uses, equation, product, pairs)
        is_new = update is not None and replaced.isdisjoint(update.equations)
        if update is not None and is_new and calls.can_update(update.text):
            replaced.update(update.equations)
            yield update
    for equation in flat.equations:
        product = products.get(equation)
        if equation not in replaced:
            yield product if product is not None and product.is_better and calls.are_there() else equation


def _in_order(nodes: Sequence[_Node]) -> list[_Node] | None:
    """Nodes in an order in which each finds what it needs; `None` if there is none."""
    makers = {value: i for i, node in enumerate(nodes) for value in _results(node)}
    needs = [{makers[v] for v in _operands(node) if v in makers} for node in nodes]
    try:
        return [nodes[i] for i in graphlib.TopologicalSorter(dict(enumerate(needs))).static_order()]
    except graphlib.CycleError:
        return None


def _operands(node: _Node) -> Sequence[Value]:
    if isinstance(node, Equation):
        return node.inputs
    if isinstance(node, Product):
        return (node.left, node.right)
    return (node.product.left, node.product.right, *node.arrays, *node.numbers)


def _results(node: _Node) -> Sequence[Value]:
    if isinstance(node, Equation):
        return node.outputs
    return (node.out,) if isinstance(node, Product) else node.results


def _run(flat: Flat, nodes: Sequence[_Node], inputs: Sequence[Any]) -> list[Any]:
    known: dict[Value, Any] = dict(zip(flat.inputs, inputs, strict=True))
    for node in nodes:
        values = [v.value if isinstance(v, Constant) else known[v] for v in _operands(node)]
        known.update(zip(_results(node), _made(node, values), strict=True))
    return [jnp.asarray(v.value, v.aval.dtype) if isinstance(v, Constant) else known[v] for v in flat.outputs]


def _made(node: _Node, values: Sequence[Any]) -> Sequence[Any]:
    if isinstance(node, Equation):
        with node.settings:
            return bind(node.primitive, values, node.params)
    if isinstance(node, Product):
        call = calls.product_with_transposed if node.turned_right else calls.product
        right = (node.n, node.k) if node.turned_right else (node.k, node.n)
        made = call(values[0].reshape(node.m, node.k), values[1].reshape(right))
        return [made.reshape(node.out.aval.shape)]
    return _updated(node, values)


def _updated(node: Update, values: Sequence[Any]) -> Sequence[Any]:
    product = node.product
    left, right, *others = values
    arrays, numbers = others[: len(node.arrays)], others[len(node.arrays) :]
    made = calls.updated(
        node.text,
        left.reshape(product.k, product.m),
        right.reshape(product.k, product.n),
        [array.reshape(product.m, product.n) for array in arrays],
        [jnp.asarray(number, jnp.float32) for number in numbers],
        len(node.results),
        node.replaced,
    )
    return [array.reshape(value.aval.shape) for array, value in zip(made, node.results, strict=True)]
