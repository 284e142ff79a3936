"""Operators of converted code: conditions and loops that are compiled where they depend on traced tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.core import Tracer

from lockstep.compat.tensorflow._functions import staging
from lockstep.compat.tensorflow._functions.builtins_of_python import TracedRange
from lockstep.compat.tensorflow._functions.refusals import NotCompilableError
from lockstep.compat.tensorflow._functions.state import Branches, Loop, Values
from lockstep.compat.tensorflow._ops.create import convert_to_tensor
from lockstep.compat.tensorflow._tape import recording
from lockstep.data import Dataset
from lockstep.data.internal import DatasetIterator
from lockstep.distribute.internal import DistributedDataset, DistributedIterator

_Action = Callable[[], Any]
_DATA = (Dataset, DatasetIterator, DistributedDataset, DistributedIterator)

# Functions are made of what is converted, so that this file cannot import them.
_compilers: list[Callable[[Callable[..., Any]], Callable[..., Any]]] = []

OPERATORS = ("and_", "for_stmt", "if_exp", "if_stmt", "not_", "or_", "while_stmt")


def register_compiler(compile_step: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Sets how the body of a loop over data becomes a compiled function."""
    _compilers[:] = [compile_step]


def if_stmt(
    cond: Any,
    body: _Action,
    orelse: _Action,
    get_state: Callable[[], tuple[Any, ...]],
    set_state: Callable[[Any], None],
    symbol_names: Sequence[str],
    nouts: int,
) -> None:
    """Runs one of two blocks, or compiles both.

    Args:
        cond: The condition.
        body: The block that runs if it is true.
        orelse: The other one.
        get_state: Returns the values of the names that blocks assign.
        set_state: Sets them.
        symbol_names: The names.
        nouts: So many of them, the first ones, are used afterwards.
    """
    if not _is_traced(cond):
        (body if cond else orelse)()
        return
    first = get_state()

    def block(action: _Action) -> Callable[[], Any]:
        def run() -> Any:
            set_state(first)
            action()
            return get_state()[:nouts]

        return run

    try:
        found = Branches(symbol_names[:nouts], [block(body), block(orelse)]).choose(_value(cond))
    except BaseException:
        set_state(first)
        raise
    set_state((*found, *first[nouts:]))


def if_exp(cond: Any, if_true: _Action, if_false: _Action, expr_repr: str) -> Any:
    """Returns one of two expressions, or compiles both."""
    if not _is_traced(cond):
        return if_true() if cond else if_false()
    names = ["an expression"]
    return Branches(names, [lambda: (if_true(),), lambda: (if_false(),)]).choose(_value(cond))[0]


def while_stmt(
    test: _Action,
    body: _Action,
    get_state: Callable[[], tuple[Any, ...]],
    set_state: Callable[[Any], None],
    symbol_names: Sequence[str],
    opts: dict[str, Any],
) -> None:
    """Runs a loop, or compiles it from the turn on in which its condition is a traced tensor. As `if_stmt`."""
    while True:
        goes_on = test()
        if _is_traced(goes_on):
            break
        if not goes_on:
            return
        body()
    loop = Loop(symbol_names, get_state, set_state, body)
    loop.settle()
    loop.finish(staging.while_loop(loop.asking(test), loop.turn, loop.first, opts.get("maximum_iterations")))


