"""The base class of all strategies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lockstep._types import PyTree
from lockstep.cluster_resolver import ClusterResolver
from lockstep.distribute import _context
from lockstep.distribute._former import FormerMethods
from lockstep.distribute._input import DistributedDataset, InputOptions
from lockstep.distribute._options import demand_together
from lockstep.distribute._values import demand_arrays, local_results
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep._engine.step.replicas import Replicas
    from lockstep.data import Dataset, InputContext
    from lockstep.distribute._extended import StrategyExtended
    from lockstep.distribute._options import RunOptions
    from lockstep.distribute._run import Runner
    from lockstep.distribute._values import ReduceOp, ValueContext

# What TensorFlow's strategies have besides, and what to use instead.
_ELSEWHERE = {
    "experimental_run_v2": "It is called run.",
    "experimental_make_numpy_dataset": "Use Dataset.from_tensor_slices, and experimental_distribute_dataset.",
    "update_config_proto": "There are no sessions; leave it out.",
}


class Strategy(FormerMethods):
    """A set of replicas, one per device, that train a model together.

    Models created, loaded or compiled under `scope()` train, evaluate and predict on all of them. Whatever their
    number, training follows the trajectory of one device with the same global batch.

    Source: tf.distribute.Strategy.
    """

    def __init__(self, replicas: Replicas | None, cluster_resolver: ClusterResolver | None = None) -> None:
        self._replicas = replicas
        self._cluster_resolver = cluster_resolver

    def __repr__(self) -> str:
        """Returns the class, and how many replicas of which kind on which task."""
        if self._replicas is None:
            return f"<{type(self).__name__}: not joined yet>"
        replicas = self._replicas
        runtime, count = replicas.runtime, replicas.count
        kinds = ", ".join(dict.fromkeys(str(device.device_kind) for device in replicas.devices))
        place = "" if runtime.is_alone else f" on {len(runtime.tasks)} tasks; this is {runtime.tasks[runtime.process]}"
        return f"<{type(self).__name__}: {count} {'replica' if count == 1 else 'replicas'} ({kinds}){place}>"

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of replicas, over all workers: as many devices as there are.

        One in a `train_step(self, data)` of Keras 2, which sees the whole batch: what is divided by it there is a mean
        over the batch already.
        """
        return 1 if _context.sees_whole_batch() else self._demanded_replicas().count

    @property
    def is_chief(self) -> bool:
        """Returns whether this process writes for all workers: the `chief` task, else worker 0; an evaluator never is.

        True in a program of one process. Everything that all workers have to call (`fit`, `evaluate`, `predict`, `run`)
        stays outside of `if strategy.is_chief:`.

        Source: `tf.distribute.cluster_resolver.ClusterResolver.task_type` and `task_id`, from which programs for
        TensorFlow compute it.
        """
        task = None if self._cluster_resolver is None else self._cluster_resolver.task
        is_evaluator = task is not None and task.type == "evaluator"
        return not is_evaluator and self._demanded_replicas().runtime.is_chief

    def _demanded_replicas(self) -> Replicas:
        assert self._replicas is not None
        return self._replicas

    @property
    def cluster_resolver(self) -> ClusterResolver | None:
        """The resolver that described the cluster, or `None` for a strategy of this process alone."""
        return self._cluster_resolver

    def experimental_distribute_dataset(
        self, dataset: Dataset, options: InputOptions | None = None
    ) -> DistributedDataset:
        """Divides a dataset of global batches over the replicas.

        Which worker computes what follows the dataset's `auto_shard_policy`. By default every worker computes its rows
        of each global batch, and the batches are those that one worker would see.

        Args:
            dataset: Of global batches, made alike on every worker.
            options: How elements are handed out.

        Raises:
            ArgumentError: If this is no dataset, or its auto-shard policy does not fit it.
        """
        # Imported here: with `lockstep.data` comes Keras, which a loop of plain JAX does not need.
        from lockstep._engine.input.distributed import of_dataset
        from lockstep.data import Dataset

        if not isinstance(dataset, Dataset):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"experimental_distribute_dataset needs a lockstep.data.Dataset. Received: {type(dataset).__name__}. "
                "Make one with Dataset.from_tensor_slices or Dataset.from_generator."
            )
        if options is not None and options.is_per_replica:
            raise ArgumentError(
                "One pipeline per replica needs a function that makes it. Received: PER_REPLICA for a dataset. Use "
                "distribute_datasets_from_function."
            )
        return DistributedDataset(of_dataset(dataset, self._demanded_replicas()), options)

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Dataset], options: InputOptions | None = None
    ) -> DistributedDataset:
        """Calls a function on every worker for a dataset of its own, whose elements go to its replicas in turn.

        Args:
            dataset_fn: Is told which of how many pipelines it makes, and shards and batches accordingly.
            options: How elements are handed out.

        Raises:
            ArgumentError: If it returns no dataset, or options do not go together.
        """
        from lockstep._engine.input.distributed import of_function

        if options is not None:
            options.check_for_function()
        is_per_replica = options is not None and options.is_per_replica
        return DistributedDataset(of_function(dataset_fn, self._demanded_replicas(), is_per_replica), options)

    def run(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: RunOptions | None = None) -> Any:
        """Runs a function once per replica, all replicas together.

        The function is traced and compiled, and compiled programs are kept: by function, by the structure, shapes and
        types of arguments, and by the values of those that are no arrays. It sees one replica, and
        `get_replica_context()` in it lets the replicas exchange values. Keras variables that it reads or assigns are
        inputs and outputs of the program; those that all replicas share and that get different values are combined by
        their `aggregation`. A Keras optimizer that is applied in it adds the gradients of all replicas up first, as
        TensorFlow's do, unless they are equal already and no `GradientTape` took them.

        Args:
            fn: Of any structures of arrays. What it does besides computing happens while it is traced, once or a few
                times.
            args: Positional arguments. Of a `PerReplica`, such as distributed datasets give, each replica gets its
                value; their sizes may differ, also down to no rows at all, and then every device computes all shares.
                All else must be equal on all tasks, and goes to all replicas. Leaves that are neither arrays nor
                numbers (functions, text, flags) are part of the program; so are Python's numbers until they change.
            kwargs: Arguments by name.
            options: Which arguments may be overwritten.

        Returns:
            What `fn` returns, with each array that is the same on all replicas by its construction (computed of equal
            inputs, reduced, gathered) as one array that all devices hold, and every other one as a `PerReplica`; with a
            single replica all are arrays. A variable comes as an array of its value after the call, or as a
            `PerReplica` if each replica has its own. Other leaves come as they are; where they differ between replicas,
            because the sizes of their shards do, as a `PerReplica`.

        Raises:
            ArgumentError: If an argument is wrong, or a variable gets different values that nothing says how to
                combine.
            UnsupportedError: If shares of different sizes meet in a way that is not supported, or the strategy has
                `local_steps`.

        Source: tf.distribute.Strategy.run.
        """
        demand_together(self._demanded_replicas())
        return self._runner(fn, args, kwargs, options)

    def experimental_run_for_debugging(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None) -> Any:
        """Runs a function once per replica, one replica after the other, as Python runs it.

        For a debugger and for `print`: nothing is compiled, values are known, and at any time one replica runs, on a
        thread of its own, until it comes to a collective of `ReplicaContext`; then the next one does. Results are those
        of `run`, but for the last digits.

        Args:
            fn: As for `run`. Variables that it reads must exist.
            args: As for `run`.
            kwargs: As for `run`.

        Returns:
            What `run` returns. Arrays that are equal on all replicas come as one.

        Raises:
            Exception: What `fn` raises on any replica, with a note of which; the others end, too.
        """
        from lockstep.distribute._debugging import run_for_debugging

        demand_together(self._demanded_replicas())
        return run_for_debugging(self, self._runner, self._demanded_replicas(), fn, args, kwargs)

    def reduce(self, reduce_op: ReduceOp | str, value: PyTree, axis: int | None) -> Any:
        """Combines the values of all replicas; all tasks call it together, and all get the same.

        Args:
            reduce_op: SUM or MEAN. The mean of integers is a float.
            value: A structure of `PerReplica`. What `run` returned as one value counts once for each replica.
            axis: `None` to combine element by element; or a dimension of the values that is reduced, too: values may
                differ in size along it, and the mean is that over all their elements.

        Returns:
            The same structure, of arrays of this process.

        Raises:
            ArgumentError: For another reduction, for values that are no numbers (booleans: cast them to count), for
                sizes that differ elsewhere, or if nothing says whether a value is each replica's.

        Source: tf.distribute.Strategy.reduce.
        """
        from lockstep.distribute._collectives import reduce

        return reduce(self._demanded_replicas(), reduce_op, self._with_values(value), axis)

    def gather(self, value: PyTree, axis: int) -> Any:
        """Puts the values of all replicas after each other; all tasks call it together, and all get the same.

        Args:
            value: A structure of `PerReplica`, of at least one dimension.
            axis: Along which they are joined, where they may differ in size.

        Returns:
            The same structure, of arrays of this process.

        Raises:
            ArgumentError: If there is no such dimension, or sizes differ elsewhere.

        Source: tf.distribute.Strategy.gather.
        """
        from lockstep.distribute._collectives import gather

        demand_arrays("gather", value)
        return gather(self._demanded_replicas(), self._with_values(value), axis)

    def experimental_distribute_values_from_function(self, value_fn: Callable[[ValueContext], Any]) -> Any:
        """Calls a function for each replica of this process; all tasks call it together.

        Args:
            value_fn: Returns a replica's value, or a structure of them.

        Returns:
            The structure, of a `PerReplica` for each value; with a single replica, its values themselves.

        Raises:
            ArgumentError: If the replicas' structures differ.

        Source: tf.distribute.Strategy.experimental_distribute_values_from_function.
        """
        from lockstep.distribute._values import values_from_function

        return values_from_function(self._demanded_replicas(), value_fn)

    def _with_values(self, value: PyTree) -> Any:
        """Puts the replicas' values in the place of variables of which each replica has its own."""
        from lockstep._nest import map_structure

        return map_structure(self._runner.own_values, value, is_leaf=lambda leaf: leaf is None)

    @cached_property
    def extended(self) -> StrategyExtended:
        """The devices, reductions and updates. Source: tf.distribute.Strategy.extended."""
        from lockstep.distribute._extended import StrategyExtended

        return StrategyExtended(self)

    @cached_property
    def _runner(self) -> Runner:
        from lockstep.distribute._run import Runner

        # When it is first needed: the default strategy has no devices before.
        return Runner(self, self._demanded_replicas())

    # TensorFlow's former name, which programs still use.
    experimental_distribute_datasets_from_function = distribute_datasets_from_function

    def experimental_local_results(self, value: PyTree) -> tuple[Any, ...]:
        """Returns what each replica of this process has of a value or structure, as a tuple.

        What `run` has returned as one value each replica has, and a variable; anything else that is not `PerReplica` is
        there once.

        Source: tf.distribute.Strategy.experimental_local_results.
        """
        return local_results(self._with_values(value), self._demanded_replicas())

    def __getattr__(self, name: str) -> Any:
        """Says what to use instead of what TensorFlow's strategies have."""
        advice = _ELSEWHERE.get(name)
        found = f"{type(self).__name__!r} object has no attribute {name!r}"
        # An AttributeError also with advice: hasattr must be False, and not fail.
        raise AttributeError(found if advice is None else f"{found}. {advice}", name=name, obj=self)

    @contextlib.contextmanager
    def scope(self) -> Generator[Strategy]:
        """Opens the context in which models are made for this strategy.

        Raises:
            StartupOrderError: If the scope of another strategy is open.
        """
        from lockstep._engine.keras import binding, ownership
        from lockstep._engine.runtime import local_training

        # From here on Keras' fit, evaluate and predict ask whose a model is.
        binding.install()
        local_training.note_scope(self)
        with _context.enter_strategy(self), ownership.scope(self._demanded_replicas()):
            yield self
