"""Rules for loops and conditions: their bodies are planned for themselves, with layouts that come round unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax

from lockstep._cpu.partitioner.layout import PARTIAL, REPLICATED, Layout, NoRule, sharded
from lockstep._cpu.partitioner.rules.base import Call, Decision, rule
from lockstep._engine.step.jaxprs import scan_counts

Wanted = Sequence[Layout | None]


@rule("scan")
def scan(call: Call) -> Decision | None:
    """Loops over another axis than the sharded one: recurrent layers over time, kernel gradients as summands."""
    try:
        consts, carries = scan_counts(call.params, len(call.layouts))
    except LookupError as error:
        raise NoRule(str(error)) from None
    slices = call.layouts[consts + carries :]
    # The axis that is looped over: a replica would have to wait for the rounds of another.
    if any(layout.axis == 0 for layout in slices):
        return None
    rows = [sharded(s.axis - 1) if s.is_sharded else s for s in slices]
    body = call.planner.body(call.equation, "jaxpr")

    def plan(carried: Sequence[Layout], wanted: Wanted) -> Any:
        return call.planner.plan_body(call.equation, "jaxpr", [*call.layouts[:consts], *carried, *rows], wanted)

    first = list(call.layouts[consts : consts + carries])
    # The gradient of a weight starts as a summand: so it is reduced once, after the loop, and not in every round.
    accumulated = _is_accumulated(body, range(consts, consts + carries))
    first = [PARTIAL if adds and c == REPLICATED else c for c, adds in zip(first, accumulated, strict=True)]
    carried = _find_fixed_point(lambda c: plan(c, [None] * len(body.outputs)).outs[:carries], first)
    final = plan(carried, [*carried, *[None] * (len(body.outputs) - carries)])
    stacked = [sharded(o.axis + 1) if o.is_sharded else o for o in final.outs[carries:]]
    needs = [*call.layouts[:consts], *carried, *slices]
    length = call.params["length"]
    options = {k: call.params[k] for k in ("reverse", "length", "unroll")}

    def run(values: Sequence[Any]) -> Sequence[Any]:
        fixed, initial, xs = values[:consts], list(values[consts : consts + carries]), list(values[consts + carries :])

        def step(carry: Any, row: Any) -> tuple[Any, Any]:
            results = final.run([*fixed, *carry, *row])
            return results[:carries], results[carries:]

        last, outputs = lax.scan(step, initial, xs, **options)
        return [*last, *outputs]

    return Decision(
        needs,
        [*carried, *stacked],
        run=run,
        # Counted for every round: a step is judged by what it gathers in all.
        gathered=final.gathered * length,
        repeated=final.repeated * length,
        calls=final.calls,
    )


def _is_accumulated(body: Any, numbers: Sequence[int]) -> list[bool]:
    """Returns of inputs of a body whether each is an accumulator: all that happens to it is that something is added."""
    uses: dict[Any, list[Any]] = {}
    for equation in body.equations:
        for value in equation.inputs:
            uses.setdefault(value, []).append(equation)
    outputs = list(body.outputs)

    def leads_home(value: Any, home: Any) -> bool:
        while value is not home:
            users = uses.get(value, [])
            if len(users) != 1 or value in outputs or users[0].primitive.name not in ("add", "add_any"):
                return False
            value = users[0].outputs[0]
        return value not in uses and outputs.count(value) == 1

    return [leads_home(body.inputs[n], outputs[place]) for place, n in enumerate(numbers)]


def _find_fixed_point(after: Any, first: list[Layout]) -> list[Layout]:
    """Returns layouts of what is carried such that a turn returns it as it got it, or as what can be made so."""
    # A value only ever goes from summand to replicated to sharded, so this ends.
    carried = first
    # Each value changes twice at most, and a round without a change ends it.
    for _ in range(2 * len(first) + 2):
        found = [_join(was, now) for was, now in zip(carried, after(carried), strict=True)]
        if found == carried:
            return carried
        carried = found
    raise NoRule("layouts of a loop do not settle")


def _join(was: Layout, now: Layout) -> Layout:
    if was == PARTIAL and now == PARTIAL:
        return PARTIAL
    if was.is_sharded:
        return was
    return now if now.is_sharded else REPLICATED


@rule("while")
def while_loop(call: Call) -> Decision | None:
    """Has all replicas take the same number of turns: the condition is replicated."""
    params = call.params
    tested, fixed = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts = call.layouts[:tested], call.layouts[tested : tested + fixed]

    def plan(carried: Sequence[Layout], wanted: Wanted) -> Any:
        return call.planner.plan_body(call.equation, "body_jaxpr", [*body_consts, *carried], wanted)

    first = list(call.layouts[tested + fixed :])
    carried = _find_fixed_point(lambda c: plan(c, [None] * len(first)).outs, first)
    body = plan(carried, carried)
    # A replica that left the loop before the others would leave them waiting in its sums.
    test = call.planner.plan_body(call.equation, "cond_jaxpr", [*cond_consts, *carried], [REPLICATED])
    # Nobody knows how many turns there will be, nor so how much would be gathered.
    if body.gathered or body.repeated or test.repeated:
        return None
    needs = [*cond_consts, *body_consts, *carried]

    def run(values: Sequence[Any]) -> Sequence[Any]:
        of_test, of_body = values[:tested], values[tested : tested + fixed]
        return lax.while_loop(
            lambda c: test.run([*of_test, *c])[0],
            lambda c: body.run([*of_body, *c]),
            list(values[tested + fixed :]),
        )

    return Decision(needs, carried, run=run, calls=body.calls + test.calls)


@rule("cond")
def cond(call: Call) -> Decision | None:
    """Has all replicas take the same branch: the index is replicated."""
    operands = call.layouts[1:]
    branches = range(len(call.params["branches"]))

    def plans(wanted: Wanted) -> list[Any]:
        return [call.planner.plan_body(call.equation, ("branches", b), operands, wanted) for b in branches]

    # First each branch as it comes; then all with the layouts that they can have in common.
    by_output = zip(*(plan.outs for plan in plans([None] * len(call.equation.outputs))), strict=True)
    outs = [_common(layouts) for layouts in by_output]
    final = plans(outs)
    return Decision(
        [REPLICATED, *operands],
        outs,
        run=lambda values: lax.switch(values[0], [plan.run for plan in final], values[1:]),
        # Of the dearest branch: which one is taken is known at run time only.
        gathered=max(plan.gathered for plan in final),
        repeated=max(plan.repeated for plan in final),
        calls=max(plan.calls for plan in final),
    )


def _common(layouts: Sequence[Layout]) -> Layout:
    """Returns the layout of the branches' results: sharded if one shards it, a summand if all have one."""
    if all(layout == PARTIAL for layout in layouts):
        return PARTIAL
    divided = {layout for layout in layouts if layout.is_sharded}
    return divided.pop() if len(divided) == 1 else REPLICATED
