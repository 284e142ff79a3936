"""Plans a program: how each of its values lies on the replicas, and what is exchanged for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._cpu.partitioner.flat import CONTROL, Constant, Equation, Flat, Value, flatten
from lockstep._cpu.partitioner.layout import PARTIAL, REPLICATED, Layout, NoRule, own_block, size_of
from lockstep._cpu.partitioner.rules import contractions, elementwise, indexing, loops, random, shapes
from lockstep._cpu.partitioner.rules.base import LINEAR, RULES, SLICEABLE, Call, Decision
from lockstep._cpu.partitioner.schedule import Stage, Step, make_stages, run_plan
from lockstep._engine.step.jaxprs import bind
from lockstep._engine.step.reduction import Reduction

# Imported for the rules that they register.
_FAMILIES = (contractions, elementwise, indexing, loops, random, shapes)
# What a pass learns for the next one settles in two or three; a plan is sound whatever it was hinted.
_PASSES = 4


@dataclass(slots=True)
class _Hints:
    """Results of a pass over a program that the next one takes into account.

    Attributes:
        sums: Values to be added up where they are computed, because somebody needs them so.
        slices: Equations whose results everybody wants divided along one axis, and that axis.
    """

    sums: set[Value] = field(default_factory=set[Value])
    slices: dict[Equation, int] = field(default_factory=dict[Equation, int])


@dataclass(slots=True, eq=False)
class Plan:
    """A program divided over replicas.

    Attributes:
        layouts: The layout in which each value is computed.
        outs: The layout of each output.
        gathered: Bytes that are collected from all replicas.
        repeated: Bytes of divided values whose work every replica does as a whole.
        calls: How often sums are taken.
    """

    flat: Flat
    planner: Planner
    layouts: dict[Value, Layout]
    outs: list[Layout]
    stages: list[Stage]
    gathered: int
    repeated: int
    calls: int

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Computes this replica's outputs from its inputs; inside of `shard_map`."""
        planner = self.planner
        return run_plan(self.flat, self.layouts, self.stages, self.outs, values, planner.count, planner.reduction)


class Planner:
    """Plans programs, and the bodies of their loops, for a number of replicas.

    Args:
        count: How many replicas there are.
        reduction: How sums over them are taken.
    """

    def __init__(self, count: int, reduction: Reduction) -> None:
        self.count = count
        self.reduction = reduction

    def body(self, equation: Equation, name: Any) -> Flat:
        """Returns a loop's body, by the name of the parameter that holds it, or its name and number."""
        # A step is planned several times, and a loop in it with each: its body is flattened once.
        if name not in equation.bodies:
            jaxpr = equation.params[name] if isinstance(name, str) else equation.params[name[0]][name[1]]
            equation.bodies[name] = flatten(jaxpr)
        return equation.bodies[name]

    def plan_body(
        self, equation: Equation, name: Any, layouts: Sequence[Layout], wanted: Sequence[Layout | None]
    ) -> Plan:
        """Plans a loop's body."""
        # Layouts are compared by identity, so the key costs little to hash.
        key = (name, tuple(layouts), tuple(wanted))
        if key not in equation.plans:
            equation.plans[key] = self.plan_program(self.body(equation, name), layouts, wanted)
        return equation.plans[key]

    def plan_program(self, flat: Flat, layouts: Sequence[Layout], wanted: Sequence[Layout | None]) -> Plan:
        """Plans a program for layouts of its inputs and wanted ones of its outputs, `None` to leave one as it comes.

        Raises:
            NoRule: If it cannot be divided.
        """
        # Each pass plans the whole program anew: where a sum is taken decides how all that follows lies.
        hints = _Hints()
        for last in range(_PASSES - 1, -1, -1):
            attempt = _Pass(self, flat, layouts, wanted, hints)
            learned = attempt.next_hints()
            # A pass that learns nothing new has used all there is to know. Hints only grow, so this ends.
            if not last or (learned.sums <= hints.sums and learned.slices.keys() <= hints.slices.keys()):
                return attempt.make_plan()
            hints = _Hints(hints.sums | learned.sums, hints.slices | learned.slices)
        raise AssertionError


