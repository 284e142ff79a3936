"""A traced step that is compiled in parts: a record gives several programs, each without what it does not need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

from lockstep._engine.step import backends
from lockstep._engine.step.compiler import Compiler
from lockstep._engine.step.jaxprs import open_jaxpr, select_results
from lockstep._types import Jaxpr, PyTree

Step = Callable[..., PyTree]
# Methods of Keras' classes are replaced while a step is traced, so that one is at a time.
_tracing = threading.RLock()


@dataclass(frozen=True)
class Traced:
    """A function of a structure of arrays that was traced once.

    Attributes:
        jaxpr: What it computes, of flat arguments; closed.
        arguments: The structure of its arguments.
        results: The structure of its results.
    """

    jaxpr: Jaxpr
    arguments: Any
    results: Any

    @classmethod
    def of(cls, function: Step, *shapes: PyTree) -> Traced:
        """Traces a function for arrays of these shapes and dtypes."""
        with _tracing:
            return cls._of(function, *shapes)

    @classmethod
    def _of(cls, function: Step, *shapes: PyTree) -> Traced:
        backends.begin_program()
        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(np.shape(a), a.dtype), shapes)
        jaxpr, results = jax.make_jaxpr(function, return_shape=True)(*shapes)
        return cls(jaxpr, jax.tree.structure(shapes), jax.tree.structure(results))

    def part(self, select: Callable[[PyTree], PyTree], compiler: Compiler) -> Part:
        """Returns the program of some of the results alone.

        Args:
            select: Takes the structure of the results, and returns one of those that are wanted.
            compiler: Compiles it.
        """
        wanted = select(jax.tree.unflatten(self.results, list(range(self.results.num_leaves))))
        numbers, structure = jax.tree.flatten(wanted)
        forwards = self.forwards()
        if all(number in forwards for number in numbers):
            # Nothing is computed, such as where ids are an input of the model: a call of XLA would cost 50 us.
            used = [forwards[number] for number in numbers]
            return Part(lambda *values: values, used, self.arguments, structure, select_results(self.jaxpr, numbers)[0])
        closed, kept = select_results(self.jaxpr, numbers)

        def run(*values: Any) -> list[Any]:
            backends.begin_program()
            return jaxpr_as_fun(closed)(*values)

        return Part(compiler.compile(run, (), ()), kept, self.arguments, structure, closed)

    def forwards(self) -> dict[int, int]:
        """Returns the results that are arguments, by their numbers."""
        body = open_jaxpr(self.jaxpr)
        places = {id(v): i for i, v in enumerate(body.invars)}
        return {i: places[id(v)] for i, v in enumerate(body.outvars) if id(v) in places}


@dataclass(frozen=True)
class Part:
    """A compiled part of a traced function.

    Attributes:
        run: The compiled program, of flat arguments.
        used: The numbers of the arguments that it takes.
        arguments: The structure of all arguments.
        results: The structure of its results.
        jaxpr: What it computes.
    """

    run: Callable[..., Sequence[Any]]
    used: Sequence[int]
    arguments: Any
    results: Any
    jaxpr: Jaxpr

    def uses(self) -> PyTree:
        """Returns, in the structure of the arguments, which of them are used."""
        used = set(self.used)
        return jax.tree.unflatten(self.arguments, [i in used for i in range(self.arguments.num_leaves)])

    def __call__(self, *arguments: PyTree) -> PyTree:
        """Runs it; arguments that are not used may be anything, such as shapes."""
        return self.of_leaves(jax.tree.leaves(arguments))

    def of_leaves(self, leaves: Sequence[Any]) -> PyTree:
        """Runs it, given all arguments one after the other: to flatten what was just put together costs 20 us."""
        return jax.tree.unflatten(self.results, list(self.run(*[leaves[i] for i in self.used])))


def differences(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """Returns what a step has added to variables."""
    return [now - was if now.dtype != bool else now for was, now in zip(before, after, strict=True)]
