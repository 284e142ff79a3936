"""Derivatives of a record, from its end to its beginning, each stretch of operations compiled once."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._types import Array
from lockstep.compat.tensorflow._tape import recording
from lockstep.compat.tensorflow._tape.entry import Entry

# A stretch has so many operations at most: XLA's time grows faster than a program, and long loops are equal stretches.
_STRETCH = 256
_MOST = 1024
_programs: OrderedDict[Any, Callable[..., Any]] = OrderedDict()


class Path:
    """The entries that lead from sources to targets.

    Args:
        entries: A record, in its order.
        targets: Arrays.
        sources: Of each source, the arrays that stand for it.

    Attributes:
        entries: Those that derivatives pass through.
        needed: The identities of what derivatives are needed by.
    """

    def __init__(self, entries: Sequence[Entry], targets: Sequence[Any], sources: Iterable[Sequence[Any]]) -> None:
        reached = {id(array) for arrays in sources for array in arrays}
        passed: list[tuple[Entry, list[int]]] = []
        for entry in entries:
            inside = [i for i, value in enumerate(entry.inputs) if id(value) in reached]
            if not inside:
                continue
            found = [n for n, edges in enumerate(entry.edges) if any(i in edges for i in inside)]
            if found:
                reached.update(id(entry.results[n]) for n in found)
                passed.append((entry, found))
        self.needed = {id(target) for target in targets} & reached
        self.entries: list[Entry] = []
        for entry, found in reversed(passed):
            out = [n for n in found if id(entry.results[n]) in self.needed]
            if not out:
                continue
            self.entries.append(entry)
            by = {i for n in out for i in entry.edges[n]}
            self.needed.update(id(entry.inputs[i]) for i in by if id(entry.inputs[i]) in reached)
        self.entries.reverse()


class Derivatives:
    """Takes derivatives along a path.

    Attributes:
        found: The derivatives by arrays, by their identity.
    """

    def __init__(self, path: Path, lead: bool = False) -> None:
        self._path = path
        # Whether derivatives have one dimension more, along which they are taken independently.
        self._lead = lead
        self.found: dict[int, Array] = {}

    def add(self, array: Any, value: Any) -> None:
        """Adds a derivative by an array."""
        known = self.found.get(id(array))
        self.found[id(array)] = value if known is None else known + value

    def run(self, keep: set[int]) -> None:
        """Follows the path back.

        Args:
            keep: Identities of the arrays whose derivatives are asked for.
        """
        end = len(self._path.entries)
        while end:
            entry = self._path.entries[end - 1]
            if entry.pull is not None:
                self._pull(entry, keep)
                end -= 1
                continue
            start = end - 1
            while start and self._path.entries[start - 1].pull is None and end - start < _STRETCH:
                start -= 1
            self._stretch(start, end, keep)
            end = start

    def _pull(self, entry: Entry, keep: set[int]) -> None:
        given = [self.found.get(id(r)) for r in entry.results]
        for result in entry.results:
            if id(result) not in keep:
                self.found.pop(id(result), None)
        assert entry.pull is not None
        zeros = [jnp.zeros_like(r) if g is None else g for r, g in zip(entry.results, given, strict=True)]
        if self._lead:
            count = next(g.shape[0] for g in given if g is not None)
            zeros = [
                jnp.broadcast_to(z, (count, *z.shape)) if g is None else g for z, g in zip(zeros, given, strict=True)
            ]
            rows = [entry.pull(*(z[i] for z in zeros)) for i in range(count)]
            pulled = [None if column[0] is None else jnp.stack(column) for column in zip(*rows, strict=True)]
        else:
            pulled = entry.pull(*zeros)
        for array, value in zip(entry.inputs, pulled, strict=True):
            if value is not None and id(array) in self._path.needed:
                self.add(array, value)

    def _stretch(self, start: int, end: int, keep: set[int]) -> None:
        stretch = _Stretch(self._path.entries[start:end], self._path.needed, self.found, keep)
        program = stretch.program(self._lead)
        results = program(stretch.values, [self.found[i] for i in stretch.given])
        for i in stretch.given:
            if i not in keep:
                del self.found[i]
        for i, value in zip(stretch.wanted, results, strict=True):
            if value is not None:
                self.found[i] = value


class _Stretch:
    """Operations, one after the other, in the form that a program is made of and remembered by."""

    def __init__(self, entries: Sequence[Entry], needed: set[int], found: dict[int, Array], keep: set[int]) -> None:
        slots: dict[int, int] = {}
        self.values: list[Any] = []
        places: list[int] = []
        steps: list[Any] = []
        made: set[int] = set()
        seen: dict[int, None] = {}
        operations: dict[int, Any] = {}
        for entry in entries:
            ins = []
            for value in entry.inputs:
                slot = slots.setdefault(id(value), len(slots))
                if slot not in operations and id(value) not in seen:
                    seen[id(value)] = None
                    self.values.append(value)
                    places.append(slot)
                ins.append(slot)
            # A result that is one of the inputs has its derivative already.
            outs = tuple(
                (n, slots.setdefault(id(r), len(slots)))
                for n, r in enumerate(entry.results)
                if id(r) in needed and entry.edges[n] and not any(r is v for v in entry.inputs)
            )
            made.update(id(entry.results[n]) for n, _ in outs)
            edges = {i for n, _ in outs for i in entry.edges[n]}
            by = tuple(sorted(i for i in edges if id(entry.inputs[i]) in needed))
            steps.append((entry.operation, tuple(ins), outs, by))
        by_inputs = {id(e.inputs[i]): None for e, (_, _, _, by) in zip(entries, steps, strict=True) for i in by}
        self.given = [i for i in found if i in made or i in by_inputs]
        self.wanted = [i for i in by_inputs if i not in made or i in keep]
        self.wanted += [i for i in self.given if i in keep and i not in by_inputs]
        self._steps = steps
        self._places = tuple(places)
        self._given = tuple(slots[i] for i in self.given)
        self._wanted = tuple(slots[i] for i in self.wanted)

    def program(self, lead: bool) -> Callable[..., Any]:
        """Returns the function from values and derivatives to derivatives, compiled where nothing around it is."""
        if recording.is_compiling():
            return self._function(lead)
        steps = tuple((operation.number, ins, outs, by) for operation, ins, outs, by in self._steps)
        key = (steps, self._places, self._given, self._wanted, lead)
        found = _programs.get(key)
        if found is None:
            found = _programs[key] = jax.jit(self._function(lead))
            if len(_programs) > _MOST:
                _programs.popitem(last=False)
        return found

    def _function(self, lead: bool) -> Callable[..., Any]:
        pull = functools.partial(_pull_back, self._steps, self._places, self._given, self._wanted)
        return jax.vmap(pull, (None, 0)) if lead else pull


def _pull_back(
    steps: Sequence[Any],
    places: Sequence[int],
    given: Sequence[int],
    wanted: Sequence[int],
    values: Sequence[Any],
    derivatives: Sequence[Any],
) -> list[Any]:
    """Returns derivatives by what steps were given, from those by what they computed."""
    at = dict(zip(places, values, strict=True))
    found: dict[int, Any] = dict(zip(given, derivatives, strict=True))
    for operation, ins, outs, by in reversed(steps):
        own = [found.get(slot) for _, slot in outs]
        if all(value is None for value in own):
            continue
        inputs = [at[slot] for slot in ins]

        def compute(
            *chosen: Any, operation: Any = operation, inputs: Any = inputs, by: Any = by, outs: Any = outs
        ) -> Any:
            full = list(inputs)
            for i, value in zip(by, chosen, strict=True):
                full[i] = value
            results = operation.call(full)
            return [results[n] for n, _ in outs]

        results, pull = jax.vjp(compute, *(inputs[i] for i in by))
        own = [jnp.zeros_like(r) if g is None else jnp.asarray(g, r.dtype) for r, g in zip(results, own, strict=True)]
        for i, value in zip(by, pull(own), strict=True):
            known = found.get(ins[i])
            found[ins[i]] = value if known is None else known + value
    return [found.get(slot) for slot in wanted]
