"""Jaxprs: walking, evaluating and rebuilding them; the names of jax's primitives that walkers look for.

All walkers of lockstep use these functions, so that a new release of jax changes one file.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.core
import jax.extend.core as jex
from jax.interpreters import partial_eval

from lockstep._types import Jaxpr

# From jax 0.11 on there is one kind of jaxpr; ClosedJaxpr is another name of it, which jax's types do not export.
_core: Any = jex

Equation = Any
Atom = Any
"""A variable of a jaxpr, or a literal: what an equation takes."""

LOOPS = frozenset(("scan", "while"))
# These do more with a jaxpr than to call it once, so that nothing may be concluded from its inputs alone.
NOT_PLAIN_CALLS = LOOPS | {"cond", "shard_map", "custom_partitioning", "pallas_call", "run_state"}
# With every member of a mesh axis taking part, the results are equal on all of them.
EQUALIZING = frozenset(
    ("psum", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant", "all_gather_reduced")
)
# The same question gets another answer on each replica, or each time.
REPLICA_DEPENDENT = frozenset(("axis_index", "io_callback", "rng_uniform"))
# They change arrays in place, which the flow of data between equations does not show.
MUTATING = frozenset(("swap", "addupdate", "masked_swap", "run_state"))
# Names in walkers' tables, here and elsewhere, of primitives that some supported release of jax lacks.
OF_OTHER_RELEASES = frozenset(
    (
        *(
            "checkpoint",
            "core_call",
            "custom_vjp_call_jaxpr",
            "infeed",
            "log2",
            "mesh_cast",
            "one_minus_square",
            "outfeed",
        ),
        *("pjit", "polynomial", "psum2", "relayout", "remat", "xla_call_module", "xla_pmap"),
    )
)
# Parameters that hold the jaxpr of a plain call; which one depends on the primitive and the release.
_CALL_PARAMETERS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def is_jaxpr(value: Any) -> bool:
    """Returns whether this is a jaxpr, closed or not."""
    return isinstance(value, (_core.ClosedJaxpr, jex.Jaxpr))


def close_jaxpr(jaxpr: Jaxpr, constants: Sequence[Any]) -> Jaxpr:
    """Returns the jaxpr with values for its constants."""
    return _core.ClosedJaxpr(jaxpr, constants)


def open_jaxpr(jaxpr: Jaxpr) -> Any:
    """Returns the jaxpr without its constants."""
    # From jax 0.11 on there is one kind only, which has no `jaxpr`.
    return getattr(jaxpr, "jaxpr", jaxpr)


def constants_of(jaxpr: Jaxpr) -> Sequence[Any]:
    """Returns the constants of a closed jaxpr; an open one has none."""
    return getattr(jaxpr, "consts", ())


def subjaxprs(eqn: Equation) -> Iterator[Jaxpr]:
    """Yields the jaxprs, closed or not, that an equation has as parameters."""
    for value in eqn.params.values():
        yield from filter(is_jaxpr, value if isinstance(value, (tuple, list)) else (value,))


def equations(jaxpr: Jaxpr) -> Iterator[Equation]:
    """Yields all equations, also those inside of others."""
    for eqn in open_jaxpr(jaxpr).eqns:
        yield eqn
        for sub in subjaxprs(eqn):
            yield from equations(sub)


def axes_of(eqn: Equation) -> tuple[Any, ...]:
    """Returns the mesh axes that an equation communicates over, or asks for."""
    named = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    return tuple(named) if isinstance(named, (tuple, list)) else (named,)


def is_over(eqn: Equation, axis: str) -> bool:
    """Returns whether an equation communicates over `axis`, or asks for the place along it."""
    return axis in axes_of(eqn)


def mentions(jaxpr: Jaxpr, axis: str) -> bool:
    """Returns whether anything in a jaxpr is about `axis`."""
    return any(is_over(eqn, axis) for eqn in equations(jaxpr))


def called_jaxpr(eqn: Equation) -> Jaxpr | None:
    """Returns the jaxpr that an equation does nothing but call; `None` for all other equations."""
    if eqn.primitive.name in NOT_PLAIN_CALLS:
        return None
    jaxpr = next((eqn.params[name] for name in _CALL_PARAMETERS if name in eqn.params), None)
    # The numbers of inputs and outputs tell a call from what computes with a function in another way.
    if not is_jaxpr(jaxpr) or len(open_jaxpr(jaxpr).invars) != len(eqn.invars):
        return None
    return jaxpr if len(open_jaxpr(jaxpr).outvars) == len(eqn.outvars) else None


def scan_counts(params: Mapping[str, Any], inputs: int) -> tuple[int, int]:
    """Returns how many of the inputs of a `scan` stay the same, and how many are carried.

    Raises:
        LookupError: If this release of jax does not tell.
    """
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    try:  # Newer releases keep a tree instead.
        fixed, carried, _ = params["ft_in"].update(range(inputs)).unpack()
        return len(list(fixed)), len(list(carried))
    except (KeyError, AttributeError, TypeError, ValueError):
        raise LookupError("this release of jax describes scan in a way that is not known here") from None


def variables(atoms: Iterable[Atom]) -> Iterator[Any]:
    """Yields those that are no literals."""
    return (atom for atom in atoms if not isinstance(atom, jex.Literal))


def is_zero(atom: Atom) -> bool:
    """Returns whether an atom is the number zero, written into the jaxpr."""
    return isinstance(atom, jex.Literal) and bool(atom.val == 0)


def writers(jaxpr: Jaxpr) -> dict[Any, Equation]:
    """Returns the equations of a jaxpr, closed or not, by the variables that they make."""
    return {variable: eqn for eqn in open_jaxpr(jaxpr).eqns for variable in eqn.outvars}


def writer_of(atom: Atom, writers: Mapping[Any, Equation]) -> Equation | None:
    """Returns the equation that makes an atom; `None` for inputs, constants and literals."""
    return None if isinstance(atom, jex.Literal) else writers.get(atom)


def read(values: Mapping[Any, Any], atom: Atom) -> Any:
    """Returns the value of an atom."""
    return atom.val if isinstance(atom, jex.Literal) else values[atom]


def bind(primitive: Any, values: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Applies a primitive, given the parameters of an equation; returns all its results."""
    results = primitive.bind(*values, **primitive.get_bind_params(params))
    return list(results) if primitive.multiple_results else [results]


