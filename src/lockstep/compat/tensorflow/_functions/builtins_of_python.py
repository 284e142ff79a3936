"""Python's builtin functions, as converted code calls them with tensors that JAX traces."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.core import Tracer

from lockstep.compat.tensorflow._functions.refusals import NotCompilableError
from lockstep.data import Dataset


class TracedRange:
    """A range whose ends are known only when compiled code runs; a loop over it is compiled.

    Attributes:
        start: Its first number.
        count: How many numbers it has.
        step: From one to the next.
    """

    def __init__(self, start: Any, limit: Any, step: Any = 1) -> None:
        self.start, self.step = jnp.asarray(start), jnp.asarray(step)
        ceiling = -((self.start - jnp.asarray(limit)) // self.step)
        self.count = jnp.maximum(ceiling, 0)

    def __iter__(self) -> Any:
        raise _unknown_length()

    def __len__(self) -> int:
        raise _unknown_length()

    def __jax_array__(self) -> Any:
        raise _unknown_length()


def _unknown_length() -> NotCompilableError:
    return NotCompilableError(
        "a range of a length that compiled code computes is for a loop `for i in tf.range(n):` alone"
    )


def overload_of(function: Any) -> Any:
    """Returns what converted code calls in place of a function; nearly always the function itself."""
    return _OVERLOADS.get(function, function)


def is_tf_range(function: Any) -> bool:
    """Returns whether this is tf.range."""
    from lockstep.compat.tensorflow._ops import create

    return function is create.range


def range_(*ends: Any) -> Any:
    """`range`, also of tensors."""
    if any(isinstance(end, Tracer) for end in ends):
        return TracedRange(*((0, *ends) if len(ends) == 1 else ends))
    return builtins.range(*(int(end) if hasattr(end, "dtype") else end for end in ends))


def has_traced(args: Any, kwargs: Any) -> bool:
    """Returns whether one of the arguments is a tensor that JAX traces."""
    return any(isinstance(value, Tracer) for value in (*args, *kwargs.values()))


def tf_range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: Any = None) -> TracedRange:
    """`tf.range` of a length that is known only when compiled code runs."""
    ends = (0, start, delta) if limit is None else (start, limit, delta)
    return TracedRange(*(e if dtype is None else jnp.asarray(e, getattr(dtype, "dtype", dtype)) for e in ends))


def _number(kind: Any, dtype: Any) -> Callable[..., Any]:
    def convert(x: Any = 0, *base: Any) -> Any:
        return x.astype(dtype) if isinstance(x, Tracer) else kind(x, *base)

    return convert


def _enumerate(iterable: Any, start: Any = 0) -> Any:
    return iterable.enumerate(start) if isinstance(iterable, Dataset) else enumerate(iterable, start)


def _zip(*iterables: Any, **strict: Any) -> Any:
    if iterables and all(isinstance(i, Dataset) for i in iterables):
        return type(iterables[0]).zip(iterables)
    return zip(*iterables, **strict)  # noqa: B905


def _of_tensor(plain: Any, reduce: Any) -> Callable[..., Any]:
    def compute(*args: Any, **kwargs: Any) -> Any:
        # Of one tensor over its elements, of several one by one.
        if kwargs or not any(isinstance(a, Tracer) for a in args):
            return plain(*args, **kwargs)
        return reduce(*args)

    return compute


def _fold(function: Any, reduce: Any) -> Callable[..., Any]:
    def compute(first: Any, *rest: Any) -> Any:
        found = first if rest else reduce(first)
        for value in rest:
            found = function(found, value)
        return found

    return compute


_OVERLOADS: dict[Any, Any] = {
    range: range_,
    int: _number(int, "int32"),
    float: _number(float, "float32"),
    enumerate: _enumerate,
    zip: _zip,
    min: _of_tensor(min, _fold(jnp.minimum, jnp.min)),
    max: _of_tensor(max, _fold(jnp.maximum, jnp.max)),
    any: _of_tensor(any, jnp.any),
    all: _of_tensor(all, jnp.all),
}
