"""A dataset as the tasks of a strategy read it: one pass after another, from the same seeds on all of them."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from lockstep._engine.input import samples
from lockstep._engine.input.datasets import Combined, Followed, Need, Pipelines
from lockstep._engine.input.origins import arrays_of, functions_of
from lockstep._engine.input.samples import Sample
from lockstep._engine.step.replicas import Replicas
from lockstep.data import AutoShardPolicy, Dataset, InputContext
from lockstep.data.internal import (
    Node,
    Run,
    describe_plan,
    file_count,
    inside,
    shard_batches,
    shard_by_files,
    shard_by_hint,
)
from lockstep.errors import ArgumentError, InputError

_log = logging.getLogger("lockstep")
_numbers = itertools.count()
_VERSION = 1


class Distribution:
    """How the tasks divide a dataset.

    Args:
        replicas: Who trains.
        dataset: Knows seeds, passes and options.
        pipelines: Returns the pipelines if each gives a part of every batch, for so many of them.
    """

    def __init__(
        self, replicas: Replicas, dataset: Dataset, pipelines: Callable[[int], Pipelines] | None, what: list[str]
    ) -> None:
        self.replicas = replicas
        self.dataset = dataset
        self._pipelines = pipelines
        self._what = what

    @property
    def name(self) -> str:
        """A name for a new reader, the same on all tasks."""
        return f"data-{next(_numbers)}"

    @property
    def num_batches(self) -> int | None:
        """Batches of a pass, if known."""
        count = self.dataset.cardinality()
        return count if count >= 0 and self._pipelines is None else None

    def next_run(self) -> Run:
        """Begins the next pass: the chief's, after all have found that they read the same.

        Raises:
            MismatchError: On all tasks, if the datasets were made by different transformations.
        """
        runtime = self.replicas.runtime
        run = inside.begin_pass(self.dataset)
        if runtime.is_alone:
            return run
        sample, functions = self._compared(run)
        mine = [self._what, run.entropy, list(run.iteration), sample and sample.checksum, functions]
        answers = runtime.all_gather_object("the data of the next pass", mine)
        advice = f"Build the dataset alike on every worker. {samples.ADVICE}"
        runtime.check_equal("dataset", [{"made by": " < ".join(a[0])} for a in answers], advice)
        if samples.differ([a[3] for a in answers]):
            raise samples.mismatch("the arrays of a dataset", sample, runtime.all_gather_object, runtime.tasks)
        if None not in (compared := [a[4] for a in answers]):
            runtime.check_equal("map functions of a dataset", compared, advice)
        _, entropy, iteration, *_ = answers[0]
        inside.follow(self.dataset, entropy)
        return Run(entropy, tuple(iteration))

    def _compared(self, run: Run) -> tuple[Sample | None, list[str] | None]:
        """Returns a sample of the arrays in memory, of other rows on each pass, and digests of the map functions."""
        if self._pipelines is not None or not samples.are_compared(self.replicas.runtime):
            return None, None  # Pipelines may be of data of their own.
        plan = inside.plan_of(self.dataset)
        return arrays_of(plan, sum(run.iteration)), functions_of(plan)

    def begin(self, need: Need, position: Any = None) -> Followed | Combined:
        """Opens the next pass, or one at a position; a collective call.

        Args:
            need: What this task needs of each batch.
            position: What `saved` returned, or `None`.
        """
        runtime = self.replicas.runtime
        threads = inside.threads_of(self.dataset)
        positions = None if position is None else _checked(position, self._pipelines is not None)
        if positions:
            inside.continue_after(self.dataset, positions[0])
        run = self.next_run() if positions is None else Run(0)  # A position knows its own.
        if self._pipelines is None:
            compares = samples.are_compared(runtime)
            return Followed(inside.plan_of(self.dataset), run, need, positions and positions[0], threads, compares)
        pipelines = self._pipelines(len(positions) if positions else len(runtime.tasks))
        return Combined(pipelines, run, runtime.process, len(runtime.tasks), need, positions, threads)

    def saved(self, passing: Followed | Combined, mark: Any) -> dict[str, Any]:
        """Returns a position, the same on all tasks; a collective call where each has its own pipelines."""
        if isinstance(passing, Followed):
            return {"version": _VERSION, "combined": False, "pipelines": [passing.position(mark)]}
        everyone = self.replicas.runtime.all_gather_object("the position in the data", passing.position(mark))
        return {"version": _VERSION, "combined": True, "pipelines": [p for task in everyone for p in task]}


def of_dataset(dataset: Dataset, replicas: Replicas) -> Distribution:
    """Distributes global batches, by the dataset's auto-shard policy.

    Raises:
        ArgumentError: If the policy does not fit the dataset.
    """
    plan = inside.plan_of(dataset)
    policy = dataset.options().experimental_distribute.auto_shard_policy
    parts: dict[AutoShardPolicy, Callable[[Node, int, int], Node]] = {
        AutoShardPolicy.FILE: shard_by_files,
        AutoShardPolicy.HINT: shard_by_hint,
        AutoShardPolicy.OFF: lambda node, count, index: node,
    }
    part = parts.get(policy)
    if part is None:
        return Distribution(replicas, dataset, None, describe_plan(plan))
    if policy is AutoShardPolicy.FILE:
        _explain_files(plan, replicas)

    def pipelines(count: int) -> Pipelines:
        return Pipelines(count, lambda i: shard_batches(part(plan, count, i), count, i))

    pipelines(1).plan_of(0)  # Says at once what does not fit.
    return Distribution(replicas, dataset, pipelines, describe_plan(plan))


def of_function(function: Callable[[InputContext], Dataset], replicas: Replicas) -> Distribution:
    """Distributes what an input function returns for each worker: batches for a replica each.

    Raises:
        ArgumentError: If it returns no dataset.
    """

    def dataset_for(index: int, count: int) -> Dataset:
        made = function(InputContext(count, index, replicas.count))
        if not isinstance(made, Dataset):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                "An input function must return a lockstep.data.Dataset. Received: "
                f"{type(made).__name__}. Example: lambda context: Dataset.range(8).batch(2)"
            )
        return made

    runtime = replicas.runtime
    own = dataset_for(runtime.process, len(runtime.tasks))

    def pipelines(count: int) -> Pipelines:
        if replicas.count % count:
            raise InputError(
                f"A position of {count} pipelines needs a number of replicas that they divide. Received: "
                f"{replicas.count} replicas. Continue with another number of workers."
            )

        def plan_of(index: int) -> Node:
            mine = index == runtime.process and count == len(runtime.tasks)
            return inside.plan_of(own if mine else dataset_for(index, count))

        return Pipelines(count, plan_of, replicas.count // count)

    return Distribution(replicas, own, pipelines, ["an input function"])


def _explain_files(plan: Node, replicas: Replicas) -> None:
    files, tasks = file_count(plan), replicas.runtime.tasks
    if files is None or files >= len(tasks) or not replicas.runtime.is_chief:
        return
    idle: Sequence[str] = tasks[files:]
    _log.warning(
        "AutoShardPolicy.FILE: %d files for %d workers, so %s read none. They still compute their share of every "
        "batch; with at least as many files as workers, all would read.",
        files,
        len(tasks),
        ", ".join(idle),
    )


def _checked(position: Any, combined: bool) -> list[Any]:
    if not isinstance(position, dict) or position.get("version") != _VERSION or "pipelines" not in position:
        raise ArgumentError(f"set_state needs what get_state returned. Received: {str(position)[:80]}.")
    if position["combined"] != combined:
        raise ArgumentError(
            "A position belongs to one way to divide the data. Received: one of another auto-shard policy. Use the "
            "policy with which it was taken."
        )
    return position["pipelines"]
