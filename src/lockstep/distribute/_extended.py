"""`strategy.extended`: what programs and libraries written for tf.distribute call besides `run` and `reduce`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep._nest import flatten, map_structure
from lockstep._types import PyTree, Variable
from lockstep.distribute import _context
from lockstep.distribute._devices import name_of
from lockstep.distribute._replica_values import is_own, may_be_apart
from lockstep.distribute._values import InReplica, Mirrored, PerReplica, is_variable
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep.distribute._communication import CommunicationOptions
    from lockstep.distribute._strategy import Strategy
    from lockstep.distribute._values import ReduceOp


class StrategyExtended:
    """The devices, reductions and updates of a strategy.

    There is one value of a variable for all replicas, so an update runs once for all of them.

    Attributes:
        experimental_between_graph: False.
        experimental_require_static_shapes: False.
        experimental_should_init: True.

    Source: tf.distribute.StrategyExtended.
    """

    experimental_between_graph = False
    experimental_require_static_shapes = False
    experimental_should_init = True

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """Names of the devices of this process' replicas, such as "/job:localhost/replica:0/task:0/device:CPU:0"."""
        return _names(self._strategy)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """Names of the devices that hold variables: those of the replicas."""
        return _names(self._strategy)

    @property
    def should_checkpoint(self) -> bool:
        """Returns whether this process writes checkpoints: `strategy.is_chief`."""
        return self._strategy.is_chief

    @property
    def should_save_summary(self) -> bool:
        """Returns whether this process writes summaries: `strategy.is_chief`."""
        return self._strategy.is_chief

    def call_for_each_replica(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Returns what `strategy.run` does. Source: tf.distribute.StrategyExtended.call_for_each_replica."""
        return self._strategy.run(fn, args=tuple(args), kwargs=kwargs)

    def reduce_to(
        self,
        reduce_op: ReduceOp | str,
        value: PyTree,
        destinations: object,
        options: CommunicationOptions | None = None,
    ) -> Any:
        """Combines a value of each replica.

        Args:
            reduce_op: SUM or MEAN.
            value: Of the replicas, in any structure.
            destinations: For which variable, value or device; it is there for all of them.
            options: Taken for its form: the result is that of the strategy's own way.

        Returns:
            The combined value, as `strategy.reduce(reduce_op, value, axis=None)` does.

        Raises:
            ArgumentError: As `strategy.reduce` does.

        Source: tf.distribute.StrategyExtended.reduce_to.
        """
        return self._strategy.reduce(reduce_op, value, axis=None)

    def batch_reduce_to(
        self,
        reduce_op: ReduceOp | str,
        value_destination_pairs: Sequence[tuple[Any, Any]],
        options: CommunicationOptions | None = None,
    ) -> list[Any]:
        """Combines several values; returns them as a list. Source: tf.distribute.StrategyExtended.batch_reduce_to."""
        values = [value for value, _ in value_destination_pairs]
        return list(self._strategy.reduce(reduce_op, values, axis=None))

    def broadcast_to(self, tensor: PyTree, destinations: object) -> Any:
        """Returns a value as one that all replicas have."""
        return Mirrored(tensor, len(self._local()))

    def update(
        self, var: Variable, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Any = None, group: bool = True
    ) -> Any:
        """Calls `fn(var, *args, **kwargs)` to change a variable: once for all replicas, or once for each.

        Once for each, with its values, if each replica has its own value of the variable (ON_READ), or may have one (no
        aggregation) and gets another argument.

        Args:
            var: A variable.
            fn: Assigns it.
            args: For one value of all replicas what is the same on all: what `reduce_to` returned, or plain values.
            kwargs: By name.
            group: Whether what `fn` returns comes as one value, that of the first replica; else as a tuple of each
                replica's.

        Raises:
            ArgumentError: If this is called in a replica's function outside of `merge_call`, or an argument differs
                between replicas.

        Source: tf.distribute.StrategyExtended.update.
        """
        if self._is_of_each(var, (args, kwargs)):
            found = self._strategy.experimental_run_for_debugging(partial(fn, var), args=tuple(args), kwargs=kwargs)
            of_each = self._strategy.experimental_local_results(found)
            return of_each[0] if group else of_each
        return self._update(lambda *a, **k: fn(var, *a, **k), args, kwargs, group)

    def _is_of_each(self, var: Variable, given: Any) -> bool:
        """Returns whether an update changes each replica's own value of a variable."""
        if _context.replica() is not None or _context.is_merging() or not is_variable(var):
            return False
        if is_own(var):
            return True
        values = [leaf for leaf in flatten(given)[0] if isinstance(leaf, PerReplica)]
        return may_be_apart(var) and not all(map(_is_alike, values))

    def update_non_slot(
        self, colocate_with: object, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, group: bool = True
    ) -> Any:
        """Calls `fn(*args, **kwargs)` for all replicas together.

        Args:
            colocate_with: What `non_slot_devices` returned.
            fn: Changes what is no slot of a variable.
            args: As for `update`.
            kwargs: By name.
            group: As for `update`.

        Raises:
            ArgumentError: As `update` does.

        Source: tf.distribute.StrategyExtended.update_non_slot.
        """
        return self._update(fn, args if isinstance(args, (tuple, list)) else (args,), kwargs, group)

    def non_slot_devices(self, var_list: Sequence[Variable]) -> tuple[str, ...]:
        """Returns the names of the devices for what is no slot of these variables: all replicas'."""
        return _names(self._strategy)

    @contextlib.contextmanager
    def colocate_vars_with(self, colocate_with_variable: Variable) -> Generator[None]:
        """Opens a context in which variables lie where another one does: on all replicas, as all of them.

        Raises:
            ArgumentError: If this is no variable.

        Source: tf.distribute.StrategyExtended.colocate_vars_with.
        """
        if not is_variable(colocate_with_variable):
            raise ArgumentError(
                f"colocate_vars_with needs a variable. Received: {colocate_with_variable!r}. Pass one that was made "
                "under the strategy's scope."
            )
        yield

    def variable_created_in_scope(self, v: Variable) -> bool:
        """Returns whether `v` is a variable, which every strategy can use."""
        return is_variable(v)

    def read_var(self, v: Variable) -> Any:
        """Returns the value of a variable as cross-replica context reads it."""
        return v.value

    def value_container(self, value: PyTree) -> Any:
        """Returns the value itself: values of replicas are not parts of another object here."""
        return value

    def _local(self) -> Sequence[Any]:
        return self._strategy._demanded_replicas().local  # pyright: ignore[reportPrivateUsage]

    def _update(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Any, group: bool) -> Any:
        if _context.replica() is not None:
            raise ArgumentError(
                "Updates are made for all replicas together. Received: a call in the function of one replica. Call "
                "it in merge_call: get_replica_context().merge_call(lambda strategy, value: "
                "strategy.extended.update(variable, fn, args=(value,)), args=(value,)); or assign the variable."
            )
        given, named = map_structure(_for_all, (tuple(args), dict(kwargs or {})))
        found = fn(*given, **named)
        if group:
            return found
        return (found,) * (1 if _context.is_merging() else len(self._local()))


def _for_all(value: PyTree) -> Any:
    """Returns the value that all replicas have.

    Raises:
        ArgumentError: If they differ.
    """
    if isinstance(value, (InReplica, Mirrored)):
        return value.value
    if isinstance(value, PerReplica):
        if not _is_alike(value):
            raise ArgumentError(
                "A variable has one value for all replicas, so an update needs the same value of all. Received: "
                f"{value!r}. Combine them first with strategy.extended.reduce_to."
            )
        return value.values[0]
    return value


def _is_alike(value: PerReplica) -> bool:
    first, *others = value.values
    return all(np.array_equal(np.asarray(first), np.asarray(other)) for other in others)


def _names(strategy: Strategy) -> tuple[str, ...]:
    replicas = strategy._demanded_replicas()  # pyright: ignore[reportPrivateUsage]
    runtime = replicas.runtime
    task = None if runtime.is_alone else runtime.tasks[runtime.process]
    return tuple(name_of(device, task) for _, device in replicas.local)
