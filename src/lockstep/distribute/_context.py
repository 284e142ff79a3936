"""Contexts: the strategy whose scope is open, and the replica whose function runs."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Generator
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from lockstep._nest import flatten
from lockstep.distribute._values import ReduceOp, demand_arrays, is_rows
from lockstep.distribute._values import reduce_op as to_reduce_op
from lockstep.errors import ArgumentError, StartupOrderError

if TYPE_CHECKING:
    from lockstep.distribute._collectives import Exchange
    from lockstep.distribute._communication import CommunicationOptions
    from lockstep.distribute._strategy import Strategy


class _Contexts(threading.local):
    """Holds the contexts of a thread.

    Of each thread: experimental_run_for_debugging runs each replica on one of its own, in a context of its own, and a
    thread that reads data is in no scope. The class has the defaults, for an attribute that a thread lacks takes
    `getattr` 0.7 us, not 0.1, and each operation asks.
    """

    strategy: Strategy | None = None
    replica: ReplicaContext | None = None
    is_merging: bool = False
    sees_whole_batch: bool = False
    lasting: contextlib.ExitStack | None = None


_open = _Contexts()
_default_factories: list[Callable[[], Strategy]] = []
_exchange_factories: list[Callable[[], Exchange]] = []


def get_strategy() -> Strategy:
    """Returns the strategy whose scope is open on this thread, else the default one: one replica, no effect.

    Source: tf.distribute.get_strategy.
    """
    return _current() or default()


def experimental_set_strategy(strategy: Strategy | None) -> None:
    """Makes a strategy the current one of this thread, without a `with`: from here on its scope is open.

    Args:
        strategy: The strategy; `None` ends the scope.

    Raises:
        StartupOrderError: If the scope of another strategy is open by `with`, or this is called in a replica's
            function.

    Source: tf.distribute.experimental_set_strategy.
    """
    if replica() is not None or is_merging():
        raise StartupOrderError(
            "The current strategy is set outside of what its replicas run. Received: experimental_set_strategy in a "
            "replica's function. Call it at the start of the program."
        )
    opened = _open.lasting
    if opened is None and has_strategy():
        raise StartupOrderError(
            "experimental_set_strategy opens a scope itself. Received: a call inside of `with strategy.scope()`. Call "
            "it outside, or leave it out."
        )
    if opened is not None:
        _open.lasting = None
        opened.close()
    if strategy is not None:
        _open.lasting = contextlib.ExitStack()
        _open.lasting.enter_context(strategy.scope())


def has_strategy() -> bool:
    """Returns whether a strategy's scope is open on this thread. Source: tf.distribute.has_strategy."""
    return _open.strategy is not None


def in_cross_replica_context() -> bool:
    """Returns whether this code is written for all replicas together: inside a scope, outside of what runs per replica.

    Source: tf.distribute.in_cross_replica_context.
    """
    return replica() is None and (has_strategy() or is_merging())


@contextlib.contextmanager
def enter_strategy(strategy: Strategy) -> Generator[None]:
    """Makes `strategy` the current one.

    Raises:
        StartupOrderError: If the scope of another strategy is open.
    """
    before = _current()
    # The same one may be opened again, as in TensorFlow: `run` within a scope does so when it traces.
    if before is not None and before is not strategy:
        raise StartupOrderError(
            f"Scopes of different strategies cannot be nested. {type(before).__name__} is open; received "
            f"{type(strategy).__name__}. Leave the first scope before you enter the second."
        )
    _open.strategy = strategy
    try:
        yield
    finally:
        _open.strategy = before


def replica() -> ReplicaContext | None:
    """Returns the replica whose function runs on this thread."""
    return _open.replica


@contextlib.contextmanager
def in_replica(context: ReplicaContext) -> Generator[None]:
    """Runs what follows for one replica."""
    with _kept():
        _open.replica, _open.is_merging = context, False
        yield


@contextlib.contextmanager
def cross_replica() -> Generator[None]:
    """Runs what follows for all replicas together, in the midst of their functions."""
    with _kept():
        _open.replica, _open.is_merging = None, True
        yield


def is_merging() -> bool:
    """Returns whether this is what a replica's function has called for all replicas."""
    return _open.is_merging


@contextlib.contextmanager
def _kept() -> Generator[None]:
    before = replica(), is_merging()
    try:
        yield
    finally:
        _open.replica, _open.is_merging = before


@contextlib.contextmanager
def whole_batch() -> Generator[None]:
    """Runs what follows as the code of one replica that has the whole batch, under whatever strategy.

    Such is a step of `Model.fit`, which is written once for the global batch.
    """
    before = sees_whole_batch()
    _open.sees_whole_batch = True
    try:
        yield
    finally:
        _open.sees_whole_batch = before


def sees_whole_batch() -> bool:
    """Returns whether this code is that of one replica that has the whole batch."""
    return _open.sees_whole_batch


def _current() -> Strategy | None:
    return _open.strategy


def register_default(strategy: Callable[[], Strategy], exchange: Callable[[], Exchange]) -> None:
    """Sets how the default strategy is made, and the exchange of its only replica."""
    # Both are on top of this module, so that it cannot import them.
    _default_factories[:] = [strategy]
    _exchange_factories[:] = [exchange]


@cache
def default() -> Strategy:
    """Returns the strategy of what runs outside of any scope."""
    # One for the process: it keeps the programs that it has compiled, and is compared by identity.
    (make,) = _default_factories
    return make()


def running_scope() -> Any:
    """Returns the scope of the function of a replica that is being traced on this thread; `None` if none is."""
    # Without Keras there are no variables, and no scopes of them.
    module = sys.modules.get("lockstep.distribute._variables")
    scope = None if module is None else module.current()
    return scope if scope is not None and scope.is_traced else None


