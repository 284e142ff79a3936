"""`Strategy.experimental_run_for_debugging`: replicas one after the other, as Python runs them."""

from __future__ import annotations

import contextlib
import sys
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.step.jaxprs import is_traced
from lockstep._engine.step.placement import local_copy, replicate
from lockstep._engine.step.replicas import Device, Replicas
from lockstep._engine.step.sequential_emulation import Turn, check_one_structure
from lockstep._nest import flatten, map_structure
from lockstep._types import Array, PyTree, Variable
from lockstep.distribute import _context
from lockstep.distribute._arguments import all_shapes, rows_of
from lockstep.distribute._collectives import checked_axis, demand_float, gather, number_array, reduce
from lockstep.distribute._communication import CommunicationOptions, checked_options
from lockstep.distribute._context import ReplicaContext, as_replica
from lockstep.distribute._run import Runner, check_call
from lockstep.distribute._values import PerReplica, ReduceOp, is_variable, local_results, reduce_op
from lockstep.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from lockstep.distribute._strategy import Strategy
    from lockstep.distribute._variables import Assigned, Scope

# How often a wait looks whether the other side still lives.
_POLL_SECONDS = 1.0


def run_for_debugging(
    strategy: Strategy, runner: Runner, replicas: Replicas, function: Callable[..., PyTree], args: Any, kwargs: Any
) -> PyTree:
    """Runs a function once per replica; see `Strategy.experimental_run_for_debugging`."""

    def to_local(leaf: Any) -> Any:
        # Of an array on all devices each replica gets a copy of its own, made from the one of this process.
        is_spread = isinstance(leaf, jax.Array) and not is_traced(leaf) and len(leaf.sharding.device_set) > 1
        return local_copy(leaf) if is_spread else leaf

    def value_of(place: int, leaf: Any) -> Any:
        # `run` returns a variable's value after the function.
        if not is_variable(leaf):
            return leaf
        own = runner.held.own_values(leaf)
        return replicate(replicas, leaf.value) if own is None else own.values[place]

    given = map_structure(to_local, check_call(function, args, kwargs))
    own = [leaf for leaf in jax.tree.leaves(given) if isinstance(leaf, PerReplica)]
    rows = rows_of(all_shapes(own, replicas)) if own else ()
    shards = local_results(given)
    shards = shards * len(replicas.local) if len(shards) == 1 else shards
    scheduler = Scheduler(partial(_compute_collective, strategy, replicas))
    calls = [
        _Call(
            ReplicaContext(strategy, _Eager(scheduler, place, Turn(number, replicas.count, rows))),
            runner,
            number,
            device,
        )
        for place, (number, device) in enumerate(replicas.local)
    ]
    results = scheduler.run([partial(c, function, *shard) for c, shard in zip(calls, shards, strict=True)])
    # When all have ended, not before: a replica whose turn is later must read the value of before the call, as in
    # `run`.
    for of_each in zip(*(c.assigned for c in calls), strict=True):
        runner.held.assign(of_each, _is_same(replicas, [a.result for a in of_each]))
    return _merge_results(replicas, [map_structure(partial(value_of, i), r) for i, r in enumerate(results)])


class _Ended(BaseException):  # It is a way out of a function, not an error.
    """Another function has failed."""


@dataclass(eq=False)
class _ReplicaThread:
    """One replica's function on its thread."""

    thread: threading.Thread
    may_run: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    request: tuple[str, Any] | None = None
    answer: Any = None
    result: PyTree = None
    error: BaseException | None = None
    has_ended: bool = False


