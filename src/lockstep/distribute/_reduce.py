"""`Strategy.reduce` and `Strategy.gather`: what replicas have, for whoever speaks for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._engine.step.jaxprs import is_traced
from lockstep._engine.step.placement import local_copy
from lockstep._engine.step.replicas import Replicas
from lockstep._nest import flatten
from lockstep.distribute._arguments import all_shapes, stacked
from lockstep.distribute._exchange import checked_axis, number_array
from lockstep.distribute._reduce_op import ReduceOp, reduce_op
from lockstep.distribute._values import InReplica, Mirrored, PerReplica, Shape
from lockstep.errors import ArgumentError


def reduce(replicas: Replicas, op: ReduceOp | str, value: Any, axis: int | None) -> Any:
    """Combines the values of all replicas in a structure; see `Strategy.reduce`."""
    how = reduce_op(op)
    if axis is not None and type(axis) is not int:
        raise ArgumentError(f"axis must be an integer, or None to keep all dimensions. Received: {axis!r}.")
    return _each(
        replicas, "reduce", value, partial(_reduced, replicas, how, axis), partial(_reduced_alike, replicas, how, axis)
    )


def gather(replicas: Replicas, value: Any, axis: int) -> Any:
    """Puts the values of all replicas in a structure after each other; see `Strategy.gather`."""
    return _each(
        replicas, "gather", value, partial(_gathered, replicas, axis), partial(_gathered_alike, replicas, axis)
    )


def _each(
    replicas: Replicas,
    call: str,
    value: Any,
    of_own: Callable[[PerReplica, Sequence[Shape]], Any],
    of_one: Callable[[Any], Any],
) -> Any:
    """Applies the one function to values of replicas with their shapes, the other to what all have alike."""
    leaves, structure = flatten(value, is_leaf=lambda leaf: leaf is None)
    own = [leaf for leaf in leaves if isinstance(leaf, PerReplica)]

    def combined() -> tuple[Any, Any]:
        shapes = iter(all_shapes(own, replicas) if own else ())
        found = [of_own(leaf, next(shapes)) if isinstance(leaf, PerReplica) else of_one(leaf) for leaf in leaves]
        arrays = [v if is_traced(v) or not isinstance(v, jax.Array) else _here(v) for v in found]
        last = arrays[-1] if arrays and isinstance(arrays[-1], jax.Array) and not is_traced(arrays[-1]) else None
        return structure.unflatten(arrays), last

    if not own or replicas.runtime.is_alone:
        return combined()[0]
    return replicas.runtime.launch(f"strategy.{call}", combined)


def _here(value: jax.Array) -> jax.Array:
    return local_copy(value) if value.is_fully_replicated else value


def _reduced(
    replicas: Replicas, how: ReduceOp, axis: int | None, value: PerReplica, shapes: Sequence[Shape]
) -> jax.Array:
    place = None if axis is None else checked_axis(axis, shapes[0])
    _demand_alike(shapes, place, "reduced")
    stack = number_array(stacked(value, shapes, replicas))
    count = replicas.count if place is None else sum(shape[place] for shape in shapes)
    total = _total(stack, replicas.count, not shapes[0], place, replicas.whole)
    return total / count if how is ReduceOp.MEAN else total


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _total(stack: jax.Array, count: int, is_scalar: bool, axis: int | None, whole: Any) -> jax.Array:
    """Adds the replicas' values up. Those that are shorter are filled up with zeros."""
    each = _apart(stack, count, is_scalar)
    axes = (0,) if axis is None else (0, axis + 1)
    return lax.with_sharding_constraint(each.sum(axes, dtype=stack.dtype), whole)


def _apart(stack: jax.Array, count: int, is_scalar: bool) -> jax.Array:
    """One row for each replica."""
    return stack if is_scalar else stack.reshape(count, stack.shape[0] // count, *stack.shape[1:])


def _gathered(replicas: Replicas, axis: int, value: PerReplica, shapes: Sequence[Shape]) -> jax.Array:
    place = checked_axis(axis, shapes[0])
    _demand_alike(shapes, place, "joined")
    lengths = tuple(shape[place] for shape in shapes)
    return _joined(stacked(value, shapes, replicas), lengths, place, replicas.whole)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _joined(stack: jax.Array, lengths: tuple[int, ...], axis: int, whole: Any) -> jax.Array:
    each = lax.with_sharding_constraint(_apart(stack, len(lengths), is_scalar=False), whole)
    return jnp.concatenate([lax.slice_in_dim(each[i], 0, n, axis=axis) for i, n in enumerate(lengths)], axis)


def _demand_alike(shapes: Sequence[Shape], axis: int | None, what: str) -> None:
    rest = {tuple(n for i, n in enumerate(shape) if i != axis) for shape in shapes}
    if len(rest) > 1 or len(set(map(len, shapes))) > 1:
        along = "" if axis is None else f", except along axis {axis}"
        raise ArgumentError(
            f"Values of replicas that are {what} must have one shape{along}. Received: {list(shapes)}. Where they "
            "differ in rows, reduce these, too, with axis=0, or gather them along it."
        )


def _reduced_alike(replicas: Replicas, how: ReduceOp, axis: int | None, value: Any) -> Any:
    """Of a value that all replicas have: each has it, so that it counts as often in a sum."""
    if isinstance(value, InReplica):
        return _reduced_in_trace(how, axis, value)
    array = number_array(_plain(value))
    summed = array if axis is None else array.sum(checked_axis(axis, array.shape), dtype=array.dtype)
    if how is ReduceOp.MEAN:
        return summed / (1 if axis is None else array.shape[axis])
    if _is_mirrored(replicas, value):
        return summed * replicas.count
    if axis is None and replicas.count > 1:
        raise ArgumentError(
            "A sum over replicas needs a value of each. Received: a single one, of which it is not known whether each "
            f"replica has it ({str(value)[:80]}). Pass what strategy.run has returned, or multiply it yourself by "
            "num_replicas_in_sync."
        )
    return summed


def _gathered_alike(replicas: Replicas, axis: int, value: Any) -> Any:
    if isinstance(value, InReplica):
        return InReplica(value.exchange.gather(value.value, axis, None), value.exchange)
    array = jnp.asarray(_plain(value))
    place = checked_axis(axis, array.shape)
    return jnp.concatenate([array] * replicas.count, place) if _is_mirrored(replicas, value) else array


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Mirrored) else value


def _is_mirrored(replicas: Replicas, value: Any) -> bool:
    """Whether all replicas are known to have it: what `run` has returned."""
    if isinstance(value, Mirrored) or is_traced(value):
        return True
    return isinstance(value, jax.Array) and value.sharding == replicas.whole


def _reduced_in_trace(how: ReduceOp, axis: int | None, value: InReplica) -> InReplica:
    """Of a value of each replica, in the trace of one."""
    array, exchange = number_array(value.value), value.exchange
    if axis is None:
        return InReplica(exchange.reduce(how, array, None), exchange)
    place = checked_axis(axis, array.shape)
    total = exchange.reduce(ReduceOp.SUM, array.sum(place, dtype=array.dtype), None)
    if how is ReduceOp.MEAN:
        total = total / exchange.reduce(ReduceOp.SUM, np.int32(array.shape[place]), None)
    return InReplica(total, exchange)