class _Pass:
    """A pass over a program, in its order."""

    def __init__(
        self, planner: Planner, flat: Flat, layouts: Sequence[Layout], wanted: Sequence[Layout | None], hints: _Hints
    ) -> None:
        self._planner = planner
        self._flat = flat
        self._hints = hints
        self._made: dict[Value, Layout] = dict(zip(flat.inputs, layouts, strict=True))
        # How a value is taken by others: sums that are taken where they are computed are replicated from there on.
        self._seen: dict[Value, Layout] = dict(self._made)
        self._steps = [Step(equation, self._decide(equation)) for equation in flat.equations]
        self._outs = [self._lies(v) if w is None else w for v, w in zip(flat.outputs, wanted, strict=True)]

    def _lies(self, value: Value) -> Layout:
        return REPLICATED if isinstance(value, Constant) else self._seen[value]

    def _decide(self, equation: Equation) -> Decision:
        seen = self._seen
        layouts = [seen.get(value, REPLICATED) for value in equation.inputs]
        decision = decide(Call(equation, layouts, self._planner.count, self._hints.slices.get(equation), self._planner))
        for value, layout in zip(equation.outputs, decision.outs, strict=True):
            self._made[value] = layout
            seen[value] = REPLICATED if layout == PARTIAL and value in self._hints.sums else layout
        return decision

    def next_hints(self) -> _Hints:
        """Returns hints for the next pass."""
        return _Hints(self._sums(), self._slices())

    def _all_needs(self) -> list[tuple[Value, Layout]]:
        pairs = [p for s in self._steps for p in zip(s.equation.inputs, s.decision.needs, strict=True)]
        return [*pairs, *zip(self._flat.outputs, self._outs, strict=True)]

    def _sums(self) -> set[Value]:
        """Returns the sums that somebody needs, each as early as it is no larger."""
        # What is computed of a sum then is computed as on one device, once and not of each summand.
        made = self._made
        due = {v for v, need in self._all_needs() if need != PARTIAL and made.get(v) == PARTIAL}
        for step in reversed(self._steps):
            outputs = step.equation.outputs
            if len(outputs) == 1 and outputs[0] in due and step.equation.primitive.name not in CONTROL:
                source = self._sole_sum(step)
                if source is not None and size_of(source.aval) <= size_of(outputs[0].aval):
                    due.discard(outputs[0])
                    due.add(source)
        # Each equation counts once for a value, also one that takes the same value twice.
        users: dict[Value, list[Equation]] = {}
        for equation in self._flat.equations:
            for value in dict.fromkeys(equation.inputs):
                users.setdefault(value, []).append(equation)

        def as_used(value: Value) -> Value:
            # Gradients of kernels are often transposed at once. XLA makes a product either way at no cost, but to
            # transpose a sum takes time: so the transposed product is summed.
            user = users.get(value, ())
            if len(user) != 1 or user[0].primitive is not lax.transpose_p or value in self._flat.outputs:
                return value
            (transposed,) = user[0].outputs
            return transposed if made[transposed] == PARTIAL else value

        return {as_used(value) for value in due - set(self._flat.inputs)}

    def _sole_sum(self, step: Step) -> Value | None:
        """Returns the one input that is a sum not yet taken, if it is computed here."""
        inputs = zip(step.equation.inputs, step.decision.needs, strict=True)
        sums = [v for v, need in inputs if need == PARTIAL and not v.is_zero]
        if len(sums) != 1 or sums[0] in self._flat.inputs or self._made.get(sums[0]) != PARTIAL:
            return None
        return sums[0]

    def _slices(self) -> dict[Equation, int]:
        """Returns equations computed whole only to be sliced everywhere, which can be computed in slices."""
        wanted: dict[Value, Layout] = {}
        for value, need in zip(self._flat.outputs, self._outs, strict=True):
            _want(wanted, value, need)
        slices: dict[Equation, int] = {}
        for step in reversed(self._steps):
            needs = step.decision.needs
            sliced = self._try_slice(step, wanted)
            if sliced is not None:
                axis, needs = sliced
                slices[step.equation] = axis
            for value, need in zip(step.equation.inputs, needs, strict=True):
                _want(wanted, value, need)
        return slices

    def _try_slice(self, step: Step, wanted: Mapping[Value, Layout]) -> tuple[int, Sequence[Layout]] | None:
        equation = step.equation
        if equation.primitive.name not in SLICEABLE or any(layout != REPLICATED for layout in step.decision.outs):
            return None
        found = {wanted[o] for o in equation.outputs if o in wanted}
        layout = found.pop() if len(found) == 1 else REPLICATED
        if not layout.is_sharded or any(need != REPLICATED for need in step.decision.needs):
            return None
        call = Call(equation, step.decision.needs, self._planner.count, layout.axis, self._planner)
        decision = RULES[equation.primitive.name](call)
        return None if decision is None else (layout.axis, decision.needs)

    def make_plan(self) -> Plan:
        """Returns the plan of this pass."""
        outputs = list(zip(self._flat.outputs, self._outs, strict=True))
        stages = make_stages(self._steps, outputs, self._made)
        inner = [step.decision for step in self._steps]
        return Plan(
            self._flat,
            self._planner,
            self._made,
            self._outs,
            stages,
            gathered=self._gathered_bytes() + sum(d.gathered for d in inner),
            repeated=sum(d.repeated for d in inner),
            calls=sum(bool(s.sums) for s in stages) + sum(d.calls for d in inner),
        )

    def _gathered_bytes(self) -> int:
        changed = [(v, need) for v, need in self._all_needs() if v in self._made and self._made[v] != need]
        divided = [(v, need) for v, need in changed if self._made[v].is_sharded]
        if any(need == PARTIAL for _, need in divided):
            raise NoRule("a divided value would have to be a sum")
        moved = {v for v, _ in divided}
        for value in moved:
            _check_collectable(value)
        # What a step returns is wanted whole by its caller: that is no sign of a step that is divided wrongly.
        moved -= set(self._flat.outputs)
        return sum(size_of(value.aval) for value in moved)