class Scheduler:
    """Runs functions one at a time, each on a thread of its own until it comes to a collective or ends.

    `compute` is called on the caller's thread with the name of a collective and the value of each function; it returns
    an answer for each.
    """

    def __init__(self, compute: Callable[[str, list[Any]], Sequence[Any]]) -> None:
        self._compute = compute
        self._has_yielded = threading.Semaphore(0)
        self._threads: list[_ReplicaThread] = []
        self._caller = threading.current_thread()
        self._is_over = False

    def run(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Returns what the functions return.

        Raises:
            ArgumentError: If they come to different collectives.
            BaseException: The error of a function, with a note of which.
        """
        for number, function in enumerate(functions):
            # Daemons: a function that hangs must not keep the interpreter from its end.
            thread = threading.Thread(
                target=self._run_one, args=(number, function), name=f"replica {number}", daemon=True
            )
            self._threads.append(_ReplicaThread(thread))
        try:
            for each in self._threads:
                each.thread.start()
            while True:
                for number, each in enumerate(self._threads):
                    each.may_run.release()
                    # A thread that died without a word would be waited for for ever.
                    while not self._has_yielded.acquire(timeout=_POLL_SECONDS) and each.thread.is_alive():
                        pass
                    if each.error is not None:
                        each.error.add_note(f"It was raised by replica {number} of this process.")
                        raise each.error
                if all(each.has_ended for each in self._threads):
                    return [each.result for each in self._threads]
                self._answer_requests()
        finally:
            # The flag comes before the permits: a thread that wakes up looks at it, and must not go on.
            self._is_over = True
            for each in self._threads:
                each.may_run.release()
            for each in self._threads:
                if each.thread.ident is not None and not each.has_ended:
                    # Not for ever: the function may hang, or catch everything; its thread is a daemon.
                    each.thread.join(_POLL_SECONDS)

    def _answer_requests(self) -> None:
        topics = ["the end" if each.request is None else each.request[0] for each in self._threads]
        if len(set(topics)) > 1:
            raise ArgumentError(
                "All replicas must come to the same collectives in the same order. Received: "
                f"{'; '.join(f'replica {i}: {topic}' for i, topic in enumerate(topics))}. Look for a condition that "
                "depends on the replica."
            )
        # On the caller's thread, not the replicas': tasks exchange in the order of their main threads' calls.
        answers = self._compute(topics[0], [each.request[1] for each in self._threads if each.request])
        for each, answer in zip(self._threads, answers, strict=True):
            each.request, each.answer = None, answer

    def collective(self, number: int, topic: str, value: PyTree) -> Any:
        """Brings a function's value to a collective; called on its thread. Returns its answer."""
        each = self._threads[number]
        each.request = topic, value
        self._has_yielded.release()
        self._wait(each)
        return each.answer

    def _run_one(self, number: int, function: Callable[[], Any]) -> None:
        each = self._threads[number]
        try:
            self._wait(each)
            each.result = function()
        except BaseException as error:  # It is raised on the caller's thread.
            each.error = error
        finally:
            # Before the release, after which the caller looks at it.
            each.has_ended = True
            self._has_yielded.release()

    def _wait(self, each: _ReplicaThread) -> None:
        """Waits for the turn, as long as the caller lives."""
        while not each.may_run.acquire(timeout=_POLL_SECONDS):
            if not self._caller.is_alive():
                raise _Ended
        if self._is_over:
            raise _Ended


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
        self.assigned: list[Assigned] = []

    def __call__(self, function: Callable[..., PyTree], args: Any, kwargs: Any) -> PyTree:
        def put(leaf: Any) -> Any:
            is_array = isinstance(leaf, (jax.Array, np.ndarray)) and leaf.dtype != object
            return jax.device_put(leaf, self._device) if is_array else leaf

        args, kwargs = map_structure(put, (args, kwargs))
        scope = self._make_scope()
        with jax.disable_jit(), jax.default_device(self._device), as_replica(self._context):
            with scope or contextlib.nullcontext():
                result = function(*args, **kwargs)
            self.assigned = [] if scope is None else scope.assigned()
        return result

    def _make_scope(self) -> Scope | None:
        # A function that never imported Keras has no variables, and must not pay for the import.
        if "keras" not in sys.modules:
            return None
        from lockstep.distribute._variables import Scope

        def value_of(variable: Variable) -> Any:
            return self._runner.held.value_of(variable, self._number, self._device)

        def is_to_sum(key: str, gradients: list[Array]) -> bool:
            # Gradients that are equal already are not added up.
            del key
            return not self._context.merge_call(_are_equal, args=(gradients,))

        return Scope(self._context, value_of, is_to_sum)


def _are_equal(strategy: Strategy, own: PyTree) -> bool:
    replicas = strategy._demanded_replicas()  # pyright: ignore[reportPrivateUsage]
    return all(_is_same(replicas, value.values) for value in jax.tree.leaves(own))


def _is_same(replicas: Replicas, values: Sequence[Array]) -> bool:
    """Returns whether all replicas have the same, of all processes."""

    def checksum(value: Array) -> int:
        is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        content = np.asarray(jax.random.key_data(value) if is_key else value)
        return zlib.crc32(f"{np.shape(value)}{np.asarray(value).dtype}".encode() + content.tobytes())

    # Four bytes travel for a value. Of its bytes, so that a NaN equals itself.
    mine = [checksum(value) for value in values]
    runtime = replicas.runtime
    everyone = [mine] if runtime.is_alone else runtime.all_gather_object("values that may be equal", mine)
    return len({one for task in everyone for one in task}) == 1


class _Eager:
    """Exchange of a replica while all run one after the other."""

    def __init__(self, scheduler: Scheduler, place: int, turn: Turn) -> None:
        self._scheduler = scheduler
        self._place = place
        self._turn = turn
        self.count = turn.count

    def number(self) -> int:
        return self._turn.number

    def reduce(self, op: ReduceOp | str, value: PyTree, options: CommunicationOptions | None) -> PyTree:
        checked_options(options)
        is_mean = reduce_op(op) is ReduceOp.MEAN
        leaves, structure = flatten(value)
        sums = self._sum(*map(number_array, leaves))
        return structure.unflatten([v / self.count for v in sums] if is_mean else sums)

    def _sum(self, *values: Array) -> Any:
        # The gradient of a sum over replicas is the sum of theirs.
        total = jax.custom_vjp(lambda *vs: tuple(self._collective("all_reduce", vs)))
        total.defvjp(lambda *vs: (total(*vs), None), lambda _, cotangents: tuple(self._sum(*cotangents)))
        return total(*values)

    def gather(self, value: PyTree, axis: int, options: CommunicationOptions | None) -> PyTree:
        checked_options(options)
        return map_structure(lambda v: self._gather(jnp.asarray(v), axis), value)

    def _gather(self, value: Array, axis: int) -> Array:
        place = checked_axis(axis, value.shape)

        def forward(v: Array) -> tuple[Array, int]:
            # The axis is in the topic, so that replicas which gather along different ones are told so.
            gathered, start = self._collective(f"all_gather along axis {place}", v)
            return gathered, start

        def backward(start: int, cotangent: Array) -> tuple[Array]:
            # Every replica has used the whole: the gradient of a block is the sum of what all send back for it.
            (total,) = self._sum(cotangent)
            return (jax.lax.dynamic_slice_in_dim(total, start, value.shape[place], place),)

        gathered = jax.custom_vjp(lambda v: forward(v)[0])
        gathered.defvjp(forward, backward)
        return gathered(value)

    def merge(
        self, strategy: Strategy, function: Callable[..., PyTree], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> PyTree:
        del strategy
        return self._collective("merge_call", (function, args, dict(kwargs)))

    def average(self, gradients: PyTree) -> PyTree:
        weighted = map_structure(self._turn.weight_mean, map_structure(demand_float, gradients))
        return self.reduce(ReduceOp.MEAN, weighted, None)

    def total(self, gradients: PyTree) -> PyTree:
        return self.reduce(ReduceOp.SUM, gradients, None)

    def _collective(self, topic: str, value: PyTree) -> Any:
        if any(map(is_traced, jax.tree.leaves(value))):
            raise UnsupportedError(
                "While replicas run one after the other, they can exchange values that are known. Received: a traced "
                f"value in {topic}, inside of jax.jit or a loop. Take it out of there for debugging."
            )
        return self._scheduler.collective(self._place, topic, value)


def _compute_collective(strategy: Strategy, replicas: Replicas, topic: str, values: list[Any]) -> Sequence[Any]:
    """Returns the result of a collective for each replica of this process, on its device."""
    if topic == "merge_call":
        function = values[0][0]
        args, kwargs = map_structure(lambda *of_each: PerReplica(of_each), *[call[1:] for call in values])
        with contextlib.ExitStack() as stack:
            # The default strategy has no scope to be in.
            if strategy is not _context.default():
                stack.enter_context(_context.enter_strategy(strategy))
            stack.enter_context(_context.cross_replica())
            result = function(strategy, *args, **kwargs)
        own = local_results(result)
        return own * len(replicas.local) if len(own) == 1 else own
    if topic == "all_reduce":
        columns = [PerReplica(column) for column in zip(*values, strict=True)]
        sums = reduce(replicas, ReduceOp.SUM, columns, None)
        return [[jax.device_put(v, device) for v in sums] for _, device in replicas.local]
    axis = int(topic.rsplit(" ", 1)[-1])
    lengths = all_shapes([PerReplica(values)], replicas)[0]
    starts = np.cumsum([0, *(shape[axis] for shape in lengths)])
    gathered = gather(replicas, PerReplica(values), axis)
    return [(jax.device_put(gathered, device), int(starts[i])) for i, device in replicas.local]


def _merge_results(replicas: Replicas, results: Sequence[PyTree]) -> PyTree:
    """Returns what all replicas return as one value, as `run` returns it; the rest as one for each."""
    if replicas.count == 1:
        return results[0]

    def merge(column: Sequence[Any]) -> Any:
        is_array = isinstance(column[0], (jax.Array, np.ndarray, np.generic))
        if not is_array and not isinstance(column[0], (bool, int, float, complex)):
            return column[0] if all(v is column[0] or v == column[0] for v in column) else PerReplica(column)
        arrays = [jnp.asarray(v) for v in column]
        if not _is_same(replicas, arrays):
            return PerReplica(arrays)
        return replicate(replicas, arrays[0]) if is_array else column[0]

    columns, structures = zip(*map(flatten, results), strict=True)
    check_one_structure(structures)
    return structures[0].unflatten([merge(column) for column in zip(*columns, strict=True)])
