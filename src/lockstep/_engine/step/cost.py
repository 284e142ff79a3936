"""The estimated cost of a step, which decides whether several steps run in one dispatch.

Around a compiled program Python takes some 0.1 to 0.5 ms, which a large step does not feel and a small one spends half
of its time on. So small steps run in a loop that is part of the program, over batches that are there already.

Every step of such a program runs in the same compiled loop, whether it is one or a hundred. So the numbers do not
depend on how steps are put together, which depends on time.
"""

from __future__ import annotations

import math
from typing import Any

from jax import lax

from lockstep._engine.step.jaxprs import Equation, open_jaxpr, subjaxprs
from lockstep._types import Jaxpr

# What a dispatch takes from the steps, while programs run and Python goes on; then for each array; and the part of a
# step's time that may be spent on it.
_DISPATCH_SECONDS = 2e-4
_SECONDS_PER_ARRAY = 1.5e-6
_OVERHEAD = 0.02
# The longest step that is put into a loop. Of longer ones only steps of thousands of arrays would be, whose loop XLA
# takes long to compile: NASNetMobile's first step (2,616 arrays) came after 60 s, alone after 49, and its steps were no
# faster (2-core EPYC, 120 ms both).
_LONGEST_SECONDS = 0.05
# Operations of products, those of convolutions, and array elements written, in a second: what a small machine of each
# kind reaches. Only the order of magnitude of an estimate counts.
_RATES = {"cpu": (2e11, 8e10, 4e9), "gpu": (2e13, 2e13, 2e11)}
_OTHER_RATES = (1e14, 1e14, 5e11)
# Iterations of a loop whose number is not known.
_ITERATIONS = 8


def pays(step_seconds: float, arrays: int) -> bool:
    """Returns whether a step is so short that several should run in one dispatch."""
    dispatch_seconds = _DISPATCH_SECONDS + _SECONDS_PER_ARRAY * arrays
    return step_seconds < _LONGEST_SECONDS and _OVERHEAD * step_seconds < dispatch_seconds


def estimate_seconds(jaxpr: Jaxpr, platform: str) -> float:
    """Returns about how long a jaxpr takes on one device of a platform ("cpu", "gpu" or another).

    Estimated, not measured, because every task has to come to the same answer, today and after a restart.
    """
    rates = _RATES.get(platform, _OTHER_RATES)
    return sum(amount / rate for amount, rate in zip(_count_work(jaxpr), rates, strict=True))


def _count_work(jaxpr: Jaxpr) -> tuple[float, float, float]:
    """Returns multiplications and additions of products, those of convolutions, and elements that are written."""
    products = convolutions = elements = 0.0
    for eqn in open_jaxpr(jaxpr).eqns:
        inner = list(subjaxprs(eqn))
        iterations = {"scan": eqn.params.get("length", _ITERATIONS), "while": _ITERATIONS}.get(eqn.primitive.name, 1)
        for work in map(_count_work, inner):
            products += iterations * work[0]
            convolutions += iterations * work[1]
            elements += iterations * work[2]
        if not inner:
            products += _dot_operations(eqn) if eqn.primitive is lax.dot_general_p else 0.0
            convolutions += _convolution_operations(eqn) if eqn.primitive is lax.conv_general_dilated_p else 0.0
            elements += sum(_size(v) for v in eqn.outvars)
    return products, convolutions, elements


def _dot_operations(eqn: Equation) -> float:
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left = eqn.invars[0].aval.shape
    return 2.0 * _size(eqn.outvars[0]) * math.prod(left[i] for i in contracted)


def _convolution_operations(eqn: Equation) -> float:
    kernel, params = eqn.invars[1].aval.shape, eqn.params
    features = kernel[params["dimension_numbers"].rhs_spec[0]]
    # The zeros between the elements of a dilated input are not multiplied.
    features *= math.prod(params["lhs_dilation"])
    return 2.0 * _size(eqn.outvars[0]) * math.prod(kernel) / max(1, features)


def _size(variable: Any) -> int:
    return math.prod(getattr(variable.aval, "shape", ()))