Tree = TypeVar("Tree")


class ReplicaContext:
    """One replica, as the function that it runs sees it. `get_replica_context` returns it.

    Every replica must make the same calls in the same order, unconditionally.

    Source: tf.distribute.ReplicaContext.
    """

    def __init__(self, strategy: Strategy, exchange: Exchange) -> None:
        self._strategy = strategy
        self._exchange = exchange

    @property
    def strategy(self) -> Strategy:
        """The strategy of this replica."""
        return self._strategy

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of replicas, over all workers."""
        return self._exchange.count

    @property
    def replica_id_in_sync_group(self) -> Any:
        """The number of this replica, from 0 on: an int32 of no dimensions, known when the function runs."""
        return self._exchange.number()

    @property
    def devices(self) -> tuple[str, ...]:
        """The name of this replica's device, where one replica runs alone or after the other; else of all of them.

        `run` traces a function once for all replicas, so that it does not know which one it is.
        """
        return self._strategy.extended.worker_devices

    def all_reduce(self, reduce_op: ReduceOp | str, value: Tree, options: CommunicationOptions | None = None) -> Tree:
        """Combines a value of each replica; all get the result.

        It can be differentiated: the gradient of a sum is the sum of the replicas' gradients, that of a mean their
        mean.

        Args:
            reduce_op: SUM or MEAN.
            value: Arrays or numbers in any structure, of the same shapes on all replicas. The mean of integers is a
                float.
            options: How to communicate. Default: the strategy's.

        Returns:
            The same structure.

        Raises:
            ArgumentError: For another reduction, for values that are no numbers (booleans: cast them to count), or
                for shapes that differ between replicas.

        Source: tf.distribute.ReplicaContext.all_reduce.
        """
        leaves, structure = flatten(value, is_leaf=is_rows)
        if not any(map(is_rows, leaves)):
            return self._exchange.reduce(reduce_op, value, options)
        dense = iter(self._exchange.reduce(reduce_op, [leaf for leaf in leaves if not is_rows(leaf)], options))
        divisor = self.num_replicas_in_sync if to_reduce_op(reduce_op) is ReduceOp.MEAN else 1
        gather = partial(self._exchange.gather, axis=0, options=options)
        # As in TensorFlow, sums of rows are all replicas' rows.
        return structure.unflatten([v.added_up(gather, divisor) if is_rows(v) else next(dense) for v in leaves])

    def all_gather(self, value: Tree, axis: int, options: CommunicationOptions | None = None) -> Tree:
        """Puts values of all replicas after each other, in their order; all get the result.

        Args:
            value: Arrays in any structure, at least of one dimension; all but `axis` are the same on all replicas.
            axis: Along which they are joined; negative ones count from the last.
            options: How to communicate. Default: the strategy's.

        Returns:
            The same structure.

        Raises:
            ArgumentError: If a value has no such axis, or others differ.

        Source: tf.distribute.ReplicaContext.all_gather.
        """
        demand_arrays("all_gather", value)
        return self._exchange.gather(value, axis, options)

    def merge_call(self, merge_fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Calls a function once for all replicas, in cross-replica context.

        Args:
            merge_fn: Called with the strategy, and with `args` and `kwargs` in which each array is a `PerReplica` of
                what the replicas passed; `strategy.reduce` and `strategy.gather` make one of it. What it returns is
                the same for all.
            args: Structures of arrays.
            kwargs: By name.

        Returns:
            What `merge_fn` returns.

        Source: tf.distribute.ReplicaContext.merge_call.
        """
        return self._exchange.merge(self._strategy, merge_fn, args, kwargs or {})

    def average_gradients(self, gradients: Tree) -> Tree:
        """Averages gradients over the replicas in the way that the strategy's options ask for.

        In place of `all_reduce("mean", gradients)`, it follows `CommunicationOptions`: packs, narrow types on the wire,
        compression. Where replicas have different numbers of examples, as in a last batch, each counts as much as it
        has, so that gradients of means over examples become that of the mean over all.

        Args:
            gradients: A structure of floats, `None` where there is no gradient.

        Returns:
            The same structure, equal on all replicas.

        Raises:
            ArgumentError: If something else is in it.
        """
        return self._exchange.average(gradients)

    def _total(self, gradients: Tree) -> Tree:
        """Adds gradients up over the replicas; `average_gradients` times their number."""
        return self._exchange.total(gradients)


def get_replica_context() -> ReplicaContext | None:
    """Returns the replica whose function runs; `None` in cross-replica context, such as in a scope.

    Outside of any strategy it is the only replica of the default one.

    Source: tf.distribute.get_replica_context.
    """
    found = replica()
    if found is not None or has_strategy():
        return found
    # As in TensorFlow: library code may ask for its replica without a strategy, and finds a group of one.
    (make,) = _exchange_factories
    return ReplicaContext(get_strategy(), make())


def demand_replica_context() -> ReplicaContext:
    """Returns the replica whose function runs; raises `ArgumentError` in cross-replica context."""
    found = get_replica_context()
    if found is None:
        raise ArgumentError(
            "This is for functions that run once per replica. Received: a call in cross-replica context. Call it in a "
            "function that is passed to strategy.run."
        )
    return found


@contextlib.contextmanager
def as_replica(context: ReplicaContext) -> Generator[ReplicaContext]:
    """Makes `context` the current one."""
    with contextlib.ExitStack() as stack:
        # As in TensorFlow: has_strategy() is False in functions that the default strategy runs.
        if context.strategy is not default():
            stack.enter_context(enter_strategy(context.strategy))
        stack.enter_context(in_replica(context))
        yield context
