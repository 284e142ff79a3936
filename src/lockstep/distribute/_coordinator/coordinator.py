"""`ClusterCoordinator`: schedules functions on the workers of a ParameterServerStrategy."""

from __future__ import annotations

import atexit
import itertools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lockstep import _nest as nest
from lockstep._engine.runtime import failure
from lockstep._engine.servers.closures.dispatch import Dispatcher, ServerClient, new_id
from lockstep._engine.servers.closures.plan import Plan, make_plan
from lockstep._engine.servers.closures.queue import Closure, ClosureQueue
from lockstep._types import Array
from lockstep.distribute._coordinator.cluster import CoordinatedCluster
from lockstep.distribute._coordinator.datasets import PerWorkerDataset, PerWorkerIterator, WorkerIterator, dataset_maker
from lockstep.distribute._coordinator.server import serve_if_served
from lockstep.distribute._coordinator.tracing import Traced, kind_of, kinds_of, trace_function
from lockstep.distribute._coordinator.values import PerWorkerValues, RemoteValue, of_worker
from lockstep.distribute._coordinator.variables import ServedVariables
from lockstep.errors import ArgumentError, UnsupportedError

_coordinators: weakref.WeakKeyDictionary[Any, ClusterCoordinator] = weakref.WeakKeyDictionary()


