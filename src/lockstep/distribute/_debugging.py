"""`Strategy.experimental_run_for_debugging`: replicas one after the other, as Python runs them."""

from __future__ import annotations

import contextlib
import sys
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from lockstep.distribute._collectives import checked_axis, demand_float, gather, number_array, reduce
from lockstep.distribute._communication import CommunicationOptions, checked_options
from lockstep.distribute._context import ReplicaContext, as_replica
from lockstep.distribute._run import Runner, checked
from lockstep.distribute._values import PerReplica, ReduceOp, is_variable, local_results, reduce_op
from lockstep.errors import ArgumentError, UnsupportedError

# How often a wait looks whether the other side still lives.
_LOOK_SECONDS = 1.0


class _Ended(BaseException):  # It is a way out of a function, not an error.
    """Another function has failed."""


@dataclass(eq=False)
class _Actor:
    """One function on its thread."""

    thread: threading.Thread
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    brings: tuple[str, Any] | None = None
    answer: Any = None
    result: Any = None
    error: BaseException | None = None
    has_ended: bool = False


class Stage:
    """Runs functions in turn: each until it meets the others or ends, then the next.

    Args:
        meet: Called on the caller's thread with what a meeting is about, and what each function brings; returns an
            answer for each.
    """

    def __init__(self, meet: Callable[[str, list[Any]], Sequence[Any]]) -> None:
        self._meet = meet
        self._back = threading.Semaphore(0)
        self._actors: list[_Actor] = []
        self._caller = threading.current_thread()
        self._is_over = False

    def run(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Returns what the functions return.

        Raises:
            ArgumentError: If they meet in different things.
            BaseException: What a function raises, with a note of which.
        """
        for number, function in enumerate(functions):
            target = threading.Thread(target=self._play, args=(number, function), name=f"replica {number}", daemon=True)
            self._actors.append(_Actor(target))
        try:
            return self._played()
        finally:
            self._end()

    def _played(self) -> list[Any]:
        for actor in self._actors:
            actor.thread.start()
        while True:
            for number, actor in enumerate(self._actors):
                self._continue(actor)
                if actor.error is not None:
                    actor.error.add_note(f"It was raised by replica {number} of this process.")
                    raise actor.error
            if all(actor.has_ended for actor in self._actors):
                return [actor.result for actor in self._actors]
            self._answer()

    def _continue(self, actor: _Actor) -> None:
        actor.go.release()
        while not self._back.acquire(timeout=_LOOK_SECONDS):
            if not actor.thread.is_alive():
                return

    def _answer(self) -> None:
        topics = ["the end" if a.brings is None else a.brings[0] for a in self._actors]
        if len(set(topics)) > 1:
            raise ArgumentError(
                "All replicas must come to the same collectives in the same order. Received: "
                f"{'; '.join(f'replica {i}: {topic}' for i, topic in enumerate(topics))}. Look for a condition that "
                "depends on the replica."
            )
        answers = self._meet(topics[0], [a.brings[1] for a in self._actors if a.brings])
        for actor, answer in zip(self._actors, answers, strict=True):
            actor.brings, actor.answer = None, answer

    def meet(self, number: int, topic: str, value: Any) -> Any:
        """Brings a value to a meeting; called by a function, on its thread. Returns its answer."""
        actor = self._actors[number]
        actor.brings = topic, value
        self._back.release()
        self._wait(actor)
        return actor.answer

    def _play(self, number: int, function: Callable[[], Any]) -> None:
        actor = self._actors[number]
        try:
            self._wait(actor)
            actor.result = function()
        except BaseException as error:  # It is raised on the caller's thread.
            actor.error = error
        finally:
            actor.has_ended = True
            self._back.release()

    def _wait(self, actor: _Actor) -> None:
        """Waits for the turn, as long as the caller lives."""
        while not actor.go.acquire(timeout=_LOOK_SECONDS):
            if not self._caller.is_alive():
                raise _Ended
        if self._is_over:
            raise _Ended

    def _end(self) -> None:
        self._is_over = True
        for actor in self._actors:
            actor.go.release()
        for actor in self._actors:
            if actor.thread.ident is not None and not actor.has_ended:
                actor.thread.join(_LOOK_SECONDS)


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
            stack.enter_context(_context.enter_strategy(strategy))
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
