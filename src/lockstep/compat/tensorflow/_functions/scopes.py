"""Scopes in which Keras variables are inputs and results of what is traced: functions, branches and loop bodies.

A variable becomes an input when it is first read or assigned. Its placeholder is the result of an equation without
inputs, which `evaluate` finds in the finished jaxpr, so that a trace need not know beforehand which variables it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import keras
from jax import lax
from jax._src import core
from jax.core import ShapedArray
from keras.src.backend.common.stateless_scope import get_stateless_scope

from lockstep._engine.step.jaxprs import constants_of, evaluate_equation, open_jaxpr, read
from lockstep._types import Array, Jaxpr, Variable
from lockstep.compat.tensorflow._functions.refusals import NotCompilableError
from lockstep.distribute.internal import Known, Scope, demand_replica_context

# Only `evaluate` gives it values: none is left in a jaxpr that is compiled.
_input = jex.Primitive("lockstep_variable")
_input.def_abstract_eval(lambda *, number, aval: aval)


class Inputs:
    """The variables that a trace reads or assigns, with a placeholder for the value of each.

    Attributes:
        variables: In the order in which they were met.
        has_new: Whether one of them has no value yet.
    """

    def __init__(self) -> None:
        self.variables: list[Variable] = []
        self.has_new = False
        self._placeholders: dict[int, Any] = {}
        # Inside of loops and conditions of the trace, placeholders are its own all the same.
        self._trace = core.trace_ctx.trace

    def placeholder(self, variable: Variable) -> Any:
        """Returns what stands for the value of a variable at the beginning."""
        found = self._placeholders.get(id(variable))
        if found is None:
            aval = ShapedArray(tuple(variable._shape), jnp.dtype(variable.dtype))
            with core.set_current_trace(self._trace):
                found = _input.bind(number=len(self.variables), aval=aval)
            self._placeholders[id(variable)] = found
            self.variables.append(variable)
            self.has_new = self.has_new or variable._value is None
        return found


class FunctionScope(Scope):
    """Gives variables their values in a function that tf.function traces, and takes what is assigned to them.

    Attributes:
        inputs: The variables.
        changed: Those that were assigned, by their identity.
    """

    def __init__(self) -> None:
        self.inputs = Inputs()
        self.changed: dict[int, Variable] = {}
        # Outside of strategies the context is that of the default one's only replica.
        context = demand_replica_context()
        super().__init__(context, self._value_of, lambda key, gradients: False, Known([], {}))

    def _value_of(self, variable: Variable) -> Any:
        if variable._value is not None and not isinstance(variable._value, jax.Array):
            raise NotCompilableError(f"{variable.path} has values of several replicas, which are read one by one")
        return self.inputs.placeholder(variable)

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Takes what is assigned to a variable."""
        variable, value = update
        self._value_of(variable)
        self.changed[id(variable)] = variable
        self.state_mapping[id(variable)] = value

    def add(self, assign: Any, variable: Variable, value: Any, sign: int) -> Any:
        """Calls `assign_add` or `assign_sub`: with one replica there is nothing to combine."""
        return assign(variable, value)

    def _sum_gradients(self, gradients: list[Any]) -> list[Any]:
        return gradients

    def results(self) -> list[Any]:
        """Returns the last value of each changed variable."""
        return [_as_value(variable, self.state_mapping[key]) for key, variable in self.changed.items()]


class InnerScope(keras.StatelessScope):
    """Gives variables their values in a branch or in the body of a loop, and takes what is assigned to them there.

    Attributes:
        inputs: The variables.
        changed: Those that were assigned, by their identity.
    """

    def __init__(self) -> None:
        super().__init__(initialize_variables=False)
        self.inputs = Inputs()
        self.changed: dict[int, Variable] = {}

    def get_current_value(self, variable: Variable) -> Any:
        """Returns the value that a variable has here."""
        found = self.state_mapping.get(id(variable))
        return Scope.reader(variable, self.inputs.placeholder(variable) if found is None else found)

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Takes what is assigned to a variable."""
        variable, value = update
        self.inputs.placeholder(variable)
        self.changed[id(variable)] = variable
        self.state_mapping[id(variable)] = value

    def result(self, variable: Variable) -> Any:
        """Returns the last value of a variable, changed or not."""
        found = self.state_mapping.get(id(variable))
        return self.inputs.placeholder(variable) if found is None else _as_value(variable, found)


class Piece:
    """A branch, the body of a loop or its condition: traced once, computed with any values of its variables.

    Args:
        function: Takes arrays and returns arrays, in lists.
        shapes: Of what it takes.

    Attributes:
        variables: The variables that it reads or assigns.
        changed: Those that it assigns.
        shapes: Of what it returns.
    """

    def __init__(self, function: Callable[..., list[Any]], shapes: Sequence[Any] = ()) -> None:
        scopes: list[InnerScope] = []

        def run(*arrays: Any) -> tuple[list[Any], list[Any]]:
            scopes.append(InnerScope())
            with scopes[-1] as scope:
                results = [jnp.asarray(r) for r in function(*arrays)]
            return results, [scope.result(v) for v in scope.changed.values()]

        self._closed, (self.shapes, _) = jax.make_jaxpr(run, return_shape=True)(*shapes)
        self.variables = scopes[-1].inputs.variables
        self.changed = list(scopes[-1].changed.values())

    def __call__(self, arrays: Sequence[Any], values: Mapping[int, Any]) -> tuple[list[Any], dict[int, Any]]:
        """Computes it.

        Args:
            arrays: What it takes.
            values: Of its variables, by their identity.

        Returns:
            What it returns, and the values of its variables afterwards.
        """
        flat = evaluate(self._closed, arrays, [values[id(v)] for v in self.variables])
        count = len(self.shapes)
        after = {id(v): value for v, value in zip(self.changed, flat[count:], strict=True)}
        return flat[:count], {**values, **after}


def current_values(variables: Sequence[Variable]) -> list[Any]:
    """Returns the values that variables have in the scope around."""
    scope = get_stateless_scope()
    found = [v._value if scope is None else scope.get_current_value(v) for v in variables]
    return [v._value if value is None else value for v, value in zip(variables, found, strict=True)]


def assign(variables: Sequence[Variable], values: Sequence[Any]) -> None:
    """Gives variables values in the scope around.

    Raises:
        NotCompilableError: If it knows of no variables, so that what is assigned would be lost.
    """
    scope = get_stateless_scope()
    for variable, value in zip(variables, values, strict=True):
        if scope is None:
            raise NotCompilableError(f"{variable.path} is assigned in a function that jax.jit compiles")
        scope.add_update((variable, value))


def evaluate(closed: Jaxpr, arrays: Sequence[Any], values: Sequence[Any]) -> list[Array]:
    """Computes a jaxpr with values for the placeholders in it."""
    body = open_jaxpr(closed)
    known: dict[Any, Any] = dict(zip(body.constvars, constants_of(closed), strict=True))
    known.update(zip(body.invars, arrays, strict=True))
    for eqn in body.eqns:
        if eqn.primitive is _input:
            known[eqn.outvars[0]] = values[eqn.params["number"]]
            continue
        results = evaluate_equation(eqn, [read(known, atom) for atom in eqn.invars])
        known.update(zip(eqn.outvars, results, strict=True))
    return [read(known, atom) for atom in body.outvars]


def _as_value(variable: Variable, value: Any) -> Any:
    return lax.convert_element_type(value, jnp.dtype(variable.dtype))