class ClusterCoordinator:
    """Schedules functions on workers, which read and change variables on parameter servers.

    The program runs on the coordinator: the task `chief`, or a process outside of the cluster. Workers and servers run
    `Server(...).join()`. A function is traced once and sent as a compiled program. Each effect that it has on a
    variable is applied once, whichever worker dies: a function whose worker goes is computed by another one, and what
    servers have of it already is not applied again. On tasks of type `worker` and `ps` that run the same program, this
    class serves until the coordinator's program has ended, and then ends theirs.

    There is one coordinator for each strategy.

    Args:
        strategy: A ParameterServerStrategy, with `mode="async"`.

    Raises:
        ArgumentError: If it is another strategy, or one without servers.
        UnsupportedError: If the strategy has an option that functions cannot follow.
        MissingTaskError: If a server cannot be reached.

    Source: tf.distribute.coordinator.ClusterCoordinator.
    """

    def __new__(cls, strategy: Any) -> ClusterCoordinator:
        """Returns the coordinator of the strategy, which is made the first time."""
        try:
            found = _coordinators.get(strategy)
        except TypeError:
            found = None  # What cannot be a key is no strategy; __init__ says so.
        return found if found is not None else super().__new__(cls)

    def __init__(self, strategy: Any) -> None:
        """Connects to servers and workers, unless the strategy has a coordinator."""
        if getattr(self, "_strategy", None) is not None:
            return
        cluster = CoordinatedCluster.of(strategy)
        serve_if_served(cluster)
        self._strategy = strategy
        self._id = new_id()
        self._queue = ClosureQueue(cluster.staleness)
        self._servers = ServerClient(cluster.servers(), self._id)
        self._variables = ServedVariables(self._servers, cluster.partition, lambda: self._queue.is_idle)
        self._worker_count = len(cluster.workers)
        self._dispatcher = Dispatcher(self._queue, cluster.caller, cluster.workers, cluster.limits, self._id)
        self._functions: dict[Any, _Function] = {}
        self._plan_numbers = itertools.count()
        # Plans are made by the program's thread, and by a worker's for elements of another shape.
        self._planning = threading.RLock()
        self._thread = threading.current_thread()
        atexit.register(self._close)
        _coordinators[strategy] = self

    @property
    def strategy(self) -> Any:
        """The strategy."""
        return self._strategy

    @property
    def num_workers(self) -> int:
        """The number of workers in the cluster."""
        return self._worker_count

    def schedule(self, fn: Callable[..., Any], args: Any = None, kwargs: Any = None) -> RemoteValue:
        """Has a worker compute a function, and returns at once.

        Args:
            fn: Traced by JAX in this call, and once for each structure, shapes and types of its arguments. It may call
                `next` on per-worker iterators, and `strategy.run` and `strategy.reduce`.
            args: Positional arguments: arrays, per-worker iterators and values, and anything else as a part of the
                program.
            kwargs: Arguments by name.

        Returns:
            The result to come.

        Raises:
            LockstepError: The first error of a function that was scheduled before, since the last one was raised.
            ArgumentError: If `fn` is no function, or an argument is the result of another one.
            UnsupportedError: If the function cannot be sent, such as one that calls Python while it runs.

        Source: tf.distribute.coordinator.ClusterCoordinator.schedule.
        """
        args, kwargs = _check_call(fn, args, kwargs)
        self._queue.check()
        leaves, structure = nest.flatten((args, kwargs), is_leaf=_is_per_worker)
        if any(isinstance(leaf, RemoteValue) for leaf in leaves):
            raise ArgumentError(
                "A scheduled function takes values that are there. Received: a RemoteValue as an argument. Pass "
                "value.fetch(), or compute both in one function."
            )
        self._variables.flush()
        self._thread = threading.current_thread()
        function = self._function(fn, leaves, structure)
        traced, _ = function.planned(0, None)
        seeds = [np.asarray(v.value) for v, _ in traced.seeds]
        for variable, advance in traced.seeds:
            variable.assign(advance(variable.value))
        value = RemoteValue(function.name, self._check)

        def make(ticket: int) -> Closure:
            call = _Call(function, leaves, seeds)
            return Closure(
                ticket, function.name, call.prepare, lambda found: value.accept(call.results(found)), value.refuse
            )

        self._queue.put(make)
        # After it is in the queue: a value that was fetched in between is one of before.
        self._variables.defer(traced.changed)
        return value

    def join(self) -> None:
        """Waits until all scheduled functions are computed, and their effects are on the servers.

        Raises:
            LockstepError: The first error of a function; those that waited are cancelled then, and none is under way.
            MissingTaskError: If there is no worker for `LOCKSTEP_JOIN_TIMEOUT`.

        Source: tf.distribute.coordinator.ClusterCoordinator.join.
        """
        self._variables.flush()
        self._queue.join(self._check)

    def done(self) -> bool:
        """Returns whether all scheduled functions are computed.

        Raises:
            LockstepError: As `join`.

        Source: tf.distribute.coordinator.ClusterCoordinator.done.
        """
        self._queue.check()
        self._check()
        return self._queue.is_idle

    def fetch(self, val: Any) -> Any:
        """Waits for results, and returns them: `RemoteValue.fetch` of each in a structure.

        Args:
            val: A structure of RemoteValue; anything else in it stays as it is.

        Source: tf.distribute.coordinator.ClusterCoordinator.fetch.
        """
        is_remote = lambda leaf: isinstance(leaf, RemoteValue)  # noqa: E731
        return nest.map_structure(lambda leaf: leaf.fetch() if is_remote(leaf) else leaf, val, is_leaf=is_remote)

    def create_per_worker_dataset(self, dataset_fn: Any) -> PerWorkerDataset:
        """Makes a dataset for each worker; `iter` of it is an argument of scheduled functions.

        This process reads the elements, and sends them with the function that draws them: what was drawn for a
        function is not lost if its worker goes.

        Args:
            dataset_fn: A function without arguments that returns a dataset, or a dataset.

        Raises:
            ArgumentError: If it is neither.

        Source: tf.distribute.coordinator.ClusterCoordinator.create_per_worker_dataset.
        """
        return PerWorkerDataset(dataset_maker(dataset_fn), self._worker_count)

    def create_per_worker_resource(self, resource_fn: Callable[[], Any]) -> PerWorkerValues:
        """Calls a function once for each worker, here; scheduled functions get the value of their worker.

        Args:
            resource_fn: Returns arrays, in any structure.
        """
        return PerWorkerValues([resource_fn() for _ in range(self._worker_count)])

    def _function(self, fn: Any, leaves: Sequence[Any], structure: Any) -> _Function:
        first = [_leaf_of(leaf, 0) for leaf in leaves]
        python = getattr(fn, "python_function", None)
        key = (fn if python is None or _is_hashable(fn) else python, structure, tuple(map(kind_of, first)))
        if key not in self._functions:
            self._functions[key] = _Function(self._strategy, fn, first, structure, self._plan, self._planning)
        return self._functions[key]

    def _plan(self, name: str, traced: Traced) -> Plan:
        """Returns the plan of a traced function, with its variables on servers."""
        moved = self._variables.moved(traced.variables, traced.division.effects)
        if self._variables.are_placed(moved):
            self._demand_program_thread(name)
            # Functions that are under way know where variables were.
            self._queue.wait_until_idle(self._check)
            self._forget_plans()
        self._variables.move(moved)
        pieces = self._variables.pieces(traced.variables)
        plan = make_plan(str(next(self._plan_numbers)), name, traced.division, traced.avals, traced.arguments, pieces)
        for server, program in plan.programs.items():
            code = np.frombuffer(program.code, np.uint8)
            self._servers.ask(server, "define", {"code": code}, **program.facts())
        return plan

    def _demand_program_thread(self, name: str) -> None:
        if threading.current_thread() is not self._thread:
            raise UnsupportedError(
                "What a function does to variables must not depend on the shapes of what it draws. Received: "
                f"{name}, which for a batch of another size changes variables together that lie on different servers. "
                "Drop the remainder of batches, or schedule a function for each size."
            )

    def _forget_plans(self) -> None:
        for function in self._functions.values():
            function.forget_plans()
        self._dispatcher.forget_plans()

    def _check(self) -> None:
        self._dispatcher.check()

    def _close(self) -> None:
        """Tells workers and servers that the program has ended, unless it has failed: it may be started again."""
        if self._dispatcher.is_closed:
            return
        self._dispatcher.close(is_end=not failure.has_failed())
        if not failure.has_failed():
            self._servers.end()


