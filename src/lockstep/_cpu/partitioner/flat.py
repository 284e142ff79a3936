"""A jaxpr as one list of equations: calls are inlined, what nobody needs is left out."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax import lax

from lockstep._cpu.partitioner.layout import NoRule
from lockstep._cpu.partitioner.rules.random import bits_as_jaxpr, numbers_elements
from lockstep._engine.step.jaxprs import open_jaxpr, subjaxprs
from lockstep._types import Array, Aval, Jaxpr, JaxprEquation


class Value:
    """Result of an equation, or an input; its identity is its name.

    Attributes:
        aval: Shape and dtype, of the global batch.
        is_zero: True if it is known to be zero everywhere.
    """

    __slots__ = ("aval", "is_zero")

    def __init__(self, aval: Aval, is_zero: bool = False) -> None:
        self.aval = aval
        self.is_zero = is_zero


class Constant(Value):
    """A value known when the step is traced."""

    __slots__ = ("value",)

    def __init__(self, value: Array, aval: Aval) -> None:
        super().__init__(aval, _is_scalar_zero(value))
        self.value = value


@dataclass(slots=True, eq=False)
class Equation:
    """An application of a primitive.

    Attributes:
        context: Settings of jax under which it was traced, or `None` if they are those of now.
        bodies: The jaxprs of a loop or a condition, flat, once they have been asked for.
        plans: What has been planned of them.
    """

    primitive: Any
    params: dict[str, Any]
    inputs: list[Value]
    outputs: list[Value]
    context: Any = None
    bodies: dict[str, Any] = field(default_factory=dict[str, Any])
    plans: dict[Any, Any] = field(default_factory=dict[Any, Any])

    @property
    def settings(self) -> contextlib.AbstractContextManager[Any]:
        """The context in which jax has the settings under which this was traced."""
        return contextlib.nullcontext() if self.context is None else self.context.manager


@dataclass(slots=True, eq=False)
class Flat:
    """A jaxpr without calls."""

    inputs: list[Value]
    equations: list[Equation]
    outputs: list[Value]


# Primitives that are a jaxpr and nothing else, and the parameter that holds it. Derivatives have been taken by now.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "custom_vmap_call": "call",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
}
_REMAT = ("checkpoint", "remat", "remat2")
# Loops and conditions: their bodies are planned for themselves.
CONTROL = ("scan", "while", "cond")
# What must not run once per replica, or says itself how its values lie on devices.
_REFUSED = (
    *("rng_uniform", "sharding_constraint", "reshard", "mesh_cast", "layout_constraint", "relayout", "shard_map"),
    *("xla_pmap", "custom_partitioning", "pure_callback", "io_callback", "debug_callback", "infeed", "outfeed"),
    *("pallas_call", "core_map", "run_state", "ffi_call", "call_exported", "xla_call_module", "composite", "tie"),
    *("psum", "psum2", "pmax", "pmin", "ppermute", "all_gather", "all_to_all", "axis_index", "reduce_scatter"),
    *("psum_invariant", "pbroadcast", "pvary", "ragged_all_to_all", "psend", "precv", "all_gather_invariant"),
    *("new_ref", "empty_ref", "free_ref", "freeze", "get", "swap", "addupdate", "call_hi_primitive"),
)
_SHARDINGS = ("sharding", "out_sharding", "dst_sharding")
# A gradient that nothing contributes to is a zero that was broadcast. It must be known for one: zeros may join
# summands, where any other value would be added once per replica.
_KEEPS_ZERO = ("broadcast_in_dim", "convert_element_type", "reshape", "copy", "neg", "transpose", "squeeze")


def flatten(jaxpr: Jaxpr) -> Flat:
    """Returns a closed jaxpr as one list of equations; raises `NoRule` if one must not run per replica."""
    inside = open_jaxpr(jaxpr)
    inputs = [Value(v.aval) for v in inside.invars]
    builder = _Builder()
    outputs = builder.inline(inside, consts_of(jaxpr), inputs)
    return Flat(inputs, _drop_unneeded(builder.equations, outputs), outputs)


def consts_of(jaxpr: Any) -> list[Any]:
    """The constants of a closed jaxpr; an open one must not have any."""
    consts = list(getattr(jaxpr, "consts", ()))
    if len(consts) != len(open_jaxpr(jaxpr).constvars):
        raise NoRule("a jaxpr has constants without values")
    return consts


class _Builder:
    """Collects equations."""

    def __init__(self) -> None:
        self.equations: list[Equation] = []
        self._sums: dict[tuple[int, tuple[int, ...]], Value] = {}

    def inline(self, jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Value]) -> list[Value]:
        """Adds the equations of `jaxpr`; returns its outputs."""
        known: dict[Any, Value] = dict(zip(jaxpr.invars, arguments, strict=True))
        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            known[variable] = Constant(const, variable.aval)
        for eqn in jaxpr.eqns:
            inputs = [_read(known, atom) for atom in eqn.invars]
            for variable, value in zip(eqn.outvars, self._add_equation(eqn, inputs), strict=True):
                known[variable] = value
        return [_read(known, atom) for atom in jaxpr.outvars]

    def _add_equation(self, eqn: JaxprEquation, inputs: list[Value]) -> list[Value]:
        name = eqn.primitive.name
        inner = _inner(name, eqn, inputs)
        if inner is not None:
            if name in _REMAT and eqn.params.get("prevent_cse") and eqn.params.get("differentiated"):
                inputs = self._isolate(inputs)
            return self.inline(open_jaxpr(inner), consts_of(inner), inputs)
        _refuse(eqn)
        if name == "reduce_sum":
            # A sum that has been taken before (`var` takes the mean again) would be one more to reduce.
            key = (id(inputs[0]), tuple(eqn.params["axes"]))
            if key not in self._sums:
                self._sums[key] = self._append(eqn, inputs, inputs[0].is_zero)[0]
            return [self._sums[key]]
        return self._append(eqn, inputs, name in _KEEPS_ZERO and inputs[0].is_zero)

    def _append(self, eqn: JaxprEquation, inputs: list[Value], zero: bool = False) -> list[Value]:
        outputs = [Value(v.aval, zero) for v in eqn.outvars]
        self.equations.append(Equation(eqn.primitive, eqn.params, inputs, outputs, _context(eqn)))
        return outputs

    def _isolate(self, inputs: list[Value]) -> list[Value]:
        """Puts a barrier before what is computed twice to save memory: merged, it would not. jax lowers it so too."""
        traced = jax.make_jaxpr(lax.optimization_barrier)(
            [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in inputs]
        )
        return self._append(traced.jaxpr.eqns[0], inputs) if inputs else inputs


def _inner(name: str, eqn: JaxprEquation, inputs: Sequence[Value]) -> Any:
    """Returns the jaxpr that an equation does nothing but call, or `None`."""
    if name in _CALLS:
        return eqn.params[_CALLS[name]]
    if name == "random_bits":
        # Of random bits each replica can hash its own block; as one primitive all would draw all of them.
        return bits_as_jaxpr(inputs[0].aval, eqn.params)
    return None


def _read(known: dict[Any, Value], atom: Any) -> Value:
    # Literals are the only atoms that carry a value.
    return Constant(atom.val, atom.aval) if hasattr(atom, "val") else known[atom]


def _refuse(eqn: JaxprEquation) -> None:
    """Raises `NoRule` for an equation, or one inside of it, that must not run once per replica."""
    # A callback with effects would be called once per replica.
    name = eqn.primitive.name
    if name in _REFUSED or eqn.effects:
        raise NoRule(f"{name} says itself where it runs, or has side effects")
    for key in _SHARDINGS:
        if eqn.params.get(key) is not None:
            raise NoRule(f"{name} says how its result lies on devices")
    if name == "device_put" and any(d is not None for d in eqn.params["devices"]):
        raise NoRule("device_put names a device")
    for inner in subjaxprs(eqn):
        for nested in open_jaxpr(inner).eqns:
            _refuse(nested)


def _context(eqn: JaxprEquation) -> Any:
    """Returns the settings under which an equation has to run, where they are not those that hold anyway."""
    context = eqn.ctx
    usual = getattr(context, "compute_type", None) is None and getattr(context, "xla_metadata", None) is None
    same = getattr(context, "threefry_partitionable", None) == numbers_elements()
    return None if usual and same else context


def _is_scalar_zero(value: Array) -> bool:
    # Not of an array of jax: to look at it would wait for the device.
    return np.ndim(value) == 0 and not isinstance(value, jax.Array) and bool(value == 0)


def _drop_unneeded(equations: Sequence[Equation], outputs: Sequence[Value]) -> list[Equation]:
    # Gradients of unused values, among others: their sums would be taken for nothing.
    needed = set(outputs)
    kept: list[Equation] = []
    for equation in reversed(equations):
        if not needed.isdisjoint(equation.outputs):
            needed.update(equation.inputs)
            kept.append(equation)
    return kept[::-1]
