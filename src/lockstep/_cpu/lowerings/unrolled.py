"""Steps that a program repeats for each part of an array: computed for all parts at once.

`keras.layers.TimeDistributed` calls its layer for one moment after the other, and so do programs with a loop over the
parts of an array. Each operation is small, and there are as many of them as parts. Here the parts of an array are a
pack, in their order; equations that do the same to each part of a pack become one, whose results are a pack again; and
what parts are stacked to, or their sum, is made of the pack as it is.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend.core import Literal

from lockstep._cpu.lowerings.equations import Flow, call_instead, is_plain
from lockstep._cpu.lowerings.packs import (
    LARGE,
    MOVES,
    Pack,
    Sums,
    compute_packs,
    contract,
    find_parts,
    lay,
    may_be_packed,
    padded_axis,
)
from lockstep._engine.step.jaxprs import (
    evaluate_equation,
    is_jaxpr,
    open_jaxpr,
    variables,
    with_equations,
    writer_of,
)
from lockstep._types import Jaxpr, JaxprAtom, JaxprEquation

# Functions among an equation's parameters that are for differentiation, which has been done.
_FOR_DIFFERENTIATION = frozenset(("jvp", "jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd", "fwd_jaxpr_thunk", "bwd"))


def pack_parts(jaxpr: Jaxpr) -> Jaxpr:
    """Returns a program, closed or not, with packs; the same object if none of its large operations is repeated."""
    body = open_jaxpr(jaxpr)
    if not find_parts(body, Flow.of(body)) or any(eqn.effects for eqn in body.eqns):
        return jaxpr
    inputs = dict.fromkeys([*body.constvars, *body.invars])
    results = [v for v in dict.fromkeys(variables(body.outvars)) if v not in inputs]
    place = body.eqns[0].replace(invars=list(inputs), outvars=results)
    short, names = _without_repetitions(body)
    plan = _Plan(short)
    if not plan.has_large or not is_plain(place):
        return jaxpr

    def compute(*arguments: jax.Array) -> list[jax.Array]:
        values = _Values(plan.packed, dict(zip(inputs, arguments, strict=True)))
        for act in plan.actions:
            act(values)
        return [values.of(names.get(v, v)) for v in results]

    return with_equations(jaxpr, [call_instead(place, compute)])


def _without_repetitions(body: Any) -> tuple[Any, dict[Any, Any]]:
    """Leaves out equations that do the same as an earlier one: for each part, what does not depend on it.

    Returns:
        The jaxpr, and which variables stand in it for those of the equations that it lacks.
    """
    names: dict[Any, Any] = {}
    known: dict[Any, JaxprEquation] = {}
    kept: list[JaxprEquation] = []
    for given in body.eqns:
        atoms = [a if isinstance(a, Literal) else names.get(a, a) for a in given.invars]
        eqn = given.replace(invars=atoms)
        operands = tuple((str(a.aval), str(a.val)) if isinstance(a, Literal) else a for a in atoms)
        earlier = eqn
        if not any(map(is_jaxpr, eqn.params.values())):
            # A parameter may have no hash.
            with contextlib.suppress(TypeError):
                earlier = known.setdefault((eqn.primitive, operands, tuple(eqn.params.items())), eqn)
        if earlier is eqn:
            kept.append(eqn)
        else:
            names.update(zip(eqn.outvars, earlier.outvars, strict=True))
    outvars = [a if isinstance(a, Literal) else names.get(a, a) for a in body.outvars]
    return body.replace(eqns=kept, outvars=outvars), names


class _Values:
    """Values of variables, and of packs as arrays whose first axis is that of the parts.

    Args:
        packed: The pack that a variable is a part of, and which.
        known: Values of the program's inputs.
    """

    def __init__(self, packed: Mapping[Any, tuple[Pack, int]], known: dict[Any, Any]) -> None:
        self._packed = packed
        self._known = known
        self._packs: dict[Pack, jax.Array] = {}
        # What computes packs that are seldom needed.
        self._makers: dict[Pack, Callable[[_Values], None]] = {}

    def set(self, variable: Any, value: Any) -> None:
        self._known[variable] = value

    def set_pack(self, pack: Pack, value: jax.Array) -> None:
        self._packs[pack] = value

    def set_maker(self, pack: Pack, make: Callable[[_Values], None]) -> None:
        """Has a pack be computed when it is first needed."""
        self._makers[pack] = make

    def of(self, atom: JaxprAtom) -> Any:
        if isinstance(atom, Literal):
            return atom.val
        if atom not in self._known:
            pack, number = self._packed[atom]
            self._known[atom] = self.pack(pack)[number]
        return self._known[atom]

    def pack(self, pack: Pack) -> jax.Array:
        if pack not in self._packs:
            self._makers[pack](self)
        return self._packs[pack]


class _Plan:
    """The packs of a program, and what to do, one after the other.

    Args:
        body: A jaxpr that is not closed.

    Attributes:
        packed: The pack that a variable is a part of, and which.
        actions: What to do with the values.
        has_large: Whether an operation that is worth it is computed for all parts at once.
    """

    def __init__(self, body: Any) -> None:
        self.packed: dict[Any, tuple[Pack, int]] = {}
        self.actions: list[Callable[[_Values], None]] = []
        self.has_large = False
        self._flow = Flow.of(body)
        self._sums = Sums(body, self._flow)
        self._parts = find_parts(body, self._flow)
        # Packs of products of which only the sum is needed, moved or not.
        self._summed: dict[Pack, tuple[JaxprEquation, list[Pack]]] = {}
        # The last additions of sums that are reductions of packs, and pads of which these make no use. Then equations
        # that have been planned.
        self._reduced: set[int] = set()
        self._done: set[int] = set()
        self._texts: dict[int, str] = {}
        for eqn in body.eqns:
            if id(eqn) not in self._done:
                self._add(eqn)

    def _add(self, eqn: JaxprEquation) -> None:
        if id(eqn) in self._parts:
            self._take_parts(*self._parts[id(eqn)])
        elif not (self._stack(eqn) or self._group(eqn) or self._sum(eqn)):
            # Known when the plan is complete.
            self._run(eqn, lambda: id(eqn) in self._reduced)

    def _new_pack(self, parts: Sequence[Any]) -> Pack:
        pack = Pack(tuple(parts))
        self.packed.update({part: (pack, number) for number, part in enumerate(parts)})
        return pack

    def _run(self, eqn: JaxprEquation, is_left_out: Callable[[], bool] = lambda: False) -> None:
        def run(values: _Values) -> None:
            if is_left_out():
                return
            results = evaluate_equation(eqn, [values.of(atom) for atom in eqn.invars])
            for variable, value in zip(eqn.outvars, results, strict=True):
                values.set(variable, value)

        self.actions.append(run)

    def _take_parts(self, source: Any, axis: int, parts: Sequence[Any], equations: Sequence[JaxprEquation]) -> None:
        pack = self._new_pack(parts)
        self._done.update(map(id, equations))
        self.actions.append(lambda values: values.set_pack(pack, jax.numpy.moveaxis(values.of(source), axis, 0)))

    def _stack(self, eqn: JaxprEquation) -> bool:
        """Makes an array of a pack, if an equation stacks its parts."""
        if eqn.primitive is not lax.stack_p:
            return False
        atoms = tuple(eqn.invars)
        pack, _ = self.packed.get(atoms[0], (None, 0)) if not isinstance(atoms[0], Literal) else (None, 0)
        if pack is None or pack.parts != atoms:
            return False
        self.actions.append(
            lambda values: values.set(eqn.outvars[0], jax.numpy.moveaxis(values.pack(pack), 0, eqn.params["axis"]))
        )
        return True

    def _group(self, eqn: JaxprEquation) -> bool:
        """Packs the results of all equations that do to the other parts what this one does to its own."""
        if not may_be_packed(eqn):
            return False
        atoms = eqn.invars
        places = [None if isinstance(atom, Literal) else self.packed.get(atom) for atom in atoms]
        pack, number = next((place for place in places if place is not None), (None, 0))
        if pack is None:
            return False
        members: list[JaxprEquation] = []
        for other, part in enumerate(pack.parts):
            member = eqn if other == number else self._member(eqn, atoms, part, number, other)
            if member is None:
                return False
            members.append(member)
        packs = [place[0] if place is not None and place[1] == number else None for place in places]
        results = list(zip(*(member.outvars for member in members), strict=True))
        is_product = eqn.primitive in LARGE and None not in packs
        is_summed = is_product and self._sums.are_terms(results[0])
        # Kernels of their own for each part would be a convolution in groups, which is slow.
        if eqn.primitive is lax.conv_general_dilated_p and is_product and not is_summed:
            return False
        self.has_large = self.has_large or eqn.primitive in LARGE
        self._done.update(map(id, members))
        made = [self._new_pack(parts) for parts in results]
        given = [p for p in packs if p is not None]
        is_summed = is_summed or (eqn.primitive in MOVES and given[0] in self._summed)
        if is_summed:
            self._summed[made[0]] = eqn, given

        def compute(values: _Values) -> None:
            operands = [values.of(a) if p is None else values.pack(p) for a, p in zip(atoms, packs, strict=True)]
            computed = compute_packs(eqn, operands, [p is not None for p in packs])
            for pack, value in zip(made, computed, strict=True):
                values.set_pack(pack, value)

        # What only the sum is needed of is computed if a part is needed after all.
        self.actions.append(lambda values: values.set_maker(made[0], compute) if is_summed else compute(values))
        return True

    def _member(
        self, eqn: JaxprEquation, atoms: Sequence[Any], part: Any, number: int, other: int
    ) -> JaxprEquation | None:
        """Returns the equation that does to another part what an equation does to its own."""
        for reader in self._flow.readers[part]:
            theirs = reader.invars
            if (
                reader.primitive is eqn.primitive
                and id(reader) not in self._done
                and len(theirs) == len(atoms)
                and [v.aval for v in reader.outvars] == [v.aval for v in eqn.outvars]
                and all(self._corresponds(*pair, number, other) for pair in zip(atoms, theirs, strict=True))
                and self._text(reader) == self._text(eqn)
            ):
                return reader
        return None

    def _corresponds(self, mine: JaxprAtom, theirs: JaxprAtom, number: int, other: int) -> bool:
        """Returns whether two operands are the same, or the parts of the same pack with these numbers."""
        if isinstance(mine, Literal) or isinstance(theirs, Literal):
            literals = [a for a in (mine, theirs) if isinstance(a, Literal)]
            return len({(str(a.aval), str(a.val)) for a in literals}) == 1 and len(literals) == 2
        place = self.packed.get(mine)
        if place is None or place[1] != number:
            return mine is theirs
        return theirs is place[0].parts[other]

    def _text(self, eqn: JaxprEquation) -> str:
        """Returns an equation's parameters as text."""
        if id(eqn) not in self._texts:
            params = {name: str(value) for name, value in eqn.params.items() if name not in _FOR_DIFFERENTIATION}
            self._texts[id(eqn)] = str(sorted(params.items()))
        return self._texts[id(eqn)]

    def _sum(self, eqn: JaxprEquation) -> bool:
        """Reduces packs over their parts, if an equation is the last of the additions of these."""
        last = self._sums.last.get(id(eqn))
        if last is not None:
            self._run(eqn, lambda: id(last) in self._reduced)
            return True
        if id(eqn) not in self._sums.terms:
            return False
        terms = _Terms(self._sums.terms[id(eqn)])
        summed = [pack for pack in self._packs_of(terms.atoms) if terms.remove(pack.parts)]
        laid, padded = self._take_laid(terms)
        if not summed and not laid:
            return False
        self._reduced.add(id(eqn))
        self._reduced.update(id(self._flow.writers[atom]) for atom in padded)
        (result,), rest = eqn.outvars, terms.atoms

        def add(values: _Values) -> None:
            parts = [self._sum_of(pack, values) for pack in summed]
            parts += [lay(values.pack(pack), axis) for pack, axis in laid]
            total, *others = [*parts, *map(values.of, rest)]
            for other in others:
                total = lax.add(total, other)
            values.set(result, total)

        self.actions.append(add)
        return True

    def _sum_of(self, pack: Pack, values: _Values) -> jax.Array:
        if pack not in self._summed:
            return values.pack(pack).sum(0)
        eqn, operands = self._summed[pack]
        if eqn.primitive in MOVES:
            return evaluate_equation(eqn, [self._sum_of(operands[0], values)])[0]
        return contract(eqn, *map(values.pack, operands))

    def _packs_of(self, atoms: Sequence[Any]) -> Sequence[Pack]:
        """Returns the packs that variables are parts of, each once."""
        return list(dict.fromkeys(self.packed[atom][0] for atom in atoms if atom in self.packed))

    def _take_laid(self, terms: _Terms) -> tuple[list[tuple[Pack, int]], list[Any]]:
        """Takes packs from terms that are laid beside each other: all parts, each padded with zeros to all places.

        Returns:
            The packs with the axes along which they are laid, and what has been taken away.
        """
        padded: dict[tuple[Pack, int], dict[int, Any]] = defaultdict(dict)
        for atom in terms.atoms:
            pad = writer_of(atom, self._flow.writers)
            axis = None if pad is None else padded_axis(pad)
            if pad is None or axis is None or (part := pad.invars[0]) not in self.packed:
                continue
            pack, number = self.packed[part]
            is_alone = len(self._flow.readers_alone(atom)) == 1
            if is_alone and pad.params["padding_config"][axis][0] == number and _size(atom, axis) == len(pack.parts):
                padded[pack, axis][number] = atom
        laid: list[tuple[Pack, int]] = []
        taken: list[Any] = []
        for key, atoms in padded.items():
            if len(atoms) == len(key[0].parts) and terms.remove(list(atoms.values())):
                laid.append(key)
                taken += atoms.values()
        return laid, taken


def _size(atom: JaxprAtom, axis: int) -> int:
    return atom.aval.shape[axis]


class _Terms:
    """Terms of a sum, some of them more than once."""

    def __init__(self, atoms: Sequence[Any]) -> None:
        self._counts: dict[Any, int] = defaultdict(int)
        for atom in atoms:
            self._counts[atom] += 1

    @property
    def atoms(self) -> list[Any]:
        return [atom for atom, count in self._counts.items() for _ in range(count)]

    def remove(self, atoms: Sequence[Any]) -> bool:
        """Takes each of these away once; returns whether all were there."""
        if not all(self._counts.get(atom) for atom in atoms):
            return False
        for atom in atoms:
            self._counts[atom] -= 1
        return True
