"""How a replica's calls reach the others: while its function is traced, or where it is the only one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._engine.step import backends, sequential_emulation
from lockstep._engine.step.aggregation import Shards
from lockstep._engine.step.reduction import Reduction
from lockstep._engine.step.replica_invariance import mark_invariant
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._nest import flatten, map_structure
from lockstep.distribute import _context
from lockstep.distribute._options import CommunicationOptions, checked_options, reduction
from lockstep.distribute._reduce_op import ReduceOp, reduce_op
from lockstep.distribute._values import InReplica
from lockstep.errors import ArgumentError


class Exchange(Protocol):
    """What a `ReplicaContext` stands on; structures of anything."""

    count: int

    def number(self) -> Any: ...
    def reduce(self, op: ReduceOp | str, value: Any, options: CommunicationOptions | None) -> Any: ...
    def gather(self, value: Any, axis: int, options: CommunicationOptions | None) -> Any: ...
    def merge(
        self, strategy: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any: ...
    def average(self, gradients: Any) -> Any: ...
    def total(self, gradients: Any) -> Any: ...


class Alone:
    """The only replica."""

    count = 1

    def number(self) -> int:
        return 0

    def reduce(self, op: ReduceOp | str, value: Any, options: CommunicationOptions | None) -> Any:
        checked_options(options)
        mean = reduce_op(op) is ReduceOp.MEAN
        return map_structure(lambda v: jnp.true_divide(v, 1) if mean else v, map_structure(number_array, value))

    def gather(self, value: Any, axis: int, options: CommunicationOptions | None) -> Any:
        checked_options(options)
        return map_structure(lambda v: _with_axis(v, axis)[0], value)

    def merge(
        self, strategy: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        with _context.cross_replica():
            return function(strategy, *args, **kwargs)

    def average(self, gradients: Any) -> Any:
        return map_structure(demand_float, gradients)

    def total(self, gradients: Any) -> Any:
        return self.average(gradients)


class Traced:
    """A replica of a program that all run together, while its function is traced."""

    def __init__(self, replicas: Replicas) -> None:
        self.count = replicas.count
        self._reduction = replicas.reduction or Reduction()
        self._platform = replicas.devices[0].platform

    def number(self) -> Any:
        return lax.axis_index(AXIS)

    def reduce(self, op: ReduceOp | str, value: Any, options: CommunicationOptions | None) -> Any:
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
        if sequential_emulation.current() is not None:
            return [lax.psum(v, AXIS) for v in values]
        return list(_summed(tuple(values), how, self.count)) if values else []

    def gather(self, value: Any, axis: int, options: CommunicationOptions | None) -> Any:
        checked_options(options)
        return map_structure(lambda v: _gathered(*_with_axis(v, axis)), value)

    def merge(
        self, strategy: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        own = map_structure(lambda v: InReplica(v, self), (args, dict(kwargs)))
        with _context.cross_replica():
            found = function(strategy, *own[0], **own[1])
        return map_structure(lambda v: v.value if isinstance(v, InReplica) else v, found)

    def average(self, gradients: Any) -> Any:
        gradients = map_structure(demand_float, gradients)
        turn = sequential_emulation.current()
        if turn is None:
            shares = Shards([None], [1.0 / self.count], AXIS, self.count, self._reduction)
            return mark_invariant(shares.mean_of_gradients([gradients]))
        return map_structure(lambda g: lax.pmean(turn.weight_mean(g), AXIS), gradients)

    def total(self, gradients: Any) -> Any:
        """Adds gradients up, in the way that the strategy's options ask for."""
        if sequential_emulation.current() is not None or not self._reduction.compresses:
            return self.reduce(ReduceOp.SUM, gradients, None)
        shares = Shards([None], [1.0], AXIS, self.count, self._reduction)
        return mark_invariant(shares.mean_of_gradients([gradients]))


def _summed(values: tuple[Any, ...], how: Reduction, count: int) -> tuple[Any, ...]:
    """Sums over the replicas; their gradients are sums, too."""
    if how.algorithm == "all_reduce" and not how.packs and not how.pack_bytes and not backends.all_reduce(AXIS, count):
        return tuple(lax.psum(v, AXIS) for v in values)
    total = jax.custom_vjp(lambda *vs: tuple(mark_invariant(how.sum(vs, AXIS, count))))
    total.defvjp(lambda *vs: (total(*vs), None), lambda _, cotangents: _summed(tuple(cotangents), how, count))
    return total(*values)


def _gathered(value: Any, axis: int) -> Any:
    """Values of all replicas after each other; their lengths may differ where replicas are traced one by one."""
    turn = sequential_emulation.current()
    lengths = None if turn is None else turn.lengths(value.shape[axis])
    if lengths is None or len(set(lengths)) == 1:
        return lax.all_gather(value, AXIS, axis=axis, tiled=True)
    widths = [(0, max(lengths) - value.shape[axis] if i == axis else 0) for i in range(value.ndim)]
    padded = lax.all_gather(jnp.pad(value, widths), AXIS)
    pieces = [lax.slice_in_dim(padded[i], 0, n, axis=axis) for i, n in enumerate(lengths)]
    return jnp.concatenate(pieces, axis)


def number_array(value: Any) -> Any:
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


def demand_float(value: Any) -> Any:
    """Returns a gradient as an array; raises `ArgumentError` if it is no float."""
    array = jnp.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        raise ArgumentError(
            f"Gradients are floats. Received: a value of type {array.dtype}{list(array.shape)}. Use all_reduce for "
            "anything else."
        )
    return array


def _with_axis(value: Any, axis: int) -> tuple[Any, int]:
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
