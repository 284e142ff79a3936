"""Windows: of a large table a worker has the rows that a function looks up, and sends gradients of these alone.

A table is a variable whose rows a function gathers, which a worker reads in no other way, and whose gradient scatters
accumulate. Its update must work by rows, and leave those without a gradient as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._engine.step.jaxprs import evaluate_equation, read, variables
from lockstep._types import Array

# Smaller variables travel whole: a megabyte takes less than a millisecond.
_LEAST_BYTES = 1 << 20
# Of one element each; whether zeros stay zeros, their result for zeros says.
_KEEPING = frozenset(
    "abs add add_any clamp convert_element_type copy copy_p integer_pow max min mul name neg sign sqrt square "  # noqa: SIM905
    "stop_gradient sub".split()
)
# What is the same array again.
_COPIES = frozenset(("copy", "copy_p", "name", "stop_gradient"))
# And whatever the number is that they are multiplied by.
_PRODUCTS = frozenset(("mul", "div"))
_PROBED_ROWS = 4
# The ids of gathers and scatters as they stand in a jaxpr, and whether ids outside of the table count as the nearest.
Lookup = tuple[Any, bool]


@dataclass(frozen=True)
class Window:
    """A table, and what a worker needs of it.

    Attributes:
        variable: The number of the variable.
        input: Its input of the jaxpr.
        size: How many rows the window has: at least as many as a call looks up.
        lookups: Where rows are gathered, and gradients scattered.
        gathers: The equations that gather.
        made: The equations that make gradients.
    """

    variable: int
    input: Any
    size: int
    lookups: tuple[Lookup, ...]
    gathers: frozenset[int]
    made: frozenset[int]

    @property
    def rows(self) -> int:
        """The number of rows of the table."""
        return self.input.aval.shape[0]


def find_window(
    variable: int, own: Any, eqns: Mapping[int, Any], gradients: Sequence[Any], others: Collection[Any]
) -> Window | None:
    """Returns the window of a table; `None` if a worker needs it whole.

    Args:
        variable: The number of the variable.
        own: Its input of the jaxpr.
        eqns: The equations of the worker, by number.
        gradients: Of what the worker sends: gradients of all rows.
        others: All else that the worker sends or returns.
    """
    shape, dtype = own.aval.shape, own.aval.dtype
    is_large = len(shape) > 1 and int(np.prod(shape, dtype=np.int64)) * dtype.itemsize >= _LEAST_BYTES
    if not is_large or not jnp.issubdtype(dtype, np.inexact):
        return None
    uses: dict[Any, set[int]] = {}
    for number, eqn in eqns.items():
        for var in variables(eqn.invars):
            uses.setdefault(var, set()).add(number)
    maker = {v: n for n, eqn in eqns.items() for v in eqn.outvars}
    aliases, gathers = _readers(own, uses, eqns)
    made = _gradient_equations(gradients, shape, maker, eqns)
    if made is None or aliases & set(others) or not all(_gathers_rows(eqns[n], aliases) for n in gathers):
        return None
    # What is made of rows of the window alone is used for nothing else.
    values = {v for n in made for v in eqns[n].outvars}
    if values & set(others) or any(uses.get(v, set[int]()) - made for v in values):
        return None
    reading = sorted(gathers | {n for n in made if eqns[n].primitive.name == "scatter-add"})
    lookups = tuple(dict.fromkeys(_lookup_of(eqns[n]) for n in reading))
    count = sum(int(np.prod(ids.aval.shape, dtype=np.int64)) for ids, _ in lookups)
    size = 1 << max(3, (count - 1).bit_length())
    if not lookups or 2 * size > shape[0]:
        return None
    return Window(variable, own, size, lookups, frozenset(gathers), frozenset(made))


def _readers(own: Any, uses: Mapping[Any, set[int]], eqns: Mapping[int, Any]) -> tuple[set[Any], set[int]]:
    """Returns a table's input and the copies of it, such as a tape's, and the equations that read one."""
    aliases, readers, pending = {own}, set[int](), [own]
    while pending:
        for number in uses.get(pending.pop(), set[int]()):
            if eqns[number].primitive.name in _COPIES:
                aliases.update(eqns[number].outvars)
                pending += eqns[number].outvars
            else:
                readers.add(number)
    return aliases, readers


def _gradient_equations(
    gradients: Sequence[Any], shape: tuple[int, ...], maker: Mapping[Any, int], eqns: Mapping[int, Any]
) -> set[int] | None:
    """Returns the equations that make gradients of rows that were looked up; `None` if others are not zeros in them."""
    made: set[int] = set()
    pending = list(gradients)
    while pending:
        number = maker.get(pending.pop())
        if number is None or (inputs := _rows_in(eqns[number], shape)) is None:
            return None
        if number not in made:
            made.add(number)
            pending += [v for v in inputs if not _is_zero(v, maker, eqns)]
    return made


def _rows_in(eqn: Any, shape: tuple[int, ...]) -> list[Any] | None:
    """Returns the inputs that must be zeros but for rows that were looked up, for the result to be so; or `None`."""
    if eqn.primitive.name == "scatter-add":
        numbers = eqn.params["dimension_numbers"]
        is_by_rows = (
            tuple(numbers.inserted_window_dims) == (0,)
            and tuple(numbers.scatter_dims_to_operand_dims) == (0,)
            and not numbers.operand_batching_dims
        )
        return [eqn.invars[0]] if is_by_rows and _is_computed(eqn.invars[1]) else None
    if len(eqn.outvars) != 1 or eqn.outvars[0].aval.shape != shape:
        return None
    rows = [v for v in eqn.invars if v.aval.shape == shape]
    numbers = [v for v in eqn.invars if v.aval.shape == ()]
    if eqn.primitive.name in _KEEPING and not any(_is_computed(v) for v in eqn.invars if not _is_in(v, rows)):
        zeros = [np.zeros((), v.aval.dtype) if _is_in(v, rows) else v.val for v in eqn.invars]
        (found,) = evaluate_equation(eqn, [jnp.asarray(v) for v in zeros])
        return None if np.any(np.asarray(found)) else rows
    is_product = eqn.primitive.name in _PRODUCTS and len(rows) == len(numbers) == 1
    return rows if is_product and (eqn.primitive.name == "mul" or eqn.invars[0] is rows[0]) else None


def _gathers_rows(eqn: Any, aliases: Collection[Any]) -> bool:
    """Returns whether an equation gathers whole rows of a table."""
    if eqn.primitive.name != "gather" or not all(map(_is_computed, eqn.invars)) or eqn.invars[0] not in aliases:
        return False
    numbers = eqn.params["dimension_numbers"]
    return (
        tuple(numbers.collapsed_slice_dims) == (0,)
        and tuple(numbers.start_index_map) == (0,)
        and not numbers.operand_batching_dims
        and tuple(eqn.params["slice_sizes"]) == (1, *eqn.invars[0].aval.shape[1:])
    )


def _is_in(atom: Any, atoms: Sequence[Any]) -> bool:
    return any(atom is other for other in atoms)


def _is_computed(atom: Any) -> bool:
    return any(True for _ in variables([atom]))


def _is_zero(var: Any, maker: Mapping[Any, int], eqns: Mapping[int, Any]) -> bool:
    """Returns whether a value is zeros, made of a number."""
    number = maker.get(var)
    if number is None or eqns[number].primitive.name != "broadcast_in_dim":
        return False
    source = eqns[number].invars[0]
    return not _is_computed(source) and not np.any(np.asarray(source.val))


def _lookup_of(eqn: Any) -> Lookup:
    return eqn.invars[1], eqn.params["mode"] is not lax.GatherScatterMode.FILL_OR_DROP


def leaves_rows(
    run: Callable[..., Any], shapes: Sequence[Any], payload: Sequence[Any], gradients: Collection[int]
) -> bool:
    """Returns whether an update leaves rows without a gradient as they are, as far as an example says.

    Args:
        run: The effect.
        shapes: Of its variables.
        payload: Shapes of what it takes.
        gradients: Which of that are gradients.
    """
    random = np.random.default_rng(0)
    values = [random.uniform(0.5, 1.5, (_PROBED_ROWS, *s.shape[1:])).astype(s.dtype) for s in shapes]
    given = [
        np.zeros((_PROBED_ROWS, *p.shape[1:]), p.dtype) if n in gradients else np.full(p.shape, 0.5).astype(p.dtype)
        for n, p in enumerate(payload)
    ]
    after = run([jnp.asarray(v) for v in values], [jnp.asarray(p) for p in given], _PROBED_ROWS)
    return all(np.array_equal(np.asarray(new), old) for new, old in zip(after, values, strict=True))


def evaluate(
    eqns: Mapping[int, Any], known: dict[Any, Any], windows: Iterable[Window], positions: Iterable[Sequence[Array]]
) -> None:
    """Evaluates the equations of a worker, with windows in place of tables and of their gradients.

    Args:
        eqns: The equations, by number.
        known: The values that there are; those of the equations are added.
        windows: The windows.
        positions: Of each window, for each of its lookups: the rows in it.
    """
    places: dict[int, tuple[Window, Mapping[Lookup, Array]]] = {}
    for window, own in zip(windows, positions, strict=True):
        at = dict(zip(window.lookups, own, strict=True))
        places |= {n: (window, at) for n in (*window.gathers, *window.made)}
    for number in sorted(eqns):
        eqn = eqns[number]
        given = [read(known, v) for v in eqn.invars]
        results = evaluate_equation(eqn, given) if number not in places else _in_window(eqn, given, *places[number])
        known.update(zip(eqn.outvars, results, strict=True))


def _in_window(eqn: Any, given: list[Any], window: Window, places: Mapping[Lookup, Array]) -> list[Any]:
    """Evaluates an equation of rows for those of a window."""
    shape = window.input.aval.shape
    # Zeros of all rows are made by an equation that is evaluated as it is, and which XLA leaves out then.
    given = [
        jnp.zeros((window.size, *shape[1:]), x.dtype) if v.aval.shape == shape and np.shape(x) == shape else x
        for v, x in zip(eqn.invars, given, strict=True)
    ]
    if eqn.primitive.name in ("gather", "scatter-add"):
        given[1] = places[_lookup_of(eqn)]
    return evaluate_equation(eqn, given)


def window_shape(shape: jax.ShapeDtypeStruct, size: int) -> jax.ShapeDtypeStruct:
    """Returns the shape of some rows."""
    return jax.ShapeDtypeStruct((size, *shape.shape[1:]), shape.dtype)


def places_of(lookups: Sequence[Array], clips: Sequence[bool], rows: int, size: int) -> tuple[Array, list[Array]]:
    """Returns which rows of a table lookups need, in order, each once; and where they are in the window.

    Args:
        lookups: Ids, of any shape.
        clips: Whether ids outside of the table count as the nearest; else as none.
        rows: The number of rows of the table.
        size: That of the window.
    """
    wanted = [np.clip(a, 0, rows - 1) if clip else np.asarray(a) for a, clip in zip(lookups, clips, strict=True)]
    flat = np.concatenate([a.ravel() for a in wanted]).astype(np.int64)
    unique, inverse = np.unique(flat, return_inverse=True)
    first, last = np.searchsorted(unique, [0, rows])
    places = np.where((inverse < first) | (inverse >= last), size, inverse - first).astype(np.int32)
    ends = np.cumsum([a.size for a in wanted])
    parts = np.split(places, ends[:-1])
    return unique[first:last], [p.reshape(a.shape) for p, a in zip(parts, wanted, strict=True)]


def stretch_of(ids: Array, rows: Sequence[int] | None) -> slice:
    """Returns where in ids, which are in order, those of a range of rows are."""
    return slice(None) if rows is None else slice(*np.searchsorted(ids, [rows[0], rows[1]]).tolist())
