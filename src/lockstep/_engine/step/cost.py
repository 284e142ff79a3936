"""About how long a step takes, told from its jaxpr alone.

Only the order of magnitude matters: whether the time to dispatch a step counts beside the step. It must not be measured
instead, because every task has to come to the same answer, today and after a restart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from jax import lax

# Operations of products, those of convolutions, and array elements written, in a second: what a small machine of each
# kind reaches.
_RATES = {"cpu": (2e11, 8e10, 4e9), "gpu": (2e13, 2e13, 2e11)}
_FAST = (1e14, 1e14, 5e11)
# A loop whose number of rounds is not known.
_ROUNDS = 8


def seconds(jaxpr: Any, platform: str) -> float:
    """Returns about how long a `Jaxpr` takes on one device.

    Args:
        jaxpr: What is computed.
        platform: "cpu", "gpu" or another.
    """
    rates = _RATES.get(platform, _FAST)
    return sum(amount / rate for amount, rate in zip(_work(jaxpr), rates, strict=True))


def _work(jaxpr: Any) -> tuple[float, float, float]:
    """Multiplications and additions of products, those of convolutions; elements that are written."""
    products = convolutions = elements = 0.0
    for equation in jaxpr.eqns:
        inner = list(_inner(equation))
        for one, rounds in inner:
            found = _work(one)
            products += rounds * found[0]
            convolutions += rounds * found[1]
            elements += rounds * found[2]
        if not inner:
            products += _dot(equation) if equation.primitive is lax.dot_general_p else 0.0
            convolutions += _convolution(equation) if equation.primitive is lax.conv_general_dilated_p else 0.0
            elements += sum(_size(v) for v in equation.outvars)
    return products, convolutions, elements


def _inner(equation: Any) -> Iterator[tuple[Any, float]]:
    """The jaxprs that an equation runs, and how often."""
    rounds = {"scan": equation.params.get("length", _ROUNDS), "while": _ROUNDS}.get(equation.primitive.name, 1)
    for value in equation.params.values():
        for one in value if isinstance(value, (tuple, list)) else (value,):
            found = getattr(one, "jaxpr", one)
            if hasattr(found, "eqns"):
                yield found, float(rounds)


def _dot(equation: Any) -> float:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    return 2.0 * _size(equation.outvars[0]) * math.prod(left[i] for i in contracted)


def _convolution(equation: Any) -> float:
    kernel, params = equation.invars[1].aval.shape, equation.params
    features = kernel[params["dimension_numbers"].rhs_spec[0]]
    # What a dilated input is filled with is not multiplied.
    features *= math.prod(params["lhs_dilation"])
    return 2.0 * _size(equation.outvars[0]) * math.prod(kernel) / max(1, features)


def _size(variable: Any) -> int:
    return math.prod(getattr(variable.aval, "shape", ()))