def evaluate_equation(eqn: Equation, values: Sequence[Any]) -> list[Any]:
    """Applies an equation's primitive under the settings of jax that it was traced with."""
    with eqn.ctx.manager:
        return bind(eqn.primitive, values, eqn.params)


def evaluate_inlined(
    equations: Iterable[Equation],
    known: dict[Any, Any],
    apply: Callable[[Equation, Sequence[Any]], Sequence[Any]] = evaluate_equation,
) -> None:
    """Computes the variables of equations, those of the functions that they call one by one.

    Args:
        equations: In the order in which they run.
        known: Values by variable; what is computed is added.
        apply: Computes the results of an equation that is no call of `jax.jit`'s.
    """
    for eqn in equations:
        values = [read(known, atom) for atom in eqn.invars]
        is_call = eqn.primitive is jex.primitives.jit_p
        results = evaluate_jaxpr(eqn.params["jaxpr"], values, apply) if is_call else apply(eqn, values)
        known.update(zip(eqn.outvars, results, strict=True))


def evaluate_jaxpr(
    jaxpr: Jaxpr,
    arguments: Sequence[Any],
    apply: Callable[[Equation, Sequence[Any]], Sequence[Any]] = evaluate_equation,
) -> list[Any]:
    """Evaluates a jaxpr, and the functions that it calls with it; `apply` is that of `evaluate_inlined`."""
    body = open_jaxpr(jaxpr)
    known: dict[Any, Any] = dict(zip(body.constvars, constants_of(jaxpr), strict=True))
    known.update(zip(body.invars, arguments, strict=True))
    evaluate_inlined(body.eqns, known, apply)
    return [read(known, atom) for atom in body.outvars]


def evaluate_stepwise(jaxpr: Jaxpr, arguments: Sequence[Any]) -> Generator[tuple[Any, list[Any]], list[Any], list[Any]]:
    """Evaluates a jaxpr whose equations the caller computes.

    Yields each equation with its inputs, is sent its results, and returns the results of the jaxpr.
    """
    body = open_jaxpr(jaxpr)
    values: dict[Any, Any] = dict(zip(body.constvars, constants_of(jaxpr), strict=True))
    values.update(zip(body.invars, arguments, strict=True))
    for eqn in body.eqns:
        results = yield eqn, [read(values, atom) for atom in eqn.invars]
        values.update(zip(eqn.outvars, results, strict=True))
    return [read(values, atom) for atom in body.outvars]


