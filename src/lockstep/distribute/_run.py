"""`Strategy.run`: a function of one replica, compiled for all of them.

The function is traced once for one replica. What its outputs come from tells which of them are the same on all
replicas; these come back as one value, the others as one for each replica.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax

from lockstep._engine.step import zero1
from lockstep._engine.step.jaxprs import name_of
from lockstep._engine.step.replicas import Replicas
from lockstep._nest import structure
from lockstep._types import PyTree
from lockstep.distribute._again import Again
from lockstep.distribute._arguments import Fixed, Numbers, Sorted
from lockstep.distribute._context import running_scope
from lockstep.distribute._options import RunOptions, run_options
from lockstep.distribute._program import Program
from lockstep.distribute._values import is_variable
from lockstep.errors import ArgumentError, UnsupportedError

# So many functions are remembered; those not called for the longest time are compiled anew.
_MOST = 256  # A loop that makes a function in each iteration would otherwise keep as many programs.


class Runner:
    """Runs functions on the replicas of a strategy."""

    def __init__(self, strategy: Any, replicas: Replicas) -> None:
        self._strategy = strategy
        self._replicas = replicas
        self._programs: OrderedDict[Any, tuple[Program, Numbers]] = OrderedDict()
        self._held: Any = None

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: Any, options: Any) -> Any:
        """Runs `function(*args, **kwargs)` on each replica."""
        self._demand_outermost(function)
        asked = run_options(options)
        given = check_call(function, args, kwargs)
        runtime = self._replicas.runtime
        if runtime.is_alone:
            return self._run(function, given, asked)[0]
        # A dispatch returns at once, and whoever reads a result waits outside of any call: launch has the heartbeat
        # count that wait, so that a worker that has gone is named there, too.
        return runtime.launch(f"strategy.run({name_of(function)})", partial(self._run, function, given, asked))

    def _demand_outermost(self, function: Callable[..., Any]) -> None:
        """Raises `UnsupportedError` in what another strategy compiles: its variables would be constants there."""
        around = running_scope()
        if around is not None and around.strategy is not self._strategy:
            raise UnsupportedError(
                "strategy.run is called outside of what another strategy compiles. Received: "
                f"strategy.run({name_of(function)}) in a function that {type(around.strategy).__name__} is tracing. "
                "Call it from Python."
            )

    def _run(self, function: Callable[..., Any], given: PyTree, asked: RunOptions) -> tuple[Any, Any]:
        """Returns what the function does, and an array of that, if there is one."""
        leaves, structure = jax.tree.flatten(given)
        found = Sorted(leaves, self._replicas)
        # Functions are compared as Python does: a bound method is another object at each access, and equal to the last.
        key = (Fixed(function), structure, found.key, asked)
        program, numbers = self._programs.get(key) or self._new(key, function, given, found, asked)
        self._programs.move_to_end(key)
        arrays = numbers.given(found)
        while True:
            try:
                # In each round: the last one may have met variables that are not on the replicas yet.
                values = self.held.values(program.variables) if program.variables else ()
                packed = program(arrays, values, found.shapes)
                return program.unpack(packed, self._held), packed.last
            # With each time it knows more: variables, which gradients to sum, residuals; so it ends.
            except Again:
                continue

    @property
    def held(self) -> Any:
        """The values of Keras variables on the replicas."""
        if self._held is None:
            # Keras is imported only where a function uses variables.
            from lockstep.distribute._held import Held

            zero1.refuse(
                self._replicas,
                "Keras variables in strategy.run, where each replica updates whole variables by itself",
                "Train with model.fit or model.train_on_batch, or write the step as a function of its state for "
                "lockstep.training.Program(step, strategy, optimizer_state=...); or make the strategy without it.",
            )
            self._held = Held(self._replicas)
        return self._held

    def own_values(self, value: PyTree) -> Any:
        """Returns the values of a Keras variable of which each replica has its own, as `PerReplica`; else `value`."""
        found = self.held.own_values(value) if is_variable(value) else None
        return value if found is None else found

    def _new(
        self, key: Any, function: Any, given: tuple[Any, Any], found: Sorted, options: RunOptions
    ) -> tuple[Program, Numbers]:
        numbers = Numbers(found)
        donated = _donated_leaves(given[0], options)
        # With the order of keys of this first call, which stays, as with tf.function: another order compiles nothing.
        program = Program(self._strategy, self._replicas, function, structure(given), found.key, numbers, donated)
        self._programs[key] = program, numbers
        if len(self._programs) > _MOST:
            self._programs.popitem(last=False)
        return program, numbers


def check_call(function: Any, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a call of `run`; raises `ArgumentError` if they are none."""
    if not callable(function):
        raise ArgumentError(f"strategy.run needs a function. Received: {function!r}. Example: run(step, args=(batch,))")
    if not isinstance(args, (tuple, list)):
        raise ArgumentError(
            f"args must be a tuple of positional arguments. Received: a {type(args).__name__}. Example: args=(batch,)"
        )
    if kwargs is not None and not (isinstance(kwargs, Mapping) and all(isinstance(name, str) for name in kwargs)):
        raise ArgumentError(
            f"kwargs must be a dict of arguments by their names. Received: {kwargs!r}. Example: "
            'kwargs={"training": True}'
        )
    return tuple(args), dict(kwargs or {})


def _donated_leaves(args: Sequence[Any], options: RunOptions) -> frozenset[int]:
    """Returns the indices of the leaves of arguments that are donated."""
    wrong = [n for n in options.donate_argnums if n >= len(args)]
    if wrong:
        raise ArgumentError(
            f"donate_argnums must name positional arguments. Received: {wrong} for {len(args)} arguments."
        )
    # Leaves are numbered through args first, and then kwargs, which cannot be given away.
    ends = [0]
    for arg in args:
        ends.append(ends[-1] + len(jax.tree.leaves(arg)))
    return frozenset(i for n in options.donate_argnums for i in range(ends[n], ends[n + 1]))