def _want(wanted: dict[Value, Layout], value: Value, need: Layout) -> None:
    """Notes how a value is needed; needed in two ways, it is needed whole."""
    wanted[value] = need if wanted.get(value, need) == need else REPLICATED


def _check_collectable(value: Value) -> None:
    # Keys of random generators, whose bits jax hides.
    if jnp.issubdtype(value.aval.dtype, jax.dtypes.extended):
        raise NoRule(f"values of {value.aval.dtype} cannot be collected")


def decide(call: Call) -> Decision:
    """Returns how an equation runs on each replica; raises `NoRule` if that would not be sound."""
    name = call.equation.primitive.name
    # A linear operation is done to the summands: the sum can wait, and be taken together with others.
    if PARTIAL in call.layouts:
        decision = LINEAR[name](call) if name in LINEAR else None
        if decision is not None:
            return decision
        call.layouts = [REPLICATED if layout == PARTIAL else layout for layout in call.layouts]
    # What all hold whole, all compute whole, as one device does: that needs no rule.
    if all(layout == REPLICATED for layout in call.layouts):
        sliced = RULES[name](call) if call.wanted_axis is not None else None
        return sliced or Decision(call.layouts, [REPLICATED] * len(call.equation.outputs))
    # A wanted axis is for equations whose inputs are all replicated.
    call.wanted_axis = None
    decision = RULES[name](call) if name in RULES else None
    return decision or _repeat_on_all(call)


def _repeat_on_all(call: Call) -> Decision:
    """Has every replica compute the whole, of inputs that are gathered; what has the shape of one is sharded again."""
    equation, count = call.equation, call.count
    divided = [(v, layout) for v, layout in zip(equation.inputs, call.layouts, strict=True) if layout.is_sharded]
    for value, _ in divided:
        _check_collectable(value)
    # An operation that keeps the shape of its input is most often one on each element: its users want blocks again.
    again = {v.aval.shape: layout for v, layout in divided}
    outs = [again.get(o.aval.shape, REPLICATED) for o in equation.outputs]

    def run(values: Sequence[Any]) -> Sequence[Any]:
        made = bind(equation.primitive, values, equation.params)
        return [own_block(v, o.axis, count) if o.is_sharded else v for v, o in zip(made, outs, strict=True)]

    work = sum(size_of(v.aval) for v, _ in divided)
    return Decision([REPLICATED] * len(call.layouts), outs, run=run, repeated=work)
