"""Entries of a record: an operation, what it was given, what it computed, and which depends on which."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax._src import core

from lockstep._engine.step.jaxprs import (
    bind,
    constants_of,
    evaluate_equation,
    is_jaxpr,
    open_jaxpr,
    read,
    variables,
)
from lockstep._types import Jaxpr

# TensorFlow has no derivatives of these, where JAX has zeros.
_STOPS = frozenset(("stop_gradient", "floor", "ceil", "round"))
_CALLS = frozenset(("jit", "pjit", "closed_call", "core_call"))
_MOST = 4096

Edges = tuple[tuple[int, ...], ...]


class Operation:
    """A primitive with its parameters, or a jaxpr; equal ones are one object.

    Args:
        call: From a list of inputs to the list of results.
        jaxpr: That it calls, if it does nothing else.
        stops: Whether it has no derivatives.
        fixed: So many inputs, the first ones, have no derivatives.

    Attributes:
        number: Unlike any other's.
        call: As above.
    """

    def __init__(
        self,
        call: Callable[[Sequence[Any]], list[Any]],
        jaxpr: Jaxpr | None = None,
        stops: bool = False,
        fixed: int = 0,
    ) -> None:
        self.number = next(_numbers)
        self.call = call
        self._fixed = fixed
        self._stops = stops
        self._jaxpr = jaxpr
        self._of_jaxpr: Edges | None = None

    def edges(self, inputs: Sequence[Any], results: Sequence[Any]) -> Edges:
        """Returns of each result the numbers of the inputs that it has derivatives by."""
        if self._stops:
            return ((),) * len(results)
        if self._jaxpr is not None:
            if self._of_jaxpr is None:
                self._of_jaxpr = connections(self._jaxpr)
            return self._of_jaxpr
        return _all_edges((i >= self._fixed and is_inexact(v) for i, v in enumerate(inputs)), map(is_inexact, results))


_numbers = itertools.count()
_operations: OrderedDict[Any, Operation] = OrderedDict()


def _operation(key: Any, make: Callable[[], Operation]) -> Operation:
    try:
        found = _operations.get(key)
    except TypeError:  # A parameter that has no hash: of this entry alone.
        return make()
    if found is None:
        found = _operations[key] = make()
        if len(_operations) > _MOST:
            _operations.popitem(last=False)
    return found


class Entry:
    """An operation that was computed.

    Attributes:
        operation: The operation; `None` if `pull` computes the derivatives.
        inputs: What it was given.
        results: What it computed.
        edges: Of each result: the numbers of the inputs that it has derivatives by.
        pull: From derivatives by the results to those by the inputs.
    """

    __slots__ = ("edges", "inputs", "operation", "pull", "results")

    def __init__(self, operation: Operation | None, pull: Callable[..., Any] | None = None, edges: Edges = ()) -> None:
        self.operation = operation
        self.pull = pull
        self.inputs: Sequence[Any] = ()
        self.results: Sequence[Any] = ()
        self.edges = edges

    @classmethod
    def of(cls, primitive: Any, params: dict[str, Any]) -> Entry:
        """Returns the entry of an equation."""

        def make() -> Operation:
            jaxpr = params.get("jaxpr") if primitive.name in _CALLS else None
            return Operation(lambda inputs: bind(primitive, inputs, params), jaxpr, primitive.name in _STOPS)

        return cls(_operation((primitive, *sorted(params.items())), make))

    @classmethod
    def of_python(cls, pull: Callable[..., Any], count: int, results: Sequence[Any]) -> Entry:
        """Returns the entry of a call whose derivatives Python computes."""
        return cls(None, pull, tuple(tuple(range(count)) if is_inexact(r) else () for r in results))

    def filled(self, inputs: Sequence[Any], results: Sequence[Any]) -> Entry:
        """Takes what it was given and computed; returns itself."""
        self.inputs, self.results = tuple(inputs), tuple(results)
        if self.operation is not None:
            self.edges = self.operation.edges(inputs, results)
        return self

    def call(self, inputs: Sequence[Any]) -> list[Any]:
        """Computes the operation."""
        assert self.operation is not None
        return self.operation.call(inputs)


_staged: OrderedDict[Any, Operation] = OrderedDict()


def staged_entry(
    process: str, primitive: Any, functions: Any, inputs: Sequence[Any], rest: dict[str, Any]
) -> tuple[Entry, Sequence[Any], bool]:
    """Returns the entry of a function with its own rule for derivatives.

    Returns:
        The entry, constants that it takes before the inputs, and whether the function has run in this call.
    """
    shapes = tuple((np.shape(x), jnp.result_type(x), getattr(x, "weak_type", False)) for x in inputs)
    # JAX wraps the function and its rules anew at each call; the functions inside of that are the program's.
    first, *rules = functions
    key = (process, first.f, first.transforms, first.params, *(getattr(rule, "f", rule) for rule in rules), shapes)
    try:
        known = _staged.get(key)
    except TypeError:
        key, known = None, None
    if known is not None:
        return Entry(known), (), False

    def call(*arrays: Any) -> Any:
        return getattr(core.trace_ctx.trace, process)(primitive, *functions, arrays, **rest)

    closed = jax.make_jaxpr(call)(*(jax.ShapeDtypeStruct(s, d, weak_type=w) for s, d, w in shapes))
    constants, body = list(constants_of(closed)), open_jaxpr(closed)

    def evaluate(given: Sequence[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip((*body.constvars, *body.invars), given, strict=True))
        for eqn in body.eqns:
            results = evaluate_equation(eqn, [read(values, atom) for atom in eqn.invars])
            values.update(zip(eqn.outvars, results, strict=True))
        return [read(values, atom) for atom in body.outvars]

    # By JAX's rule there are no derivatives by values that the function has from elsewhere.
    operation = Operation(evaluate, fixed=len(constants))
    # With values that it has from elsewhere it is another function the next time.
    if key is not None and not constants:
        _staged[key] = operation
        if len(_staged) > _MOST:
            _staged.popitem(last=False)
    return Entry(operation), constants, True


def is_inexact(value: Any) -> bool:
    """Returns whether a value has floats or complex numbers, which have derivatives."""
    if type(value) in (float, complex):
        return True
    dtype = getattr(value, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jnp.inexact)


def _all_edges(inputs: Any, results: Any) -> Edges:
    there = tuple(i for i, inexact in enumerate(inputs) if inexact)
    return tuple(there if inexact else () for inexact in results)


def connections(jaxpr: Jaxpr) -> Edges:
    """Returns of each result of a jaxpr the numbers of the inputs that it has derivatives by."""
    body = open_jaxpr(jaxpr)
    reach: dict[Any, frozenset[int]] = {v: frozenset((i,)) for i, v in enumerate(body.invars) if is_inexact(v.aval)}
    for eqn in body.eqns:
        if eqn.primitive.name in _STOPS:
            continue
        inner = eqn.params.get("jaxpr")
        if eqn.primitive.name in _CALLS and is_jaxpr(inner):
            edges = connections(inner)
        else:
            edges = _all_edges((is_inexact(v.aval) for v in eqn.invars), (is_inexact(v.aval) for v in eqn.outvars))
        for out, inputs in zip(eqn.outvars, edges, strict=True):
            from_inputs = variables(eqn.invars[i] for i in inputs)
            reach[out] = frozenset().union(*(reach.get(v, frozenset()) for v in from_inputs))
    return tuple(() if isinstance(v, jex.Literal) else tuple(sorted(reach.get(v, ()))) for v in body.outvars)
