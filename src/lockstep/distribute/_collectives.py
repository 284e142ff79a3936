"""Collectives: how a replica's calls reach the others, and `Strategy.reduce` and `Strategy.gather`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._engine.step import backends, sequential_emulation
from lockstep._engine.step.aggregation import Shards
from lockstep._engine.step.jaxprs import is_traced
from lockstep._engine.step.placement import local_copy
from lockstep._engine.step.reduction import Reduction
from lockstep._engine.step.replica_invariance import mark_invariant
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._engine.step.shapes import difference
from lockstep._nest import flatten, map_structure
from lockstep._types import PyTree
from lockstep.distribute import _context
from lockstep.distribute._arguments import all_shapes, stacked
from lockstep.distribute._communication import CommunicationOptions, checked_options, reduction
from lockstep.distribute._values import InReplica, Mirrored, PerReplica, ReduceOp, Shape, reduce_op
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep.distribute._context import ReplicaContext
    from lockstep.distribute._strategy import Strategy


class Exchange(Protocol):
    """Protocol of a `ReplicaContext`'s exchange with the other replicas, of PyTrees."""

    count: int

    def number(self) -> Any: ...
    def reduce(self, op: ReduceOp | str, value: PyTree, options: CommunicationOptions | None) -> Any: ...
    def gather(self, value: PyTree, axis: int, options: CommunicationOptions | None) -> Any: ...
    def merge(
        self, strategy: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any: ...
    def average(self, gradients: PyTree) -> Any: ...
    def total(self, gradients: PyTree) -> Any: ...


class Alone:
    """The only replica."""

    count = 1

    def number(self) -> int:
        return 0

    def reduce(self, op: ReduceOp | str, value: PyTree, options: CommunicationOptions | None) -> Any:
        checked_options(options)
        mean = reduce_op(op) is ReduceOp.MEAN
        # The mean of integers is a float also where there is nothing to divide.
        return map_structure(lambda v: jnp.true_divide(v, 1) if mean else v, map_structure(number_array, value))

    def gather(self, value: PyTree, axis: int, options: CommunicationOptions | None) -> Any:
        checked_options(options)
        return map_structure(lambda v: _with_axis(v, axis)[0], value)

    def merge(
        self, strategy: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        with _context.cross_replica():
            return function(strategy, *args, **kwargs)

    def average(self, gradients: PyTree) -> Any:
        return map_structure(demand_float, gradients)

    def total(self, gradients: PyTree) -> Any:
        return self.average(gradients)


class Traced:
    """A replica of a program that all run together, while its function is traced."""

    def __init__(self, replicas: Replicas) -> None:
        self.count = replicas.count
        self._reduction = replicas.reduction or Reduction()
        self._platform = replicas.devices[0].platform

    def number(self) -> Any:
        return lax.axis_index(AXIS)

    def reduce(self, op: ReduceOp | str, value: PyTree, options: CommunicationOptions | None) -> Any:
        """Adds up as `options` say, else as the strategy's do."""
        mean, how = reduce_op(op) is ReduceOp.MEAN, self._how(options)
        leaves, structure = flatten(value)
        sums = self._sums([number_array(v) for v in leaves], how)
        return structure.unflatten([v / self.count for v in sums] if mean else sums)

    def _how(self, options: CommunicationOptions | None) -> Reduction:
        asked = checked_options(options)
        found = self._reduction if options is None else reduction(asked, self._platform) or Reduction()
        if options is not None and found.compresses:
            raise ArgumentError(
                "gradient_dtype and power_sgd_rank concern gradients: what is not sent of them is kept for the next "
                f"step. Received for all_reduce: {asked}. Give them to the strategy, and call average_gradients."
            )
        return found

    def _sums(self, values: list[Any], how: Reduction) -> list[Any]:
        # While replicas are emulated, sums are taken from their jaxprs; no algorithm has a way to go.
        if sequential_emulation.current() is not None:
            return [lax.psum(v, AXIS) for v in values]
        return list(_sum(tuple(values), how, self.count)) if values else []

    def gather(self, value: PyTree, axis: int, options: CommunicationOptions | None) -> Any:
        checked_options(options)
        return map_structure(lambda v: _gather_traced(*_with_axis(v, axis)), value)

    def merge(
        self, strategy: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        # The function is traced once for all replicas, in the trace of this one.
        own = map_structure(lambda v: InReplica(v, self), (args, dict(kwargs)))
        with _context.cross_replica():
            found = function(strategy, *own[0], **own[1])
        return map_structure(lambda v: v.value if isinstance(v, InReplica) else v, found)

    def average(self, gradients: PyTree) -> Any:
        gradients = map_structure(demand_float, gradients)
        turn = sequential_emulation.current()
        if turn is None:
            # Here replicas have equally many rows: batches that do not divide are emulated, and weighted by their rows.
            shares = Shards([None], [1.0 / self.count], AXIS, self.count, self._reduction)
            return mark_invariant(shares.mean_of_gradients([gradients]))
        return map_structure(lambda g: lax.pmean(turn.weight_mean(g), AXIS), gradients)

    def total(self, gradients: PyTree) -> Any:
        """Adds gradients up, in the way that the strategy's options ask for."""
        if sequential_emulation.current() is not None or not self._reduction.compresses:
            # No rounding here: emulated replicas send nothing, and a strategy without compression keeps no residuals.
            return self.reduce(ReduceOp.SUM, gradients, None)
        shares = Shards([None], [1.0], AXIS, self.count, self._reduction)
        return mark_invariant(shares.mean_of_gradients([gradients]))


@contextlib.contextmanager
def enter_replica(strategy: Strategy) -> Generator[ReplicaContext]:
    """Opens the replica context in which a replica's function is traced.

    To be opened inside of `shard_map(check_vma=False)`, or of `jax.make_jaxpr`, over
    `lockstep._engine.step.replicas.AXIS`; and inside of the step that is passed to
    `lockstep._engine.step.sequential_emulation.emulate_step`.
    """
    exchange = Traced(strategy._demanded_replicas())  # pyright: ignore[reportPrivateUsage]
    with _context.as_replica(_context.ReplicaContext(strategy, exchange)) as context:
        yield context


def _sum(values: tuple[Any, ...], how: Reduction, count: int) -> tuple[Any, ...]:
    """Returns sums over the replicas, whose gradients are sums, too."""
    # jax differentiates a psum by itself: without jax's account of what varies (check_vma) it is a psum again.
    if how.algorithm == "all_reduce" and not how.packs and not how.pack_bytes and not backends.all_reduce(AXIS, count):
        return tuple(lax.psum(v, AXIS) for v in values)
    # A backend's custom call has no derivative; that of a sum is the sum of the replicas' cotangents.
    total = jax.custom_vjp(lambda *vs: tuple(mark_invariant(how.sum(vs, AXIS, count))))
    total.defvjp(lambda *vs: (total(*vs), None), lambda _, cotangents: _sum(tuple(cotangents), how, count))
    return total(*values)


def _gather_traced(value: PyTree, axis: int) -> Any:
    """Concatenates values of all replicas; their lengths may differ where replicas are traced one by one."""
    turn = sequential_emulation.current()
    lengths = None if turn is None else turn.lengths(value.shape[axis])
    if lengths is None or len(set(lengths)) == 1:
        return lax.all_gather(value, AXIS, axis=axis, tiled=True)
    # Padded for the way: all_gather takes arrays of one shape. The lengths are known since an earlier trace.
    widths = [(0, max(lengths) - value.shape[axis] if i == axis else 0) for i in range(value.ndim)]
    padded = lax.all_gather(jnp.pad(value, widths), AXIS)
    pieces = [lax.slice_in_dim(padded[i], 0, n, axis=axis) for i, n in enumerate(lengths)]
    return jnp.concatenate(pieces, axis)


def number_array(value: PyTree) -> Any:
    """Returns what can be added up as an array; raises `ArgumentError` for anything else."""
    if isinstance(value, (str, bytes)) or value is None:
        raise ArgumentError(f"Replicas reduce numbers. Received: {value!r}. Return it as it is.")
    array = jnp.asarray(value)
    if array.dtype == bool:
        raise ArgumentError(
            'Booleans have no sum and no mean. Received: a value of type bool. Cast it to count: value.astype("int32").'
        )
    if not jnp.issubdtype(array.dtype, jnp.number):
        raise ArgumentError(f"Replicas reduce numbers. Received: a value of type {array.dtype}.")
    return array


def demand_float(value: PyTree) -> Any:
    """Returns a gradient as an array; raises `ArgumentError` if it is no float."""
    array = jnp.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        raise ArgumentError(
            f"Gradients are floats. Received: a value of type {array.dtype}{list(array.shape)}. Use all_reduce for "
            "anything else."
        )
    return array


def _with_axis(value: PyTree, axis: int) -> tuple[Any, int]:
    array = jnp.asarray(value)
    return array, checked_axis(axis, array.shape)


def checked_axis(axis: int, shape: tuple[int, ...]) -> int:
    """Returns an axis of a shape, counted from the first; raises `ArgumentError` if there is none."""
    if type(axis) is not int or not -len(shape) <= axis < len(shape):
        raise ArgumentError(
            f"axis must be one of the value's {len(shape)} dimensions. Received: axis={axis!r} for a value of shape "
            f"{tuple(shape)}." + ("" if shape else " Give scalars a dimension first: value[None].")
        )
    return axis % len(shape)


def reduce(replicas: Replicas, op: ReduceOp | str, value: PyTree, axis: int | None) -> Any:
    """Combines the values of all replicas in a structure; see `Strategy.reduce`."""
    how = reduce_op(op)
    if axis is not None and type(axis) is not int:
        raise ArgumentError(f"axis must be an integer, or None to keep all dimensions. Received: {axis!r}.")
    return _each(
        replicas,
        "reduce",
        value,
        partial(_reduce_values, replicas, how, axis),
        partial(_reduce_common, replicas, how, axis),
    )


def gather(replicas: Replicas, value: PyTree, axis: int) -> Any:
    """Puts the values of all replicas in a structure after each other; see `Strategy.gather`."""
    return _each(
        replicas, "gather", value, partial(_gather_values, replicas, axis), partial(_gather_common, replicas, axis)
    )


def _each(
    replicas: Replicas,
    call: str,
    value: PyTree,
    of_own: Callable[[PerReplica, Sequence[Shape]], Any],
    of_one: Callable[[Any], Any],
) -> Any:
    """Applies the one function to values of replicas with their shapes, the other to what all have alike."""
    # JAX drops a None from a structure in silence; as a leaf it is refused.
    leaves, structure = flatten(value, is_leaf=lambda leaf: leaf is None)
    own = [leaf for leaf in leaves if isinstance(leaf, PerReplica)]

    def combined() -> tuple[Any, Any]:
        shapes = iter(all_shapes(own, replicas) if own else ())
        found = [of_own(leaf, next(shapes)) if isinstance(leaf, PerReplica) else of_one(leaf) for leaf in leaves]
        is_whole = [isinstance(v, jax.Array) and not is_traced(v) and v.is_fully_replicated for v in found]
        # The copy that is there: what users get must be usable without the other processes.
        arrays = [local_copy(v) if whole else v for v, whole in zip(found, is_whole, strict=True)]
        last = arrays[-1] if arrays and isinstance(arrays[-1], jax.Array) and not is_traced(arrays[-1]) else None
        return structure.unflatten(arrays), last

    if not own or replicas.runtime.is_alone:
        return combined()[0]
    # It counts as in flight until its last array is there.
    return replicas.runtime.launch(f"strategy.{call}", combined)


def _reduce_values(
    replicas: Replicas, how: ReduceOp, axis: int | None, value: PerReplica, shapes: Sequence[Shape]
) -> jax.Array:
    place = None if axis is None else checked_axis(axis, shapes[0])
    _demand_alike(shapes, place, "reduced")
    stack = number_array(stacked(value, shapes, replicas))
    count = replicas.count if place is None else sum(shape[place] for shape in shapes)
    total = _sum_values(stack, replicas.count, not shapes[0], place, replicas.whole)
    return total / count if how is ReduceOp.MEAN else total


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _sum_values(stack: jax.Array, count: int, is_scalar: bool, axis: int | None, whole: Any) -> jax.Array:
    """Adds the replicas' values up."""
    # Those that are shorter were padded with zeros, which change no sum.
    each = _apart(stack, count, is_scalar)
    axes = (0,) if axis is None else (0, axis + 1)
    # The dtype is given because jnp.sum makes int32 of an int8; TensorFlow's reduce_sum keeps the type. Whole on each
    # device, so that each task reads its own copy without another exchange.
    return lax.with_sharding_constraint(each.sum(axes, dtype=stack.dtype), whole)


def _apart(stack: jax.Array, count: int, is_scalar: bool) -> jax.Array:
    """Returns one row for each replica."""
    return stack if is_scalar else stack.reshape(count, stack.shape[0] // count, *stack.shape[1:])


def _gather_values(replicas: Replicas, axis: int, value: PerReplica, shapes: Sequence[Shape]) -> jax.Array:
    place = checked_axis(axis, shapes[0])
    _demand_alike(shapes, place, "joined")
    lengths = tuple(shape[place] for shape in shapes)
    return _concat_values(stacked(value, shapes, replicas), lengths, place, replicas.whole)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _concat_values(stack: jax.Array, lengths: tuple[int, ...], axis: int, whole: Any) -> jax.Array:
    # One all-gather, of equal rows; the padding is cut off where all of it is there already.
    each = lax.with_sharding_constraint(_apart(stack, len(lengths), is_scalar=False), whole)
    return jnp.concatenate([lax.slice_in_dim(each[i], 0, n, axis=axis) for i, n in enumerate(lengths)], axis)


def _demand_alike(shapes: Sequence[Shape], axis: int | None, what: str) -> None:
    rest = {tuple(n for i, n in enumerate(shape) if i != axis) for shape in shapes}
    if len(rest) > 1 or len(set(map(len, shapes))) > 1:
        along = "" if axis is None else f", except along axis {axis}"
        raise ArgumentError(
            f"Values of replicas that are {what} must have one shape{along}. Received: {list(shapes)}."
            f"{difference(shapes, axis)} Where they "
            "differ in rows, reduce these, too, with axis=0, or gather them along it."
        )


def _reduce_common(replicas: Replicas, how: ReduceOp, axis: int | None, value: PyTree) -> Any:
    """Reduces a value that all replicas have: each has it, so that it counts as often in a sum."""
    if isinstance(value, InReplica):
        return _reduce_traced(how, axis, value)
    array = number_array(_plain(value))
    summed = array if axis is None else array.sum(checked_axis(axis, array.shape), dtype=array.dtype)
    if how is ReduceOp.MEAN:
        return summed / (1 if axis is None else array.shape[axis])
    if _is_mirrored(replicas, value):
        return summed * replicas.count
    # Refused by TensorFlow, too (cross_device_ops.reduce_non_distributed_value).
    if axis is None and replicas.count > 1:
        raise ArgumentError(
            "A sum over replicas needs a value of each. Received: a single one, of which it is not known whether each "
            f"replica has it ({str(value)[:80]}). Pass what strategy.run has returned, or multiply it yourself by "
            "num_replicas_in_sync."
        )
    return summed


def _gather_common(replicas: Replicas, axis: int, value: PyTree) -> Any:
    if isinstance(value, InReplica):
        return InReplica(value.exchange.gather(value.value, axis, None), value.exchange)
    array = jnp.asarray(_plain(value))
    place = checked_axis(axis, array.shape)
    return jnp.concatenate([array] * replicas.count, place) if _is_mirrored(replicas, value) else array


def _plain(value: PyTree) -> Any:
    return value.value if isinstance(value, Mirrored) else value


def _is_mirrored(replicas: Replicas, value: PyTree) -> bool:
    """Returns whether all replicas are known to have it: what `run` has returned."""
    if isinstance(value, Mirrored) or is_traced(value):
        return True
    return isinstance(value, jax.Array) and value.sharding == replicas.whole


def _reduce_traced(how: ReduceOp, axis: int | None, value: InReplica) -> InReplica:
    """Reduces a value of each replica, in the trace of one."""
    array, exchange = number_array(value.value), value.exchange
    if axis is None:
        return InReplica(exchange.reduce(how, array, None), exchange)
    place = checked_axis(axis, array.shape)
    total = exchange.reduce(ReduceOp.SUM, array.sum(place, dtype=array.dtype), None)
    if how is ReduceOp.MEAN:
        # Rows are summed, too: in a mean of means those of a small shard would count for more.
        total = total / exchange.reduce(ReduceOp.SUM, np.int32(array.shape[place]), None)
    return InReplica(total, exchange)
