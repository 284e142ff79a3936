"""`Strategy.experimental_run_for_debugging`: replicas one after the other, as Python runs them."""

from __future__ import annotations

import contextlib
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.step import sequential_emulation
from lockstep._engine.step.jaxprs import is_traced
from lockstep._engine.step.placement import local_copy, replicate
from lockstep._engine.step.replicas import Device, Replicas
from lockstep._engine.step.sequential_emulation import check_one_structure
from lockstep._nest import flatten, map_structure
from lockstep.distribute import _context
from lockstep.distribute._arguments import all_shapes, rows_of
from lockstep.distribute._exchange import checked_axis, demand_float, number_array
from lockstep.distribute._options import CommunicationOptions, checked_options
from lockstep.distribute._reduce import gather, reduce
from lockstep.distribute._reduce_op import ReduceOp, reduce_op
from lockstep.distribute._replica_context import ReplicaContext, as_replica
from lockstep.distribute._run import Runner, checked
from lockstep.distribute._stage import Stage
from lockstep.distribute._values import PerReplica, is_variable, local_results
from lockstep.errors import UnsupportedError


def run_for_debugging(
    strategy: Any, runner: Runner, replicas: Replicas, function: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """See `Strategy.experimental_run_for_debugging`."""
    given = map_structure(_as_values, checked(function, args, kwargs))
    own = [leaf for leaf in jax.tree.leaves(given) if isinstance(leaf, PerReplica)]
    rows = rows_of(all_shapes(own, replicas)) if own else ()
    shares = local_results(given)
    shares = shares * len(replicas.local) if len(shares) == 1 else shares
    stage = Stage(partial(_met, strategy, replicas))
    calls = [
        _Call(
            ReplicaContext(strategy, _Eager(stage, place, sequential_emulation.Turn(number, replicas.count, rows))),
            runner,
            number,
            device,
        )
        for place, (number, device) in enumerate(replicas.local)
    ]
    results = stage.run([partial(c, function, *share) for c, share in zip(calls, shares, strict=True)])
    _assign(replicas, runner, [c.assigned for c in calls])
    return _merged(replicas, [map_structure(partial(_value_of, runner, replicas, i), r) for i, r in enumerate(results)])


def _value_of(runner: Runner, replicas: Replicas, place: int, leaf: Any) -> Any:
    """Returns the value of a variable after the function, which `run` returns for it."""
    if not is_variable(leaf):
        return leaf
    own = runner.held.own_values(leaf)
    return replicate(replicas, leaf.value) if own is None else own.values[place]


def _as_values(leaf: Any) -> Any:
    """What is on all devices as the one of this process' first replica, so that each can get its own copy."""
    is_spread = isinstance(leaf, jax.Array) and not is_traced(leaf) and len(leaf.sharding.device_set) > 1
    return local_copy(leaf) if is_spread else leaf


class _Call:
    """One replica's call of the function.

    Attributes:
        assigned: Keras variables, when it has ended.
    """

    def __init__(self, context: ReplicaContext, runner: Runner, number: int, device: Device) -> None:
        self._context = context
        self._runner = runner
        self._number = number
        self._device = device
        self.assigned: list[Any] = []

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        args, kwargs = map_structure(self._put, (args, kwargs))
        scope = self._scope()
        with jax.disable_jit(), jax.default_device(self._device), as_replica(self._context):
            with scope or contextlib.nullcontext():
                found = function(*args, **kwargs)
            self.assigned = [] if scope is None else scope.assigned()
        return found

    def _put(self, leaf: Any) -> Any:
        is_array = isinstance(leaf, (jax.Array, np.ndarray)) and leaf.dtype != object
        return jax.device_put(leaf, self._device) if is_array else leaf

    def _scope(self) -> Any:
        if "keras" not in sys.modules:
            return None
        from lockstep.distribute._variables import Scope

        return Scope(self._context, self._value, self._is_to_sum)

    def _value(self, variable: Any) -> Any:
        return self._runner.held.value_of(variable, self._number, self._device)

    def _is_to_sum(self, key: str, gradients: list[Any]) -> bool:
        """Gradients that are equal already are not added up."""
        del key
        return not self._context.merge_call(lambda strategy, own: _are_equal(strategy, own), args=(gradients,))


def _are_equal(strategy: Any, own: Any) -> bool:
    replicas: Replicas = strategy._demanded_replicas()
    return all(_is_same(replicas, value.values) for value in jax.tree.leaves(own))


def _is_same(replicas: Replicas, values: Sequence[Any]) -> bool:
    """Whether all replicas have the same."""
    found = [zlib.crc32(f"{np.shape(v)}{np.asarray(v).dtype}".encode() + _bytes(v)) for v in values]
    runtime = replicas.runtime
    everyone = [found] if runtime.is_alone else runtime.agree("values that may be equal", found)
    return len({one for task in everyone for one in task}) == 1


def _bytes(value: Any) -> bytes:
    return np.asarray(
        jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value
    ).tobytes()


class _Eager:
    """How a replica reaches the others while all run one after the other.

    Args:
        stage: Where they meet.
        place: Of this replica on it.
        turn: Which replica this is.
    """

    def __init__(self, stage: Stage, place: int, turn: sequential_emulation.Turn) -> None:
        self._stage = stage
        self._place = place
        self._turn = turn
        self.count = turn.count

    def number(self) -> int:
        return self._turn.number

    def reduce(self, op: ReduceOp | str, value: Any, options: CommunicationOptions | None) -> Any:
        checked_options(options)
        mean = reduce_op(op) is ReduceOp.MEAN
        leaves, structure = flatten(value)
        sums = self._sums(*map(number_array, leaves))
        return structure.unflatten([v / self.count for v in sums] if mean else sums)

    def _sums(self, *values: Any) -> Any:
        """The gradient of a sum over replicas is the sum of theirs."""
        total = jax.custom_vjp(lambda *vs: tuple(self._meet("all_reduce", vs)))
        total.defvjp(lambda *vs: (total(*vs), None), lambda _, cotangents: tuple(self._sums(*cotangents)))
        return total(*values)

    def gather(self, value: Any, axis: int, options: CommunicationOptions | None) -> Any:
        checked_options(options)
        return map_structure(lambda v: self._gathered(jnp.asarray(v), axis), value)

    def _gathered(self, value: Any, axis: int) -> Any:
        place = checked_axis(axis, value.shape)

        def back(start: int, cotangent: Any) -> tuple[Any]:
            (total,) = self._sums(cotangent)
            return (jax.lax.dynamic_slice_in_dim(total, start, value.shape[place], place),)

        def forward(v: Any) -> tuple[Any, int]:
            found, start = self._meet(f"all_gather along axis {place}", v)
            return found, start

        gathered = jax.custom_vjp(lambda v: forward(v)[0])
        gathered.defvjp(forward, back)
        return gathered(value)

    def merge(
        self, strategy: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        del strategy
        return self._meet("merge_call", (function, args, dict(kwargs)))

    def average(self, gradients: Any) -> Any:
        return self.reduce(
            ReduceOp.MEAN, map_structure(self._turn.weight_mean, map_structure(demand_float, gradients)), None
        )

    def total(self, gradients: Any) -> Any:
        return self.reduce(ReduceOp.SUM, gradients, None)

    def _meet(self, topic: str, value: Any) -> Any:
        if any(map(is_traced, jax.tree.leaves(value))):
            raise UnsupportedError(
                "While replicas run one after the other, they can exchange values that are known. Received: a traced "
                f"value in {topic}, inside of jax.jit or a loop. Take it out of there for debugging."
            )
        return self._stage.meet(self._place, topic, value)


def _met(strategy: Any, replicas: Replicas, topic: str, values: list[Any]) -> Sequence[Any]:
    """What replicas get that have met, each on its device."""
    if topic == "merge_call":
        return _merge(strategy, replicas, values)
    if topic == "all_reduce":
        columns = [PerReplica(column) for column in zip(*values, strict=True)]
        found = reduce(replicas, ReduceOp.SUM, columns, None)
        return [[jax.device_put(v, device) for v in found] for _, device in replicas.local]
    axis = int(topic.rsplit(" ", 1)[-1])
    lengths = all_shapes([PerReplica(values)], replicas)[0]
    starts = np.cumsum([0, *(shape[axis] for shape in lengths)])
    found = gather(replicas, PerReplica(values), axis)
    return [(jax.device_put(found, device), int(starts[i])) for i, device in replicas.local]


def _merge(strategy: Any, replicas: Replicas, calls: list[Any]) -> Sequence[Any]:
    function = calls[0][0]
    args, kwargs = map_structure(lambda *values: PerReplica(values), *[call[1:] for call in calls])
    with contextlib.ExitStack() as stack:
        if strategy is not _context.default():
            stack.enter_context(_context.entered(strategy))
        stack.enter_context(_context.cross_replica())
        found = function(strategy, *args, **kwargs)
    own = local_results(found)
    return own * len(replicas.local) if len(own) == 1 else own


def _assign(replicas: Replicas, runner: Runner, assigned: Sequence[Sequence[Any]]) -> None:
    """Gives variables what the replicas have made of them."""
    for of_each in zip(*assigned, strict=True):
        runner.held.assign(of_each, _is_same(replicas, [a.result for a in of_each]))


def _merged(replicas: Replicas, results: Sequence[Any]) -> Any:
    """What all replicas return as one value, as `run` returns it; the rest as one for each."""
    if replicas.count == 1:
        return results[0]
    columns, structures = zip(*map(flatten, results), strict=True)
    check_one_structure(structures)
    return structures[0].unflatten([_merged_leaf(replicas, column) for column in zip(*columns, strict=True)])


def _merged_leaf(replicas: Replicas, column: Sequence[Any]) -> Any:
    is_array = isinstance(column[0], (jax.Array, np.ndarray, np.generic))
    if not is_array and not isinstance(column[0], (bool, int, float, complex)):
        return column[0] if all(v is column[0] or v == column[0] for v in column) else PerReplica(column)
    arrays = [jnp.asarray(v) for v in column]
    if not _is_same(replicas, arrays):
        return PerReplica(arrays)
    return replicate(replicas, arrays[0]) if is_array else column[0]
