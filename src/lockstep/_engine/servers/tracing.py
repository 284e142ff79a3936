"""Traces of Keras' optimizers: one variable's update, divided into what depends on the step alone and the rest."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.servers.layout import Variable, dtype_of
from lockstep._engine.servers.rule import Slot
from lockstep._engine.step import jaxprs
from lockstep._types import Array, Jaxpr, Optimizer
from lockstep._types import Variable as KerasVariable
from lockstep.errors import UnsupportedError

# What no optimizer's slot begins with, exact in each float type.
_UNLIKELY = 37.0
Constraint = Callable[[Array], Array]
Update = Callable[..., tuple[Array, ...]]


@dataclass(frozen=True)
class Trace:
    """An optimizer's update of one variable, as a function of arrays.

    Attributes:
        apply: `(iteration, *hyper, *scalars, value, *slots, gradient) -> (*scalars, value, *slots)`.
        hyper: The number of hyperparameters.
        scalars: What goes on by itself.
        slots: What belongs to the variable.
        shape: The shape that the update was traced with.
        dtype: Of value and gradient.
        is_periodic: Whether some steps do what others do not (accumulation, overwriting by averages).
    """

    apply: Update
    hyper: int
    scalars: tuple[Slot, ...]
    slots: tuple[Slot, ...]
    shape: tuple[int, ...]
    dtype: str
    is_periodic: bool = False

    def arguments(self) -> list[Any]:
        """Returns the shapes and dtypes of what `apply` takes."""
        import keras

        scalar = [jax.ShapeDtypeStruct((), dtype_of(s.dtype)) for s in self.scalars]
        value = jax.ShapeDtypeStruct(self.shape, dtype_of(self.dtype))
        slots = [jax.ShapeDtypeStruct(s.shape or (), dtype_of(s.dtype)) for s in self.slots]
        # Keras keeps them in its default float type.
        hyper = [jax.ShapeDtypeStruct((), dtype_of(keras.config.floatx()))] * self.hyper
        return [jax.ShapeDtypeStruct((), np.int32), *hyper, *scalar, value, *slots, value]


def copy_of(optimizer: Optimizer) -> Optimizer:
    """Returns a new optimizer of the same settings, whose learning rate is a variable unless it is a schedule."""
    config = optimizer.get_config()
    if is_hyper(optimizer):
        config["learning_rate"] = float(optimizer.learning_rate)
    return type(optimizer).from_config(config)


def is_hyper(optimizer: Optimizer) -> bool:
    """Returns whether the learning rate is set from outside: a variable, or a callable without arguments."""
    import keras

    return not isinstance(optimizer._learning_rate, keras.optimizers.schedules.LearningRateSchedule)


def trace_update(
    optimizer: Optimizer, variable: Variable, shape: Sequence[int], constraint: Constraint | None = None
) -> Trace:
    """Returns the update that `optimizer` gives a variable of another shape but the same name, rank and dtype."""
    import keras

    own = copy_of(optimizer)
    *scope, name = variable.name.split("/")
    with contextlib.ExitStack() as scopes:
        for part in scope:
            scopes.enter_context(keras.name_scope(part))
        # No two elements are alike, and none is what a slot begins with, so that a copy of the variable is seen.
        values = _UNLIKELY + np.arange(math.prod(shape)).reshape(tuple(shape))
        template = keras.Variable(values.astype(dtype_of(variable.dtype)), dtype=variable.dtype, name=name)
    template.constraint = constraint
    _decide_weight_decay(optimizer, own, variable.name, template)
    own.build([template])
    fixed = [own.iterations if not own.gradient_accumulation_steps else own._iterations]
    hyper: list[KerasVariable] = [own._learning_rate] if is_hyper(optimizer) else []
    others = [v for v in own.variables if not any(v is known for known in [*fixed, *hyper])]
    for slot in others:
        _demand_constant(slot, template, optimizer)
    # A scalar belongs to the step unless the variable is so small that it is one of its slots.
    slots = [v for v in others if v.shape or not shape]
    scalars = [v for v in others if v.shape == () and shape]

    def apply(iteration: Array, *arguments: Array) -> tuple[Array, ...]:
        count = len(hyper) + len(scalars)
        value, *rest = arguments[count:]
        given = [iteration, *arguments[:count], *rest[:-1]]
        holders = [*fixed, *hyper, *scalars, *slots]
        by_identity = {id(v): x for v, x in zip(holders, given, strict=True)}
        (new,), state = own.stateless_apply([by_identity[id(v)] for v in own.variables], rest[-1:], [value])
        after = {id(v): x for v, x in zip(own.variables, state, strict=True)}
        return *(after[id(v)] for v in scalars), new, *(after[id(v)] for v in slots)

    return Trace(
        apply,
        len(hyper),
        # Keras numbers variables without a name through the process: their place is what stays the same.
        tuple(replace(_slot_of(v, variable), name=f"scalar_{i}") for i, v in enumerate(scalars)),
        _named_apart(_slot_of(v, variable) for v in slots),
        tuple(shape),
        variable.dtype,
        bool(own.gradient_accumulation_steps or (own.use_ema and own.ema_overwrite_frequency)),
    )


def _named_apart(slots: Iterable[Slot]) -> tuple[Slot, ...]:
    """Returns slots with different names; Adafactor calls its two factors the same."""
    named: dict[str, Slot] = {}
    for slot in slots:
        name, number = slot.name, 1
        while name in named:
            name, number = f"{slot.name}_{number}", number + 1
        named[name] = Slot(name, slot.shape, slot.dtype, slot.initial)
    return tuple(named.values())


def _slot_of(slot: KerasVariable, variable: Variable) -> Slot:
    """Describes a variable of the optimizer's; all of them begin with one value in all elements."""
    name = slot.name.removeprefix(variable.name.replace("/", "_") + "_")
    values = np.asarray(slot.value).ravel()
    return Slot(name, tuple(slot.shape), str(slot.dtype), float(values[0]) if values.size else 0.0)


