"""Values of several replicas, and the names of their reductions."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax._src.array import ArrayImpl  # jax.device_put cannot take an array's device away without a copy by the host.

from lockstep._engine.step.jaxprs import is_traced
from lockstep._engine.step.replicas import Replicas
from lockstep._nest import flatten
from lockstep._types import PyTree
from lockstep.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from lockstep.distribute._collectives import Exchange


class ReduceOp(enum.Enum):
    """How values of several replicas are combined. Source: tf.distribute.ReduceOp."""

    SUM = "SUM"
    """Added up."""
    MEAN = "MEAN"
    """Averaged."""


def reduce_op(value: ReduceOp | str) -> ReduceOp:
    """Returns the operation of this name, in any case; raises `ArgumentError` if there is none."""
    name: Any = getattr(value, "name", value)  # TensorFlow's own ReduceOp has the same names.
    try:
        return ReduceOp[name.upper()]
    except (KeyError, AttributeError):
        raise ArgumentError(f"A reduction must be SUM or MEAN. Received: {value!r}. Example: ReduceOp.SUM") from None


Shape = tuple[int, ...]


class UnsupportedValueError(UnsupportedError, NotImplementedError):
    """A value is of a kind that a function does not take."""


class Rows(abc.ABC):
    """Rows of a larger array, which replicas add up by putting theirs after each other."""

    @abc.abstractmethod
    def added_up(self, gather: Callable[[Any], Any], divisor: int) -> Any:
        """Returns the rows of all replicas, divided by a number.

        Args:
            gather: Returns arrays of all replicas after each other, along their first axis.
            divisor: 1 for their sum.
        """


def is_rows(leaf: object) -> bool:
    """Returns whether a value is rows of an array."""
    return isinstance(leaf, Rows)


def demand_arrays(call: str, value: PyTree) -> None:
    """Raises `UnsupportedValueError` if there are rows of arrays in a structure."""
    kinds = {type(leaf).__name__ for leaf in flatten(value, is_leaf=is_rows)[0] if is_rows(leaf)}
    if kinds:
        raise UnsupportedValueError(
            f"{call} does not support {kinds.pop()}, whose rows are of a larger array. Gather its values and indices, "
            "or what tf.convert_to_tensor makes of it."
        )


class DistributedValues:
    """One value for each replica. Source: tf.distribute.DistributedValues."""

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of the replicas of this process, in their order."""
        raise _abstract(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{i}: {v!r}' for i, v in enumerate(self.values))})"

    def numpy(self) -> Any:
        """Returns a copy of the value of this process' only replica as a numpy array or scalar.

        Raises:
            ArgumentError: If this process has several replicas.
        """
        return np.array(self._only())[()]

    @property
    def shape(self) -> Any:
        """The shape of the value of this process' only replica."""
        return self._only("shape").shape

    @property
    def dtype(self) -> Any:
        """The type of the elements of the value of this process' only replica."""
        return self._only("dtype").dtype

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the value of this process' only replica; refuses several, which are not one."""
        # Without this numpy would make an array of one object of it, in silence.
        return np.asarray(self._only(), *args, **kwargs)

    def __float__(self) -> float:
        return float(self._only())

    def __int__(self) -> int:
        return int(self._only())

    def __format__(self, format_spec: str) -> str:
        # As TensorFlow's scalars: f"{loss:.3f}" of a worker with one replica.
        return format(self.numpy(), format_spec) if format_spec else str(self)

    def _only(self, attribute: str | None = None) -> Any:
        values = self.values
        if len(values) == 1:
            return values[0]
        if attribute is not None:
            # An AttributeError: numpy and jax ask any object for these.
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {attribute!r}")
        raise _several(type(self))


class PerReplica(DistributedValues):
    """A value for each replica, which may differ.

    Args:
        values: Those of this process' replicas, in their order.
        shapes: Of the values of all replicas, if they are known; a job of one process knows them.

    Source: tf.types.experimental.distributed.PerReplica.
    """

    def __init__(self, values: Sequence[Any], shapes: Sequence[Shape] | None = None) -> None:
        self._values: tuple[Any, ...] | None = tuple(values)
        self._stack: jax.Array | None = None
        self.shapes = None if shapes is None else tuple(map(tuple, shapes))

    @classmethod
    def of_stack(cls, stack: jax.Array, count: int, is_scalar: bool) -> PerReplica:
        """Returns the values in an array that is divided over the replicas along its first axis, without a copy.

        Args:
            stack: The values of all replicas, one after the other.
            count: How many replicas there are.
            is_scalar: Whether each has no dimensions, and is a row of the array.
        """
        found = cls(())
        each: Shape = () if is_scalar else (stack.shape[0] // count, *stack.shape[1:])
        # Not cut into values yet: most go straight into the next call of `run`, which wants the whole.
        found._values, found._stack, found.shapes = None, stack, (each,) * count
        return found

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of the replicas of this process, in their order, each on its replica's device.

        They can be computed with together, as if they were on one device: `jnp.concatenate(per_replica.values)`.
        """
        return self._free_values

    @cached_property
    def _free_values(self) -> tuple[Any, ...]:
        found = self.on_devices
        return tuple(map(_free, found)) if len(found) > 1 else found

    @property
    def on_devices(self) -> tuple[Any, ...]:
        """The values of the replicas of this process, which JAX refuses to bring together."""
        if self._values is None:
            assert self._stack is not None and self.shapes is not None
            # JAX lists shards by device, which need not be the order of the replicas.
            shards = sorted(self._stack.addressable_shards, key=lambda s: s.index[0].start or 0)
            self._values = tuple(s.data.reshape(self.shapes[0]) if not self.shapes[0] else s.data for s in shards)
        return self._values

    @property
    def stack(self) -> jax.Array | None:
        """All values in one array, if they came so."""
        return self._stack

    def keep_stack(self, stack: jax.Array) -> None:
        """Remembers the values as one array."""
        self._stack = stack

    @cached_property
    def own_shapes(self) -> tuple[Shape, ...]:
        """The shapes of the values of this process."""
        if self._values is None and self.shapes:
            return self.shapes[:1]
        return tuple(tuple(np.shape(v)) for v in self.on_devices)


def _free(value: Any) -> Any:
    """Returns an array that JAX moves to where it is needed, without a copy until then."""
    if not isinstance(value, ArrayImpl) or is_traced(value) or not value.committed:
        return value
    return ArrayImpl(value.aval, value.sharding, [value], committed=False)


class Mirrored(DistributedValues):
    """One value that all replicas have.

    Args:
        value: The value.
        count: How many replicas this process has.

    Source: tf.types.experimental.distributed.Mirrored.
    """

    def __init__(self, value: PyTree, count: int = 1) -> None:
        self.value = value
        self._count = count

    @property
    def values(self) -> tuple[Any, ...]:
        """The value, once for each replica of this process."""
        return (self.value,) * self._count

    def _only(self, attribute: str | None = None) -> Any:
        return self.value


class InReplica(DistributedValues):
    """A value that each replica has passed to `merge_call`, as the trace of one of them sees it."""

    def __init__(self, value: PyTree, exchange: Exchange) -> None:
        self.value = value
        self.exchange = exchange

    @property
    def values(self) -> tuple[Any, ...]:
        """Refuses: one replica's trace does not have the others' values."""
        raise ArgumentError(
            "Values of single replicas are not there in merge_call, which is traced once. Received: a request for "
            "them. Use strategy.reduce or strategy.gather."
        )

    @property
    def shape(self) -> Any:
        """The shape of a replica's value."""
        return np.shape(self.value)

    @property
    def dtype(self) -> Any:
        """The type of the elements of a replica's value."""
        return self.value.dtype

    def __repr__(self) -> str:
        return f"InReplica({self.value!r})"


def _several(kind: type) -> ArgumentError:
    return ArgumentError(
        "What is written for all replicas together, not inside a replica context, needs one value. Received: a "
        f"{kind.__name__}, which has one for each replica. Use strategy.reduce, strategy.gather or "
        "strategy.experimental_local_results; or pass it to strategy.run, whose function gets one replica's."
    )


def _abstract(kind: type) -> ArgumentError:
    return ArgumentError(f"Values of replicas are PerReplica or Mirrored. Received: {kind.__name__}.")


def per_replica(structures: Sequence[Any], shapes: Any = None, count: int | None = None) -> Any:
    """Returns a structure for each replica of this process as one structure of values for each replica.

    Args:
        structures: One for each replica of this process.
        shapes: In the same structure: for each array its shapes on all replicas. Default: not known.
        count: How many replicas there are; the values of a single one come as they are. Default: those of this process.
    """
    if (len(structures) if count is None else count) == 1:
        return structures[0]
    leaves, found_structures = zip(*map(flatten, structures), strict=True)
    known = [None] * len(leaves[0]) if shapes is None else shapes
    found = [PerReplica(values, s) for values, s in zip(zip(*leaves, strict=True), known, strict=True)]
    return found_structures[0].unflatten(found)


def local_results(value: PyTree, replicas: Replicas | None = None) -> tuple[Any, ...]:
    """Returns what each replica of this process has of a structure."""
    leaves, structure = flatten(value)
    # As in TensorFlow: of a structure each replica has one, of a single plain value there is one.
    is_plain = isinstance(value, (list, tuple, dict)) and not any(isinstance(v, DistributedValues) for v in leaves)
    if replicas is not None and (is_plain or any(_all_have(v, replicas) for v in leaves)):
        count = len(replicas.local)
    else:
        count = max([len(v.values) for v in leaves if isinstance(v, DistributedValues)], default=1)
    parts = [v.values if isinstance(v, DistributedValues) else (v,) * count for v in leaves]
    return tuple(structure.unflatten(values) for values in zip(*parts, strict=True)) if leaves else (value,)


def is_variable(value: PyTree) -> bool:
    """Returns whether a value is a variable of Keras, without importing it."""
    return hasattr(value, "_direct_assign")


def _all_have(value: PyTree, replicas: Replicas) -> bool:
    """Returns whether all replicas are known to have a value: variables, and what `run` has returned."""
    # In an outer trace there is one value for all.
    return is_variable(value) or is_traced(value) or (isinstance(value, jax.Array) and value.sharding == replicas.whole)


@dataclass(frozen=True)
class ValueContext:
    """For which replica a value is asked.

    Attributes:
        replica_id_in_sync_group: Its number.
        num_replicas_in_sync: How many there are.

    Source: tf.distribute.experimental.ValueContext.
    """

    replica_id_in_sync_group: int = 0
    num_replicas_in_sync: int = 1


def values_from_function(replicas: Replicas, function: Callable[[ValueContext], Any]) -> Any:
    """Calls a function for each replica; see `Strategy.experimental_distribute_values_from_function`."""
    values = [function(ValueContext(i, replicas.count)) for i, _ in replicas.local]
    leaves, structures = zip(*map(jax.tree.flatten, values), strict=True)
    # Before the exchange: a task that fails alone would leave the others waiting.
    if any(s != structures[0] for s in structures):
        raise ArgumentError(
            "A function that makes values for replicas must return the same structure for each. Received: "
            f"{' and '.join(map(str, dict.fromkeys(structures)))}."
        )
    mine = [[list(np.shape(v)) for v in of_replica] for of_replica in leaves]
    # Tasks exchange shapes alone; values stay where they are.
    runtime = replicas.runtime
    with runtime.collective_region("strategy.experimental_distribute_values_from_function"):
        everyone = runtime.all_gather_object("values of a function for each replica", mine)
    if len({len(one) for task in everyone for one in task}) > 1:
        raise ArgumentError(
            "A function that makes values for replicas must return the same structure for each. Received: different "
            "numbers of values on different tasks."
        )
    shapes = [[tuple(one[k]) for task in everyone for one in task] for k in range(len(leaves[0]))]
    return per_replica(values, shapes, replicas.count)
