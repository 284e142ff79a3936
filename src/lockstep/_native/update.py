"""Writes in C what happens to each element of a gradient: the text of `update.h`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Operation:
    """One elementwise operation.

    Attributes:
        name: Of jax's primitive.
        params: Of the primitive.
        inputs: Names of what it takes, or numbers.
        output: The name of what it makes.
    """

    name: str
    params: Mapping[str, Any]
    inputs: tuple[Hashable | np.generic, ...]
    output: Hashable


def is_known(name: str, params: Mapping[str, Any]) -> bool:
    """Whether an operation can be written."""
    if name == "integer_pow":
        return abs(params["y"]) <= _HIGHEST_POWER
    if name == "select_n":
        return True
    return name in _OPERATIONS


def written(
    gradient: Hashable,
    arrays: Sequence[Hashable],
    numbers: Sequence[Hashable],
    operations: Sequence[Operation],
    results: Sequence[Hashable],
) -> str:
    """Returns the text for operations in the order in which they run."""
    names: dict[Hashable, str] = {gradient: "x"}
    names |= {name: f"a{i}[e]" for i, name in enumerate(arrays)}
    names |= {name: f"n{i}" for i, name in enumerate(numbers)}
    body = ["const float x = g[e];"]
    for i, operation in enumerate(operations):
        inputs = [_number(v) if isinstance(v, np.generic) else names[v] for v in operation.inputs]
        # Of a comparison, too: 0 or 1.
        body.append(f"const float v{i} = {_expression(operation, inputs)};")
        names[operation.output] = f"v{i}"
    pointers = [
        *(f"const float *a{i} = in[{i}] + at;" for i in range(len(arrays))),
        *(f"float *r{i} = out[{i}] + at;" for i in range(len(results))),
        *(f"const float n{i} = numbers[{i}];" for i in range(len(numbers))),
    ]
    moved = [*(f"a{i} += stride" for i in range(len(arrays))), *(f"r{i} += stride" for i in range(len(results)))]
    # All are read before any is written, for a result may take the place of an array.
    stored = [f"r{i}[e] = {names[result]};" for i, result in enumerate(results)]
    return "\n".join(
        [
            f"#define UPDATE_ARRAYS {len(arrays)}",
            f"#define UPDATE_NUMBERS {len(numbers)}",
            f"#define UPDATE_RESULTS {len(results)}",
            "",
            "INLINE void update(const float *g, const float *const *in, const float *numbers, float *const *out,",
            "                   long at, long stride, long rows, long columns) {",
            *_indented(pointers, 2),
            "#pragma GCC unroll 8",
            f"  for (long row = 0; row < rows; row++, {', '.join(['g += COLUMNS', *moved])}) {{",
            "#pragma GCC ivdep",
            "    for (long e = 0; e < columns; e++) {",
            *_indented([*body, *stored], 6),
            "    }",
            "  }",
            "}",
            "",
        ]
    )


def _indented(lines: Sequence[str], by: int) -> list[str]:
    return [" " * by + line for line in lines]


def _expression(operation: Operation, inputs: Sequence[str]) -> str:
    if operation.name == "integer_pow":
        return _power(inputs[0], operation.params["y"])
    if operation.name == "select_n":
        which, when_false, when_true = inputs
        return f"{which} != 0 ? {when_true} : {when_false}"
    return _OPERATIONS[operation.name](*inputs)


def _power(base: str, exponent: int) -> str:
    product = " * ".join([base] * abs(exponent)) or "1.0f"
    return product if exponent >= 0 else f"1.0f / ({product})"


def _number(value: np.generic) -> str:
    number = float(np.float32(value))
    if np.isnan(number):
        return "NAN"
    if np.isinf(number):
        return "INFINITY" if number > 0 else "(-INFINITY)"
    return f"({number.hex()}f)"


def _infix(sign: str) -> Callable[[str, str], str]:
    return lambda a, b: f"{a} {sign} {b}"


_HIGHEST_POWER = 8
# With NaN as XLA has it: the greater and the lesser of it and anything are NaN.
_OPERATIONS: dict[str, Callable[..., str]] = {
    **{name: _infix(sign) for name, sign in (("add", "+"), ("add_any", "+"), ("sub", "-"), ("mul", "*"), ("div", "/"))},
    **{name: _infix(sign) for name, sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))},
    **{name: _infix(sign) for name, sign in (("eq", "=="), ("ne", "!="))},
    "max": lambda a, b: f"{a} > {b} || {a} != {a} ? {a} : {b}",
    "min": lambda a, b: f"{a} < {b} || {a} != {a} ? {a} : {b}",
    "neg": lambda a: f"-{a}",
    "abs": lambda a: f"__builtin_fabsf({a})",
    "sign": lambda a: f"{a} != {a} || {a} == 0 ? {a} : __builtin_copysignf(1.0f, {a})",
    "sqrt": lambda a: f"__builtin_sqrtf({a})",
    "rsqrt": lambda a: f"1.0f / __builtin_sqrtf({a})",
    "square": lambda a: f"{a} * {a}",
    "is_finite": lambda a: f"__builtin_isfinite({a})",
    "not": lambda a: f"{a} == 0",
    "and": lambda a, b: f"{a} != 0 && {b} != 0",
    "or": lambda a, b: f"{a} != 0 || {b} != 0",
    **{name: lambda a: a for name in ("copy", "convert_element_type", "broadcast_in_dim", "stop_gradient")},
}