class _Function:
    """A function for arguments of one kind: its traces, by the elements that it draws, and their plans."""

    def __init__(
        self,
        strategy: Any,
        function: Any,
        leaves: Sequence[Any],
        structure: Any,
        make_plan: Callable[[str, Traced], Plan],
        planning: threading.RLock,
    ) -> None:
        self.name = str(getattr(function, "__qualname__", type(function).__name__)).replace("<locals>.", "")
        self._strategy, self._function = strategy, function
        self._make_plan, self._planning = make_plan, planning
        self._leaves, self._structure = list(leaves), structure
        self._traces: dict[Any, Traced] = {}
        self._plans: dict[Any, Plan] = {}
        self._last: Any = None

    @property
    def draws(self) -> Mapping[int, int]:
        """By the place of an iterator: how many elements a call draws."""
        return self._traces[self._last].draws

    def planned(self, worker: int, elements: Any) -> tuple[Traced, Plan]:
        """Returns the trace and the plan for these elements; without some, for those that come next."""
        del worker
        with self._planning:
            key = self._last if elements is None else kinds_of(elements)
            if key is None or key not in self._traces:
                traced = trace_function(
                    self._strategy, self._function, self.name, self._examples(elements), self._structure
                )
                if elements is None:
                    seen = [[self._leaves[i].peek(n) for n in range(count)] for i, count in traced.draws.items()]
                    key = kinds_of(seen)
                self._traces[key], self._last = traced, key
            if key not in self._plans:
                self._plans[key] = self._make_plan(self.name, self._traces[key])
            return self._traces[key], self._plans[key]

    def _examples(self, elements: Sequence[list[Any]] | None) -> list[Any]:
        """Returns the arguments with iterators over these elements; without some, over those that come next."""
        leaves = list(self._leaves)
        for place, drawn in zip(() if elements is None else self.draws, elements or (), strict=True):
            leaves[place] = WorkerIterator(lambda _, drawn=drawn: drawn, 0)
        return leaves

    def forget_plans(self) -> None:
        """Has plans be made again."""
        self._plans.clear()


class _Call:
    """A call of a function: what it has drawn stays with it, whichever worker computes it."""

    def __init__(self, function: _Function, leaves: Sequence[Any], seeds: Sequence[Array]) -> None:
        self._function, self._leaves, self._seeds = function, leaves, seeds
        self._elements: list[list[Any]] | None = None
        self._traced: Traced | None = None

    def prepare(self, worker: int) -> tuple[Plan, dict[str, Array]]:
        """Returns the plan, and the arrays that a worker needs."""
        own = [_leaf_of(leaf, worker) for leaf in self._leaves]
        if self._elements is None:
            self._elements = [own[i].draw(count) for i, count in self._function.draws.items()]
        self._traced, plan = self._function.planned(worker, self._elements)
        given = [leaf for leaf in own if isinstance(kind_of(leaf), tuple)]
        given += [leaf for leaf in nest.flatten(self._elements)[0] if isinstance(kind_of(leaf), tuple)]
        avals = self._traced.avals
        arrays = [np.asarray(a, aval.dtype) for a, aval in zip((*given, *self._seeds), avals, strict=False)]
        return plan, {str(n): arrays[n] for n in plan.arguments}

    def results(self, found: Mapping[str, Array]) -> Any:
        """Returns what the function returns."""
        assert self._traced is not None
        return self._traced.results([found[str(i)] for i in range(len(found))])


def _leaf_of(leaf: Any, worker: int) -> Any:
    if isinstance(leaf, PerWorkerIterator):
        return leaf.of_worker(worker)
    return of_worker(leaf, worker) if isinstance(leaf, PerWorkerValues) else leaf


def _is_per_worker(leaf: Any) -> bool:
    return isinstance(leaf, (PerWorkerIterator, PerWorkerValues, RemoteValue, WorkerIterator))


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _check_call(fn: Any, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    from lockstep.distribute._run import check_call

    if not callable(fn):
        raise ArgumentError(
            f"schedule takes a function, such as one of tf.function. Received: {type(fn).__name__}. Example: "
            "coordinator.schedule(step_fn, args=(per_worker_iterator,))"
        )
    return check_call(fn, () if args is None else args, kwargs)
