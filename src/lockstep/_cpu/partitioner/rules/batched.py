"""Rules for what is done for each index of the first axes: linear algebra, Fourier transforms, keys of generators."""

from __future__ import annotations

from lockstep._cpu.partitioner.layout import sharded
from lockstep._cpu.partitioner.rules.base import Call, Decision, rule

# How many of the last axes belong to one element.
_LAST_AXES = {
    **dict.fromkeys(("cholesky", "eigh", "lu", "qr", "svd", "schur", "geqrf", "eig", "triangular_solve"), 2),
    **dict.fromkeys(("lu_pivots_to_permutation", "random_wrap"), 1),
    **dict.fromkeys(("random_unwrap", "random_split", "random_bits", "random_fold_in", "random_seed"), 0),
    **dict.fromkeys(("random_gamma", "random_clone"), 0),
}


@rule(*_LAST_AXES)
def batched(call: Call) -> Decision | None:
    """The divided axis is in front of those that belong to one element."""
    return _in_front(call, _LAST_AXES[call.equation.primitive.name])


@rule("fft")
def fft(call: Call) -> Decision | None:
    """Over other axes."""
    return _in_front(call, len(call.params["fft_lengths"]))


def _in_front(call: Call, last_axes: int) -> Decision | None:
    first = call.sharded_input()
    if first is None:
        return None
    layout, shape = call.layouts[first], call.shape(first)
    if layout.axis >= len(shape) - last_axes or any(len(v.aval.shape) != len(shape) for v in call.equation.inputs):
        return None
    inside = [call.shape(i)[layout.axis] == shape[layout.axis] for i in range(len(call.layouts))]
    outside = [o.aval.shape[layout.axis] == shape[layout.axis] for o in call.equation.outputs]
    if not all(inside) or not all(outside):
        return None
    return Decision([sharded(layout.axis)] * len(call.layouts), [layout] * len(call.equation.outputs))