def for_stmt(
    iter_: Any,
    extra_test: _Action | None,
    body: Callable[[Any], None],
    get_state: Callable[[], tuple[Any, ...]],
    set_state: Callable[[Any], None],
    symbol_names: Sequence[str],
    opts: dict[str, Any],
) -> None:
    """Runs a loop over elements, or compiles it if these are a tensor. As `while_stmt`.

    Args:
        iter_: What it goes over.
        extra_test: Tells whether it goes on; `None` if nothing ends it before.
        body: The block, of an element.
        get_state: Returns the values of the names that the block assigns.
        set_state: Sets them.
        symbol_names: The names.
        opts: Options.
    """
    compiles = recording.is_compiling()
    if isinstance(iter_, _DATA):
        if compiles:
            raise NotCompilableError("a loop over a dataset reads it on the host; its body is compiled")
        _for_data(iter_, extra_test, body, get_state, set_state)
        return
    loop = Loop(symbol_names, get_state, set_state, body)
    if isinstance(iter_, TracedRange):
        _for_range(iter_, extra_test, loop)
        return
    if compiles and isinstance(iter_, (jax.Array, np.ndarray, keras.Variable)) and _is_numeric(iter_):
        elements = jnp.asarray(_value(iter_))
        before = get_state()
        try:
            if len(elements):
                loop.settle(jax.ShapeDtypeStruct(elements.shape[1:], elements.dtype))
            test = None if extra_test is None else loop.asking(extra_test)
            loop.finish(staging.for_loop([elements], test, loop.turn, loop.first))
            return
        except NotCompilableError:
            # Shapes that change from turn to turn: one turn after the other, each compiled for its own.
            set_state(before)
    for element in iter_:
        if extra_test is None:
            body(element)
            continue
        goes_on = extra_test()
        if _is_traced(goes_on):
            # From here on it is known only when it runs which turn is the last one.
            if_stmt(goes_on, lambda: body(element), lambda: None, get_state, set_state, symbol_names, len(symbol_names))  # noqa: B023
        elif goes_on:
            body(element)
        else:
            break


def _for_range(numbers: TracedRange, extra_test: _Action | None, loop: Loop) -> None:
    """Compiles a loop over a range of a length that is known only when it runs."""
    zero = jnp.zeros((), numbers.count.dtype)
    loop.settle(jax.ShapeDtypeStruct((), jnp.result_type(numbers.start, numbers.step)))
    question = None if extra_test is None else loop.asking(extra_test)

    def test(i: Any, *state: Any) -> list[Any]:
        inside = i < numbers.count
        return [inside if question is None else jnp.logical_and(inside, jnp.asarray(question(*state)[0], bool))]

    def turn(i: Any, *state: Any) -> list[Any]:
        return [i + 1, *loop.turn(*state, numbers.start + i * numbers.step)]

    loop.finish(staging.while_loop(test, turn, [zero, *loop.first])[1:])


def _for_data(
    data: Any, extra_test: _Action | None, body: Callable[[Any], None], get_state: _Action, set_state: Any
) -> None:
    """Runs a loop over data in Python, whose body is compiled as a function of its own."""

    def turn(state: Any, element: Any) -> Any:
        set_state(state)
        body(element)
        return get_state()

    # Python's numbers that the body changes are tensors, as in TensorFlow.
    (compile_step,) = _compilers
    step = compile_step(turn)
    values = Values(get_state())
    set_state(values.filled([convert_to_tensor(value) for value in values.arrays()]))
    for element in data:
        if extra_test is not None and not extra_test():
            break
        set_state(step(get_state(), element))


def and_(a: _Action, b: _Action) -> Any:
    """`a and b`."""
    first = a()
    return _logical(jnp.logical_and, first, b()) if _is_traced(first) else first and b()


def or_(a: _Action, b: _Action) -> Any:
    """`a or b`."""
    first = a()
    return _logical(jnp.logical_or, first, b()) if _is_traced(first) else first or b()


def not_(a: Any) -> Any:
    """`not a`."""
    return jnp.logical_not(_value(a)) if _is_traced(a) else not a


def _logical(function: Any, first: Any, second: Any) -> Any:
    return function(_value(first), _value(second))


def _is_traced(value: Any) -> bool:
    if isinstance(value, keras.Variable):
        return recording.is_compiling()
    return isinstance(value, Tracer)


def _is_numeric(value: Any) -> bool:
    return np.ndim(value) > 0 and np.dtype(value.dtype).kind not in "OSU"


def _value(value: Any) -> Any:
    return value.value if isinstance(value, keras.Variable) else value
