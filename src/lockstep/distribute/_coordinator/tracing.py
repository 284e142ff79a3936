"""Traces of scheduled functions: a jaxpr of arguments, drawn elements, seeds and variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun
from keras.src.backend.common.variables import initialize_all_variables

from lockstep import _nest as nest
from lockstep._engine.keras.replica_step import is_seed
from lockstep._engine.servers.closures.dataflow import Way
from lockstep._engine.servers.closures.division import Division, demand_shippable, divide
from lockstep._engine.step import backends
from lockstep._engine.step.jaxprs import close_jaxpr, constants_of, current_trace, open_jaxpr, select_results
from lockstep._engine.step.replica_invariance import is_probe
from lockstep._types import Jaxpr
from lockstep.distribute._again import Again
from lockstep.distribute._arguments import Fixed
from lockstep.distribute._collectives import Alone
from lockstep.distribute._context import ReplicaContext
from lockstep.distribute._coordinator.datasets import PerWorkerIterator, WorkerIterator
from lockstep.distribute._program import Program
from lockstep.distribute._trace import Known, Trace
from lockstep.distribute._variables import Scope
from lockstep.errors import UnsupportedError


@dataclass(frozen=True)
class Traced:
    """A scheduled function for arguments and elements of certain shapes.

    Attributes:
        division: Its parts; inputs are arguments, drawn elements and seeds, then `variables`.
        avals: Shapes and dtypes of all inputs.
        arguments: How many inputs are no variables.
        variables: What it reads or assigns, without seeds.
        changed: Those that it assigns.
        seeds: The states of random generators, and for each what returns its next value.
        draws: By the place of an iterator among the leaves: how many elements it draws.
        results: Makes what the function returns of its arrays.
    """

    division: Division
    avals: tuple[jax.ShapeDtypeStruct, ...]
    arguments: int
    variables: tuple[Any, ...]
    changed: tuple[Any, ...]
    seeds: tuple[tuple[Any, Callable[[Any], Any]], ...]
    draws: Mapping[int, int]
    results: Callable[[Sequence[Any]], Any]


def trace_function(
    strategy: Any, function: Callable[..., Any], name: str, leaves: Sequence[Any], structure: Any
) -> Traced:
    """Traces a function of the coordinator's program.

    Args:
        strategy: Whose `run` it may call.
        function: The function.
        name: For messages.
        leaves: Of its arguments, as the first worker gets them: arrays, iterators and what is part of the program.
        structure: Of the arguments, (args, kwargs).
    """
    tracer = _Tracer(strategy, function, name, leaves, structure)
    while True:
        try:
            return tracer.run()
        except Again:
            # With each time it knows more of variables and elements; so it ends.
            initialize_all_variables()
            continue


def kind_of(leaf: Any) -> Any:
    """Returns what a program depends on of an argument: shape and dtype of an array, or the value itself."""
    if isinstance(leaf, (WorkerIterator, PerWorkerIterator)):
        return "iterator"
    if _is_array(leaf):
        return np.shape(leaf), jax.dtypes.canonicalize_dtype(leaf.dtype)
    return Fixed(leaf)


def kinds_of(element: Any) -> Any:
    """Returns structure, shapes and dtypes of an element, or of several."""
    leaves, structure = nest.flatten(element)
    return structure, tuple(map(kind_of, leaves))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (np.ndarray, np.generic, jax.Array)) and getattr(leaf, "dtype", np.dtype("O")).kind not in (
        "OSUMm"
    )


def _canonical(leaf: Any) -> Any:
    return np.asarray(leaf, jax.dtypes.canonicalize_dtype(leaf.dtype))


class _Drawing:
    """An iterator in the function that is traced."""

    def __init__(self, iterator: WorkerIterator, elements: Sequence[Any], name: str) -> None:
        self._iterator, self._elements, self._name = iterator, elements, name
        self._trace = current_trace()
        self.count = 0

    def __iter__(self) -> _Drawing:
        return self

    def __next__(self) -> Any:
        """Returns the next element: traced, if it is known that one is drawn here."""
        if current_trace() != self._trace:
            raise UnsupportedError(
                "Elements are drawn before a scheduled function is computed, so that their number is known. Received: "
                f"{self._name}, which calls next in a loop or a condition that JAX compiles. Write `for _ in "
                "range(steps)` in place of tf.range."
            )
        number, self.count = self.count, self.count + 1
        if number < len(self._elements):
            return self._elements[number]
        # On a thread of its own: what is read must not be a part of the trace, and traces are of threads.
        with ThreadPoolExecutor(1) as elsewhere:
            element = elsewhere.submit(self._iterator.peek, number).result()
        return nest.map_structure(lambda a: jax.numpy.asarray(a) if _is_array(a) else a, element)

    def get_next(self) -> Any:
        """Returns the next element."""
        return next(self)


class _FunctionTrace(Trace):
    """A trace with one replica, in which gradients are what the function has computed."""

    def _scope(self, values: Sequence[Any]) -> Scope:
        found = {id(v): value for v, value in zip(self._known.variables, values, strict=True)}
        return Scope(self._context, lambda v: found.get(id(v)), lambda key, gradients: False, self._known)


class _Tracer:
    """Traces one function until all is known that it reads."""

    def __init__(
        self, strategy: Any, function: Callable[..., Any], name: str, leaves: Sequence[Any], structure: Any
    ) -> None:
        self._function, self._name, self._leaves, self._structure = Program.convert(function), name, leaves, structure
        self._known = Known([], {})
        self._context = ReplicaContext(strategy, Alone())
        self._draws = {i: 0 for i, leaf in enumerate(leaves) if isinstance(leaf, WorkerIterator)}

    def run(self) -> Traced:
        """Traces it once; raises `Again` if that has shown that there is more to know."""
        backends.begin_program()
        inputs, arguments = self._inputs()
        numbers = range(len(inputs))
        drawings: list[_Drawing] = []
        trace = _FunctionTrace(self._function, partial(arguments, drawings), numbers, self._known, self._context)
        variables = list(self._known.variables)
        shapes = [jax.ShapeDtypeStruct(np.shape(a), a.dtype) for a in inputs]
        shapes += [jax.ShapeDtypeStruct(tuple(v.shape), np.dtype(v.dtype)) for v in variables]
        record = jax.make_jaxpr(trace.run)(*shapes)
        drawn = dict(zip(self._draws, (d.count for d in drawings), strict=True))
        if drawn != self._draws:
            self._draws = drawn
            raise Again
        (record,) = trace.filled([record])
        demand_shippable(record, self._name)
        return self._divide(record, trace, variables, len(inputs))

    def _inputs(self) -> tuple[list[Any], Callable[..., Any]]:
        """Returns examples of the arrays that the function is given, and what makes its arguments of such."""
        inputs: list[Any] = [_canonical(leaf) for leaf in self._leaves if _is_array(leaf)]
        elements: dict[int, Any] = {}
        for i, count in self._draws.items():
            found, structure = nest.flatten([self._leaves[i].peek(n) for n in range(count)])
            elements[i] = structure, found, len(inputs)
            inputs += [_canonical(leaf) for leaf in found if _is_array(leaf)]

        def arguments(drawings: list[_Drawing], arrays: Mapping[int, Any]) -> Any:
            given = iter([arrays[n] for n in range(len(inputs))])
            parts = [next(given) if _is_array(leaf) else leaf for leaf in self._leaves]
            for i, (structure, found, _) in elements.items():
                whole = structure.unflatten([next(given) if _is_array(leaf) else leaf for leaf in found])
                drawings.append(_Drawing(self._leaves[i], whole, self._name))
                parts[i] = drawings[-1]
            return self._structure.unflatten(parts)

        return inputs, arguments

    def _divide(self, record: Jaxpr, trace: Trace, variables: Sequence[Any], count: int) -> Traced:
        returned = trace._returned[0]  # pyright: ignore[reportPrivateUsage]
        arrays = sum(leaf is None for leaf in returned.leaves)
        number_of = {id(v): n for n, v in enumerate(variables)}
        seeds, others = [v for v in variables if is_seed(v)], [v for v in variables if not is_seed(v)]
        outputs = {id(a.variable): arrays + i for i, a in enumerate(returned.assigned)}
        # Arguments, elements and seeds; then variables.
        order = [*range(count), *(count + number_of[id(v)] for v in (*seeds, *others))]
        changed = [a for a in returned.assigned if not is_seed(a.variable)]
        wanted = [*range(arrays), *(outputs[id(a.variable)] for a in changed)]
        closed = _reorder(record, order, wanted)
        place_of = {id(v): n for n, v in enumerate(others)}
        assigned: list[tuple[int, Way]] = [
            (place_of[id(a.variable)], "amount" if a.way == "added" else "value") for a in changed
        ]
        moves = [(v, self._advance(record, v, count + number_of[id(v)], outputs.get(id(v)))) for v in seeds]
        division = divide(closed, count + len(seeds), assigned, is_probe)
        shapes = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in closed.in_avals)
        fixed, structure = returned.leaves, returned.structure

        def results(values: Sequence[Any]) -> Any:
            given = iter(values)
            return structure.unflatten([next(given) if leaf is None else leaf.value for leaf in fixed])

        return Traced(
            division,
            shapes,
            count + len(seeds),
            tuple(others),
            tuple(a.variable for a in changed),
            tuple(moves),
            dict(self._draws),
            results,
        )

    def _advance(self, record: Jaxpr, seed: Any, place: int, output: int | None) -> Callable[[Any], Any]:
        """Returns what moves the state of a random generator as a call of the function does."""
        if output is None:
            return lambda value: value
        closed, used = select_results(record, [output])
        if any(n != place for n in used):
            raise UnsupportedError(
                "A random generator goes on by the number of its draws. Received: "
                f"{self._name}, in which the state of {seed.path} depends on something else. Draw outside of "
                "conditions."
            )
        move = jax.jit(jaxpr_as_fun(closed))
        return lambda value: move(*([value] if used else []))[0]


def _reorder(closed: Jaxpr, inputs: Sequence[int], outputs: Sequence[int]) -> Jaxpr:
    """Returns a closed jaxpr with inputs and outputs in another order."""
    body = open_jaxpr(closed)
    names = (
        {"debug_info": body.debug_info._replace(arg_names=None, result_paths=None)}
        if hasattr(body, "debug_info")
        else {}
    )
    body = body.replace(invars=[body.invars[n] for n in inputs], outvars=[body.outvars[n] for n in outputs], **names)
    return close_jaxpr(body, constants_of(closed))