def replace_subjaxprs(eqn: Equation, replace: Callable[[Jaxpr], Jaxpr]) -> Equation:
    """Returns an equation with other jaxprs in its parameters; the same object if none changes."""

    def replace_in(value: Any) -> Any:
        if is_jaxpr(value):
            return replace(value)
        if not isinstance(value, (tuple, list)):
            return value
        items = [replace_in(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        # A tuple with names, such as the functions of a linear solve, takes its items one by one.
        make: Any = type(value)
        return make(*items) if hasattr(value, "_fields") else make(items)

    params = {name: replace_in(value) for name, value in eqn.params.items()}
    return eqn if all(params[name] is value for name, value in eqn.params.items()) else eqn.replace(params=params)


def replace_equations(jaxpr: Jaxpr, replace: Callable[[Equation], Equation]) -> Jaxpr:
    """Returns a jaxpr, closed or not, with other equations; the same object if none changes."""
    return with_equations(jaxpr, [replace(eqn) for eqn in open_jaxpr(jaxpr).eqns])


def with_equations(jaxpr: Jaxpr, equations: Sequence[Equation]) -> Jaxpr:
    """Returns a jaxpr, closed or not, that computes these equations; the same object if it has them already."""
    body = open_jaxpr(jaxpr)
    if len(equations) == len(body.eqns) and all(new is old for new, old in zip(equations, body.eqns, strict=True)):
        return jaxpr
    made = body.replace(eqns=list(equations))
    return made if body is jaxpr else jaxpr.replace(jaxpr=made)


def select_results(jaxpr: Jaxpr, numbers: Sequence[int]) -> tuple[Jaxpr, list[int]]:
    """Returns a closed jaxpr of some of the results, without what they do not need; and the inputs that it takes.

    Args:
        jaxpr: A closed jaxpr.
        numbers: The numbers of the results, in the order wanted.
    """
    body = open_jaxpr(jaxpr)
    # Names of results, where this release of jax keeps some, must be as many as the results.
    names = {"debug_info": body.debug_info._replace(result_paths=None)} if hasattr(body, "debug_info") else {}
    body = body.replace(outvars=[body.outvars[n] for n in numbers], **names)
    thinned, used = partial_eval.dce_jaxpr(body, [True] * len(numbers))
    return close_jaxpr(thinned, constants_of(jaxpr)), [n for n, is_used in enumerate(used) if is_used]


def results_from(jaxpr: Jaxpr, places: Iterable[int]) -> frozenset[int]:
    """Returns the numbers of the results that are computed from some of the inputs, which are given by theirs."""
    body = open_jaxpr(jaxpr)
    dependent = _computed_from(body, [body.invars[place] for place in places])
    return frozenset(n for n, result in enumerate(body.outvars) if any(a in dependent for a in variables([result])))


def depends_on_inputs(jaxpr: Jaxpr, output: Atom) -> bool:
    """Returns whether an output of a jaxpr is computed from its inputs, and not from its constants alone."""
    body = open_jaxpr(jaxpr)
    dependent = _computed_from(body, body.invars)
    return any(atom in dependent for atom in variables([output]))


def _computed_from(body: Any, inputs: Iterable[Any]) -> set[Any]:
    """Returns inputs of a jaxpr that is open, and all that is computed from them."""
    dependent = set(inputs)
    for eqn in body.eqns:
        # As a whole: an equation that calls a jaxpr passes on what any of its inputs depends on.
        if any(atom in dependent for atom in variables(eqn.invars)):
            dependent.update(eqn.outvars)
    return dependent


def is_traced(value: Any) -> bool:
    """Returns whether `value` is known only when what is being traced runs."""
    return isinstance(value, jax.core.Tracer)


def current_trace() -> Any:
    """Returns what is equal for all that is traced into the same jaxpr; `None` where jax does not tell."""
    state: Callable[[], Any] | None = getattr(jex, "get_opaque_trace_state", None)
    return state() if state else None


def name_of(function: Any) -> str:
    """Returns what a message calls a function."""
    return str(getattr(function, "__qualname__", type(function).__name__)).replace("<locals>.", "")
