"""Rules for matrix products and convolutions."""

from __future__ import annotations

from lockstep._cpu.partitioner.layout import PARTIAL, REPLICATED, Layout, sharded
from lockstep._cpu.partitioner.rules.base import Call, Decision, rule


@rule("dot_general")
def dot_general(call: Call) -> Decision | None:
    """The divided axis may be one of the batch, one of either operand alone, or one that is summed over."""
    left, right = call.layouts
    if left.is_sharded and right.is_sharded and _partner(call, 0, left.axis) != right.axis:
        # Only one axis of the product can be divided. The smaller operand is cheaper to have whole.
        stays = 0 if call.size(0) >= call.size(1) else 1
    else:
        stays = 0 if left.is_sharded else 1
    return _divided(call, stays)


def _partner(call: Call, side: int, axis: int) -> int | None:
    """The axis of the other operand that goes with one of this operand."""
    contracted, batch = call.params["dimension_numbers"]
    pairs = [*zip(contracted[side], contracted[1 - side], strict=True), *zip(batch[side], batch[1 - side], strict=True)]
    return next((theirs for mine, theirs in pairs if mine == axis), None)


def _divided(call: Call, side: int) -> Decision:
    """The product with the layout that operand `side` has."""
    contracted, batch = call.params["dimension_numbers"]
    layout = call.layouts[side]
    partner = _partner(call, side, layout.axis)
    other = REPLICATED if partner is None else sharded(partner)
    needs = [layout, other] if side == 0 else [other, layout]
    if layout.axis in contracted[side]:
        return Decision(needs, [PARTIAL])
    if layout.axis in batch[side]:
        return Decision(needs, [sharded(tuple(batch[side]).index(layout.axis))])
    free = [[a for a in range(len(call.shape(s))) if a not in contracted[s] and a not in batch[s]] for s in range(2)]
    place = len(batch[0]) + free[side].index(layout.axis) + (len(free[0]) if side == 1 else 0)
    return Decision(needs, [sharded(place)])


@rule("conv_general_dilated")
def convolution(call: Call) -> Decision | None:
    """The examples are divided: the batch of the forward pass, what is summed over in the gradient of a kernel."""
    params = call.params
    numbers = params["dimension_numbers"]
    image, kernel = call.layouts
    examples, channels = numbers.lhs_spec[0], numbers.lhs_spec[1]
    if image.is_sharded and image.axis == examples:
        if params["batch_group_count"] != 1:
            return None
        return Decision([image, REPLICATED], [sharded(numbers.out_spec[0])])
    summed = (sharded(channels), sharded(numbers.rhs_spec[1]))
    if (image, kernel) in _some(summed) and params["feature_group_count"] == 1:
        return Decision(summed, [PARTIAL])
    return None


def _some(pair: tuple[Layout, Layout]) -> tuple[tuple[Layout, Layout], ...]:
    """The pair, and with either of the two on all replicas."""
    return (pair, (pair[0], REPLICATED), (REPLICATED, pair[1]))
