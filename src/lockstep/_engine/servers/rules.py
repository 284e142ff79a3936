"""Rules of Keras' optimizers: what may be divided, and how rows without gradient move, is decided by probes.

Source: Keras 3's optimizers as they are; each is asked, none is known by name.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

from lockstep._engine.servers.layout import Variable
from lockstep._engine.servers.probes import element_form, is_row_wise, movement_of
from lockstep._engine.servers.rule import Form, Program, Rule
from lockstep._engine.servers.tracing import Constraint, Split, Trace, is_hyper, split, text_of, trace_update
from lockstep._types import Array, Optimizer
from lockstep.errors import UnsupportedError

# Rows of at most so many elements are brought up to date element by element.
_NARROW = 32
# The update of one element, and its parts.
_Unit = tuple[Trace, Split]
_INNER = "loss scaling has one scale for all variables, that every worker would have to agree on at each step"


def rule_of(
    optimizer: Optimizer,
    variables: Sequence[Variable],
    *,
    lazy: bool = False,
    constraints: Mapping[str, Constraint] | None = None,
) -> Rule:
    """Returns an optimizer as programs for servers.

    Args:
        optimizer: Of Keras, built or not.
        variables: What servers are to hold; those of kind "delta" have no gradients, and no program.
        lazy: Whether rows without gradient are left alone where the optimizer moves them, as
            `tfa.optimizers.LazyAdam` does: other numbers than training on one device, and cheaper.
        constraints: Keras' constraints by name of variable, applied after each update.

    Raises:
        UnsupportedError: If the optimizer cannot be divided among servers, or rows of a table depend on each other.
    """
    _refuse(optimizer)
    cache: dict[Any, tuple[str, Program]] = {}
    programs: dict[str, Program] = {}
    program_of: dict[str, str] = {}
    for variable in variables:
        if variable.kind == "delta":
            continue
        constraint = (constraints or {}).get(variable.name)
        key, program = _program_of(optimizer, variable, constraint, lazy, cache)
        programs[key] = program
        program_of[variable.name] = key
    hyper = ("learning_rate",) if is_hyper(optimizer) else ()
    defaults = tuple(float(optimizer.learning_rate) for _ in hyper)
    return Rule(type(optimizer).__name__, hyper, defaults, programs, program_of)


def can_be_rows(optimizer: Optimizer, variable: Variable, constraint: Constraint | None = None) -> bool:
    """Returns whether a table can be updated by rows; otherwise it has to be held as "dense"."""
    _refuse(optimizer)
    return bool(variable.shape) and is_row_wise(trace_update(optimizer, variable, _rows_shape(variable), constraint))


def demand_one(optimizer: Optimizer) -> None:
    """Raises `UnsupportedError` for an optimizer that is made of several."""
    import keras

    if isinstance(optimizer, getattr(keras.optimizers, "MultiOptimizer", ())):  # Older releases have none.
        raise UnsupportedError(
            "Parameter servers take one optimizer for all variables. Received: "
            f"{type(optimizer).__name__}, which has several. Use one of them, or MultiWorkerMirroredStrategy."
        )


def _refuse(optimizer: Optimizer) -> None:
    """Refuses by name what no server alone can compute."""
    import keras

    name = type(optimizer).__name__
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise UnsupportedError(
            f"Parameter servers take an optimizer without dynamic loss scaling: {_INNER}. Received: {name}. Give its "
            "inner_optimizer, and train in float32 or mixed_bfloat16."
        )
    demand_one(optimizer)
    for setting in ("clipnorm", "global_clipnorm"):
        if getattr(optimizer, setting, None):
            raise UnsupportedError(
                f"Clipping by norm needs a whole gradient, which no server has: workers clip. Received: {name} with "
                f"{setting}={getattr(optimizer, setting)}. Use clipvalue, or mode='async' or replicas=None, in which "
                "one worker has the whole gradient."
            )


def _rows_shape(variable: Variable) -> tuple[int, ...]:
    return (4, *variable.row_shape)


def _program_of(
    optimizer: Optimizer,
    variable: Variable,
    constraint: Constraint | None,
    lazy: bool,
    cache: dict[Any, tuple[str, Program]],
) -> tuple[str, Program]:
    """Returns the program of a variable, and its key; variables with the same update share one."""
    rank = len(variable.shape)
    small = trace_update(optimizer, variable, [1] * max(rank, 1), constraint)
    known = ("flat", variable.kind, text_of(small))
    if known in cache:
        return cache[known]

    def form_of_elements() -> Form:
        return element_form(lambda shape: trace_update(optimizer, variable, shape, constraint), rank)

    if variable.kind == "rows":
        trace = trace_update(optimizer, variable, _rows_shape(variable), constraint)
        known = ("rows", text_of(trace))
        if known not in cache:
            if not is_row_wise(trace):
                raise UnsupportedError(
                    f"Tables are updated by rows, and rows depend on each other in {type(optimizer).__name__}"
                    f"{' with a constraint' if constraint else ''}. Received: {variable.name!r} of shape "
                    f"{variable.shape}. Use an optimizer as Adagrad or Adam for this model, or hold it densely."
                )
            one = trace_update(optimizer, variable, (1, *variable.row_shape), constraint)
            element = small if form_of_elements() == "flat" else None
            cache[known] = export_program("rows", one, lazy, element)
        return cache[known]
    form = form_of_elements()
    if form == "flat":
        cache[known] = export_program("flat", small, lazy=True)
        return cache[known]
    whole = trace_update(optimizer, variable, variable.shape, constraint)
    known = ("whole", text_of(whole))
    if known not in cache:
        cache[known] = export_program("whole", whole, lazy=True)
    return cache[known]


def export_program(form: Form, trace: Trace, lazy: bool, element: Trace | None = None) -> tuple[str, Program]:
    """Returns the programs of a traced update, and the key of it.

    Args:
        form: What may be divided: of "flat" the trace is of one element, of "rows" of one row.
        trace: The update.
        lazy: Whether rows without a gradient are left alone.
        element: The update of one element, where the trace is of a row in which no element depends on another one.
    """
    parts = split(trace)
    if parts is None:
        if form != "whole":
            raise AssertionError(f"the probe of {trace.slots} has missed a scalar that depends on gradients")
        # Scalars that depend on the gradients are slots like others of a variable that is updated whole.
        trace = Trace(trace.apply, trace.hyper, (), (*trace.scalars, *trace.slots), trace.shape, trace.dtype)
        parts = split(_scalars_as_slots(trace))
        assert parts is not None
    unit = None if element is None else (element, _split_element(element, parts))
    movement = None if lazy else movement_of(trace, parts)
    replay = None if movement is None else _export(_replay(trace, parts, unit), _replay_arguments(trace, parts))
    scalars = [jax.ShapeDtypeStruct((), a.dtype) for a in trace.arguments()[: 1 + trace.hyper + len(trace.scalars)]]
    # A flat program's slots have the variable's shape, whatever it is; those of a whole one have their own.
    slots = trace.slots if form == "whole" else tuple(_any_shape(s) for s in trace.slots)
    program = Program(
        form,
        _export(parts.clock, scalars),
        _exported_update(form, trace, parts, unit),
        replay,
        parts.rates,
        slots,
        trace.scalars,
        movement,
        unit is not None,
    )
    hashed = hashlib.sha256(f"{form} {lazy} {text_of(trace)}".encode())
    return hashed.hexdigest()[:16], program


def _scalars_as_slots(trace: Trace) -> Trace:
    """Returns the trace with `apply` in the order that it has without scalars."""
    count = 1 + trace.hyper
    inner = sum(s.shape == () for s in trace.slots)

    def apply(*arguments: Array) -> tuple[Array, ...]:
        step, value, slots, gradient = arguments[:count], arguments[count], arguments[count + 1 : -1], arguments[-1]
        results = trace.apply(*step, *slots[:inner], value, *slots[inner:], gradient)
        return results[inner], *results[:inner], *results[inner + 1 :]

    return Trace(apply, trace.hyper, (), trace.slots, trace.shape, trace.dtype)


def _any_shape(slot: Any) -> Any:
    return type(slot)(slot.name, None, slot.dtype, slot.initial)


def _exported_update(form: Form, trace: Trace, parts: Split, unit: _Unit | None) -> bytes:
    """Returns the update, element by element where that of one is given.

    XLA's loops over short rows fill vectors badly: 4,608 rows of 16 took Adagrad 85 us, and flat ones take 43.
    """
    if unit is not None:
        form, (trace, parts) = "flat", unit
    return _export(_update(form, parts, trace), _update_arguments(form, trace, parts))


def _split_element(element: Trace, of_row: Split) -> Split:
    """Returns the parts of the update of an element, which has the clock of that of a row."""
    parts = split(element)
    assert parts is not None
    assert parts.rates == of_row.rates, "one update, of a row and of an element"
    return parts


def _update(form: Form, parts: Split, trace: Trace) -> Any:
    """Returns the update for any number of elements or rows, of the one for a single element or row."""
    if form == "whole":
        return parts.update
    rates = len(parts.rates)

    def one(*arguments: Array) -> tuple[Array, ...]:
        step, arrays = arguments[:rates], arguments[rates:]
        results = parts.update(*step, *(a.reshape(trace.shape) for a in arrays))
        return tuple(r.reshape(arrays[0].shape) for r in results)

    count = 2 + len(trace.slots)
    return jax.vmap(one, in_axes=(None,) * rates + (0,) * count)


def _update_arguments(form: Form, trace: Trace, parts: Split) -> list[Any]:
    step = [jax.ShapeDtypeStruct((), np.dtype(d)) for d in parts.rates]
    arrays = trace.arguments()[1 + trace.hyper + len(trace.scalars) :]
    if form == "whole":
        return [*step, *arrays]
    (n,) = export.symbolic_shape("n")
    row = () if form == "flat" else trace.shape[1:]
    return [*step, *(jax.ShapeDtypeStruct((n, *row), a.dtype) for a in arrays)]


def _replay(trace: Trace, parts: Split, element: _Unit | None) -> Any:
    """Returns the steps without gradient of rows that are behind, each row by its own number of steps.

    Narrow rows go element by element, if elements are independent: XLA's loops over the last axis fill vectors where
    that is long. 1,024 rows of 8 took 64 steps of Adam in 1.4 ms, and take 0.3; rows of 64 would take 1.1 times as
    long.
    """
    count = len(parts.rates)
    by_element = element if element is not None and math.prod(trace.shape[1:]) <= _NARROW else None
    unit, of_unit = (trace, parts) if by_element is None else by_element

    def one(rates: Sequence[Array], arrays: Sequence[Array]) -> tuple[Array, ...]:
        given = [a.reshape(unit.shape) for a in arrays]
        results = of_unit.update(*rates, *given, np.zeros((), given[0].dtype) * given[0])
        return tuple(r.reshape(arrays[0].shape) for r in results)

    def replay(steps: Array, *arguments: Array) -> tuple[Array, ...]:
        rates, rows = arguments[:count], arguments[count:]
        shape = rows[0].shape

        def of_units(numbers: Array) -> Array:
            """Returns a number of each row for each of its units."""
            spread = jnp.broadcast_to(numbers.reshape(-1, *[1] * (len(shape) - 1)), shape)
            return numbers if by_element is None else spread.reshape(-1)

        own_steps = of_units(steps)

        def body(i: Array, now: tuple[Array, ...]) -> tuple[Array, ...]:
            step = tuple(of_units(lax.dynamic_index_in_dim(r, i, 1, keepdims=False)) for r in rates)
            new = jax.vmap(one)(step, now)
            active = (i < own_steps).reshape((-1, *[1] * (now[0].ndim - 1)))
            return tuple(jnp.where(active, a, b) for a, b in zip(new, now, strict=True))

        begun = rows if by_element is None else tuple(a.reshape(-1) for a in rows)
        return tuple(a.reshape(shape) for a in lax.fori_loop(0, steps.max(), body, begun))

    return replay


def _replay_arguments(trace: Trace, parts: Split) -> list[Any]:
    n, j = export.symbolic_shape("n, j")
    rates = [jax.ShapeDtypeStruct((n, j), np.dtype(d)) for d in parts.rates]
    arrays = trace.arguments()[1 + trace.hyper + len(trace.scalars) : -1]
    values = [jax.ShapeDtypeStruct((n, *trace.shape[1:]), a.dtype) for a in arrays]
    return [jax.ShapeDtypeStruct((n,), np.int32), *rates, *values]


def _export(function: Any, arguments: Sequence[Any]) -> bytes:
    # Servers compute on the CPU, whatever the chief has.
    return bytes(export.export(jax.jit(function), platforms=["cpu"])(*arguments).serialize())