def _demand_constant(slot: KerasVariable, template: KerasVariable, optimizer: Optimizer) -> None:
    """Raises `UnsupportedError` for a slot that begins with anything but one number: servers make slots of that."""
    values, first = np.asarray(slot.value).ravel(), np.asarray(template.value).ravel()
    if values.size and ((values != values[0]).any() or values[0] == first[0]):
        name = type(optimizer).__name__
        raise UnsupportedError(
            "Servers make an optimizer's variables of one number each, for rows that nobody has touched yet. Received: "
            f"{name}, whose {slot.path!r} begins with the values of the weights. Use another optimizer, such as AdamW, "
            "or MultiWorkerMirroredStrategy."
        )


def _decide_weight_decay(optimizer: Optimizer, own: Optimizer, name: str, template: KerasVariable) -> None:
    """Has the copy leave out of weight decay what the original leaves out, which its configuration does not say."""
    known = [v for v in getattr(optimizer, "_trainable_variables", []) if v.path == name]
    if known:
        decays = optimizer._use_weight_decay(known[0])
    else:
        pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
        decays = pattern is None or re.search(pattern, template.name) is None
    own._exclude_from_weight_decay_cache = {own._var_key(template): decays}


@dataclass(frozen=True)
class Split:
    """An update in two parts.

    Attributes:
        clock: `(iteration, *hyper, *scalars) -> (*rates, *scalars)`.
        update: `(*rates, value, *slots, gradient) -> (value, *slots)`.
        rates: The dtypes of the scalars that the first gives the second.
    """

    clock: Update
    update: Update
    rates: tuple[str, ...]


def split(trace: Trace) -> Split | None:
    """Divides an update after what depends on the step alone; returns `None` if the optimizer's scalars do not.

    Rates are computed once a step, not once for each element or, in a replay, for each row and step: Adam's two powers
    cost as much as 16 elements of its update.
    """
    closed = jax.make_jaxpr(trace.apply)(*trace.arguments())
    body = jaxprs.open_jaxpr(closed)
    count = 1 + trace.hyper + len(trace.scalars)
    early = set(body.invars[:count])
    first, second = [], []
    for eqn in body.eqns:
        is_early = all(v in early for v in jaxprs.variables(eqn.invars) if v not in set(body.constvars))
        # Equations without inputs (a filled array) may be large, and belong to the elements.
        is_early = is_early and all(not v.aval.shape for v in eqn.outvars) and not eqn.effects
        (first if is_early else second).append(eqn)
        if is_early:
            early.update(eqn.outvars)
    scalars = body.outvars[: len(trace.scalars)]
    if any(v not in early for v in jaxprs.variables(scalars)):
        return None
    late = body.outvars[len(trace.scalars) :]
    needed = [v for eqn in second for v in jaxprs.variables(eqn.invars)] + list(jaxprs.variables(late))
    crossing = list(dict.fromkeys(v for v in needed if v in early))

    def clock(*arguments: Array) -> tuple[Array, ...]:
        values = _evaluate(closed, first, dict(zip(body.invars, arguments, strict=False)))
        return tuple(jnp.asarray(jaxprs.read(values, v), v.aval.dtype) for v in [*crossing, *scalars])

    def update(*arguments: Array) -> tuple[Array, ...]:
        given = dict(zip([*crossing, *body.invars[count:]], arguments, strict=True))
        values = _evaluate(closed, second, given)
        return tuple(jaxprs.read(values, v) for v in late)

    return Split(clock, update, tuple(str(v.aval.dtype) for v in crossing))


def _evaluate(closed: Jaxpr, equations: Sequence[Any], values: dict[Any, Any]) -> dict[Any, Any]:
    body = jaxprs.open_jaxpr(closed)
    values = {**dict(zip(body.constvars, jaxprs.constants_of(closed), strict=True)), **values}
    for eqn in equations:
        results = jaxprs.evaluate_equation(eqn, [jaxprs.read(values, v) for v in eqn.invars])
        values.update(zip(eqn.outvars, results, strict=True))
    return values


def text_of(trace: Trace) -> str:
    """Returns the traced program as text: equal for variables whose updates are the same function."""
    closed = jax.make_jaxpr(trace.apply)(*trace.arguments())
    constants = [np.asarray(c).tobytes().hex() for c in jaxprs.constants_of(closed)]
    return f"{closed} {constants} {[(s.name, s.initial) for s in (*trace.slots, *trace.scalars)]}"
