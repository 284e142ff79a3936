"""A dataset as the workers of a strategy read it: one pass after another, from the same seeds on all of them."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from lockstep._engine.input import samples
from lockstep._engine.input.batch import not_empty
from lockstep._engine.input.datasets import InterleavedReader, Pipelines, ReplicatedReader, ShardSpec
from lockstep._engine.input.device_cache import DeviceCache
from lockstep._engine.input.samples import Sample, arrays_of, functions_of
from lockstep._engine.step.batches import EvenShard, GatherIndices, RaggedShard, host_rows
from lockstep._engine.step.replicas import Replicas
from lockstep._types import JSON, SourcePosition
from lockstep.data import AutoShardPolicy, Dataset, InputContext
from lockstep.data.internal import (
    Node,
    Run,
    describe_plan,
    example_of,
    file_count,
    inside,
    plan_of,
    shard_batches,
    shard_by_files,
    shard_by_hint,
)
from lockstep.errors import ArgumentError, InputError

_log = logging.getLogger("lockstep")
_numbers = itertools.count()
_VERSION = 1


class Distribution:
    """Divides a dataset among workers.

    Args:
        dataset: The dataset, with its seeds, passes and options.
        pipelines: Returns so many pipelines, if each adds rows to every batch; `None` if all workers read one plan.
        description: The transformations, which must be equal on all workers.
        is_by_replica: Whether each replica gets elements of its own, in place of rows of a common batch.
    """

    def __init__(
        self,
        replicas: Replicas,
        dataset: Dataset,
        pipelines: Callable[[int], Pipelines] | None,
        description: list[str],
        is_by_replica: bool = False,
    ) -> None:
        self.replicas = replicas
        self.dataset = dataset
        self.is_by_replica = is_by_replica
        self._pipelines = pipelines
        self._description = description

    @property
    def name(self) -> str:
        """Returns a name for a new reader, the same on all workers."""
        return f"data-{next(_numbers)}"

    @property
    def num_batches(self) -> int | None:
        """Returns the number of batches of a pass, if known."""
        # A tensor where the dataset is one of a program written for TensorFlow.
        count = int(self.dataset.cardinality())
        return count if count >= 0 and self._pipelines is None else None

    def next_run(self) -> Run:
        """Begins the next pass: the chief's, after all have found that they read the same.

        Raises:
            MismatchError: On all workers, if the datasets were made by different transformations.
        """
        runtime = self.replicas.runtime
        run = inside.begin_pass(self.dataset)
        if runtime.is_alone:
            return run
        sample: Sample | None = None
        functions: list[str] | None = None
        # Pipelines may be of data of their own, which have nothing to compare.
        if self._pipelines is None and samples.are_compared(runtime):
            plan = inside.plan_of(self.dataset)
            sample, functions = arrays_of(plan, sum(run.iteration)), functions_of(plan)
        mine = [self._description, run.entropy, list(run.iteration), sample and sample.checksum, functions]
        answers = runtime.all_gather_object("the data of the next pass", mine)
        advice = f"Build the dataset alike on every worker. {samples.ADVICE}"
        runtime.check_equal("dataset", [{"made by": " < ".join(a[0])} for a in answers], advice)
        if samples.differ([a[3] for a in answers]):
            raise samples.mismatch("the arrays of a dataset", sample, runtime.all_gather_object, runtime.tasks)
        if None not in (compared := [a[4] for a in answers]):
            runtime.check_equal("map functions of a dataset", compared, advice)
        # The chief's seeds: a dataset without a seed of its own draws other ones on each worker.
        _, entropy, iteration, *_ = answers[0]
        inside.follow(self.dataset, entropy)
        return Run(entropy, tuple(iteration))

    def begin(self, spec: ShardSpec, position: JSON = None) -> ReplicatedReader | InterleavedReader:
        """Opens the next pass, or one at a position; a collective call.

        Args:
            spec: This worker's shard of each batch.
            position: A position of `saved_position`, or `None`.
        """
        runtime = self.replicas.runtime
        threads = inside.threads_of(self.dataset)
        positions = None if position is None else _check_position(position, self._pipelines is not None)
        if positions:
            inside.continue_after(self.dataset, positions[0])
        run = self.next_run() if positions is None else Run(0)  # A position knows its own.
        if self._pipelines is None:
            first = positions and positions[0]
            return ReplicatedReader(
                inside.plan_of(self.dataset), run, spec, first, threads, samples.are_compared(runtime)
            )
        workers = len(runtime.tasks)
        pipelines = self._pipelines(len(positions) if positions else workers)
        return InterleavedReader(pipelines, run, runtime.process, workers, spec, positions, threads)

    def saved_position(self, reader: ReplicatedReader | InterleavedReader, position: SourcePosition) -> dict[str, Any]:
        """Returns a position as JSON, the same on all workers; a collective call where each has its own pipelines."""
        if isinstance(reader, ReplicatedReader):
            return {"version": _VERSION, "combined": False, "pipelines": [reader.to_json(position)]}
        everyone = self.replicas.runtime.all_gather_object("the position in the data", reader.to_json(position))
        return {"version": _VERSION, "combined": True, "pipelines": [p for worker in everyone for p in worker]}


def _check_position(position: JSON, combined: bool) -> list[Any]:
    """Returns the positions of the pipelines in a saved one."""
    if not isinstance(position, dict) or position.get("version") != _VERSION or "pipelines" not in position:
        raise ArgumentError(f"set_state needs what get_state returned. Received: {str(position)[:80]}.")
    if position["combined"] != combined:
        raise ArgumentError(
            "A position belongs to one way to divide the data. Received: one of another auto-shard policy. Use the "
            "policy with which it was taken."
        )
    return position["pipelines"]


def of_dataset(dataset: Dataset, replicas: Replicas) -> Distribution:
    """Distributes global batches, by the dataset's auto-shard policy.

    Raises:
        ArgumentError: If the policy does not fit the dataset.
    """
    plan = inside.plan_of(dataset)
    policy = dataset.options().experimental_distribute.auto_shard_policy
    by_policy: dict[AutoShardPolicy, Callable[[Node, int, int], Node]] = {
        AutoShardPolicy.FILE: shard_by_files,
        AutoShardPolicy.HINT: shard_by_hint,
        AutoShardPolicy.OFF: lambda node, count, index: node,
    }
    shard = by_policy.get(policy)
    if shard is None:
        return Distribution(replicas, dataset, None, describe_plan(plan))
    files, tasks = file_count(plan) if policy is AutoShardPolicy.FILE else None, replicas.runtime.tasks
    if files is not None and files < len(tasks) and replicas.runtime.is_chief:
        _log.warning(
            "AutoShardPolicy.FILE: %d files for %d workers, so %s read none. They still compute their share of every "
            "batch; with at least as many files as workers, all would read.",
            files,
            len(tasks),
            ", ".join(tasks[files:]),
        )

    def pipelines(count: int) -> Pipelines:
        return Pipelines(count, lambda i: shard_batches(shard(plan, count, i), count, i))

    pipelines(1).plan_of(0)  # Raises at once if the policy does not fit.
    return Distribution(replicas, dataset, pipelines, describe_plan(plan))


def of_function(
    function: Callable[[InputContext], Dataset],
    replicas: Replicas,
    is_per_replica: bool = False,
    num_replicas: int | None = None,
) -> Distribution:
    """Distributes the datasets that an input function returns for each worker: elements for a replica each.

    Args:
        function: The input function.
        replicas: The replicas.
        is_per_replica: Whether it is called for each replica instead.
        num_replicas: For how many replicas, if tasks of other processes are these.

    Raises:
        ArgumentError: If it returns no dataset.
    """
    in_all = replicas.count if num_replicas is None else num_replicas

    def dataset_for(index: int, count: int) -> Dataset:
        if not is_per_replica:
            return dataset_of(InputContext(count, index, in_all))
        each = in_all // count
        numbers = range(index * each, (index + 1) * each)
        datasets = [dataset_of(InputContext(in_all, i, in_all)) for i in numbers]
        # Elements go to replicas in turn.
        if each == 1:
            return datasets[0]
        # Of their own class, whose elements are what the program expects.
        kind = datasets[0]._kind  # pyright: ignore[reportPrivateUsage]
        return kind.choose_from_datasets(datasets, kind.range(each).repeat())

    def dataset_of(context: InputContext) -> Dataset:
        dataset = function(context)
        if not isinstance(dataset, Dataset):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                "An input function must return a lockstep.data.Dataset. Received: "
                f"{type(dataset).__name__}. Example: lambda context: Dataset.range(8).batch(2)"
            )
        return dataset

    runtime = replicas.runtime
    # Raises at once if the function returns something else.
    own = dataset_for(runtime.process, len(runtime.tasks))

    def pipelines(count: int) -> Pipelines:
        if in_all % count:
            raise InputError(
                f"A position of {count} pipelines needs a number of replicas that they divide. Received: "
                f"{in_all} replicas. Continue with another number of workers."
            )

        def plan_of_pipeline(index: int) -> Node:
            mine = index == runtime.process and count == len(runtime.tasks)
            return inside.plan_of(own if mine else dataset_for(index, count))

        return Pipelines(count, plan_of_pipeline, in_all // count)

    return Distribution(replicas, own, pipelines, ["an input function"], is_by_replica=True)


class DistributedSource:
    """A dataset that the workers divide, as a `lockstep._engine.input.source.Source`.

    Args:
        finish: Applied to computed rows.
        divides: Whether a worker may read its own rows of a batch only.
        stays: Whether data may stay on the devices.
    """

    in_memory = False
    single_pass = False
    kind = "dataset"
    held = None
    draws_at_end = False

    def __init__(
        self, distribution: Distribution, finish: Callable[[Any], Any], divides: bool = True, stays: bool = True
    ) -> None:
        self._distribution = distribution
        # A pass that was opened to look at its first batch, and the reader of the open one.
        self._begun: Iterator[Any] | None = None
        self._reader: ReplicatedReader | InterleavedReader | None = None
        self.start: Any = None
        self._spec = ShardSpec(
            partial(host_rows, distribution.replicas) if divides else lambda count: None,
            finish,
            DeviceCache(distribution.replicas) if stays else None,
        )

    @property
    def num_batches(self) -> int | None:
        return self._distribution.num_batches

    def begin_pass(self) -> Iterator[Any]:
        begun, self._begun = self._begun, None
        return begun or self._open(None)

    def _open(self, position: JSON) -> Iterator[Any]:
        self._reader = self._distribution.begin(self._spec, position)
        self.start = self._reader.position()
        return iter(self._reader)

    def end_pass(self) -> None:
        self._reader = None

    def saved_position(self, position: SourcePosition) -> Any:
        assert self._reader is not None
        return self._distribution.saved_position(self._reader, position)

    def resume_pass(self, saved: JSON, batches: int, rows: int | None) -> Iterator[Any]:
        del batches, rows
        self._begun = None
        return self._open(saved)

    def between(self) -> Any:
        known = vars(self._distribution.dataset)
        # A pass that was opened to look at its first batch is the next one.
        return {"entropy": known["_entropy"], "passes": known["_passes"] - (self._begun is not None)}

    def follow(self, between: Any) -> None:
        self._begun = None
        vars(self._distribution.dataset).update(_entropy=between["entropy"], _passes=between["passes"])

    def peek(self) -> Any:
        plan = plan_of(self._distribution.dataset)
        if plan.replayable:
            return self._spec.finish(not_empty(example_of(plan)))
        batches = self.begin_pass()  # Looking twice would have effects: the pass goes on where this look ends.
        first = not_empty(next(batches, None))
        self._begun = itertools.chain([first], batches)
        if isinstance(first.batch, GatherIndices):
            return first.batch.batch_fn(first.batch.arrays, first.batch.rows)
        return first.batch.data if isinstance(first.batch, (RaggedShard, EvenShard)) else first.batch
