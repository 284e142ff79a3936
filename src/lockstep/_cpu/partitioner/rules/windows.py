"""Rules for windows that slide over other axes than the divided one."""

from __future__ import annotations

from typing import Any

from lockstep._cpu.partitioner.layout import REPLICATED
from lockstep._cpu.partitioner.rules.base import Call, Decision, does_not_grow, linear, passes_sums, rule


def _is_alone(params: dict[str, Any], axis: int) -> bool:
    """Whether each index along `axis` is a window of its own."""
    return (
        params["window_dimensions"][axis] == 1
        and params["window_strides"][axis] == 1
        and tuple(params["padding"][axis]) == (0, 0)
        and all(params.get(key) is None or params[key][axis] == 1 for key in ("base_dilation", "window_dilation"))
    )


@rule("reduce_window_sum", "reduce_window_max", "reduce_window_min")
@rule("select_and_scatter_add", "select_and_gather_add")
def window(call: Call) -> Decision | None:
    """All arrays have the same axes."""
    first = call.sharded_input()
    if first is None or not _is_alone(call.params, call.layouts[first].axis):
        return None
    layout = call.layouts[first]
    return Decision([layout] * len(call.layouts), [layout] * len(call.equation.outputs))


@rule("reduce_window", "select_and_scatter")
def window_with_start(call: Call) -> Decision | None:
    """Arrays and, of no axes, the values that reductions start from."""
    arrays = [i for i in range(len(call.layouts)) if call.shape(i)]
    first = call.sharded_input()
    if first is None or not _is_alone(call.params, call.layouts[first].axis):
        return None
    layout = call.layouts[first]
    needs = [layout if i in arrays else REPLICATED for i in range(len(call.layouts))]
    return Decision(needs, [layout] * len(call.equation.outputs))


@linear("reduce_window_sum")
def window_of_sums(call: Call) -> Decision | None:
    """The order of sums does not matter."""
    return passes_sums(call) if does_not_grow(call, [0]) else None
