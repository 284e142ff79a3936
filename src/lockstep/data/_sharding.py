"""Sharding of plans among workers: by files, by batches, or where the program marks it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from lockstep.data._peek import example_of, spec_if_known
from lockstep.data._plan import Node, walk
from lockstep.data._record_files import Files
from lockstep.data._sources import Arrays
from lockstep.data._spec import TensorSpec
from lockstep.data._structure import TEXT
from lockstep.data._transforms.batch import Batch, Rebatch
from lockstep.data._transforms.interleave import Interleave
from lockstep.data._transforms.position import HintedShard, Prefetch, Shard
from lockstep.errors import ArgumentError, InputError


def file_count(plan: Node) -> int | None:
    """Returns the number of files a plan reads, the least over its sources, or `None` if it reads none."""
    counts = [len(n.paths) if isinstance(n, Files) else n.cardinality for n in _file_sources(plan)]
    return min(counts, default=None)


def shard_by_files(plan: Node, count: int, index: int) -> Node:
    """Returns the plan for every `count`-th file; raises `ArgumentError` if the plan does not read files."""
    sources = _file_sources(plan)
    if not sources:
        raise ArgumentError(
            "AutoShardPolicy.FILE needs a dataset that reads files: one of the classes such as TFRecordDataset, or "
            f"interleave or flat_map over file names. Received: {' < '.join(n.label for n in walk(plan))}. Use "
            "AutoShardPolicy.DATA."
        )

    def part(node: Node) -> Node | None:
        if not any(node is s for s in sources):
            return None
        return node.shard(count, index) if isinstance(node, Files) else Shard(node, count, index)

    return _rewrite(plan, part)


def shard_by_hint(plan: Node, count: int, index: int) -> Node:
    """Returns the plan with its marked shard; raises `ArgumentError` if none is marked."""
    if not any(isinstance(node, HintedShard) for node in walk(plan)):
        raise ArgumentError(
            "AutoShardPolicy.HINT needs a dataset with shard(SHARD_HINT, SHARD_HINT). Received: none. Put it where the "
            "workers are to divide the data, or use AutoShardPolicy.DATA."
        )
    return _rewrite(plan, lambda n: Shard(n.upstream, count, index) if isinstance(n, HintedShard) else None)


def shard_batches(plan: Node, count: int, index: int) -> Node:
    """Returns the plan with one worker's shard of each batch; the first workers take the remainder.

    Raises:
        ArgumentError: If the elements are no batches.
    """
    size = _batch_size(plan)
    share = size // count + (index < size % count)
    if share == 0:
        raise ArgumentError(
            f"A global batch needs at least one example per worker. Received: {size} for {count} workers. Make it "
            "larger."
        )
    last = _without_prefetch(plan)
    # drop_remainder of the global batch holds for the shards: all workers have as many batches.
    return Rebatch(plan, [share], isinstance(last, Batch) and last.drop)


def _batch_size(plan: Node) -> int:
    """Returns how many examples a batch holds."""
    last = _without_prefetch(plan)
    # The declared size, since a spec's first axis is unknown where the last batch is smaller.
    if isinstance(last, Batch):
        return last.size
    spec = spec_if_known(plan)
    specs = jax.tree.leaves(spec)
    if spec is None or any(isinstance(s, TensorSpec) and s.shape and s.shape[0] is None for s in specs):
        example = example_of(plan)
        if example is None:
            raise InputError("A dataset to distribute must say what its elements look like, or have some.")
        specs = [TensorSpec(np.shape(leaf), getattr(leaf, "dtype", TEXT)) for leaf in jax.tree.leaves(example)]
    sizes = {s.shape[0] if isinstance(s, TensorSpec) and s.shape else None for s in specs}
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None:
        raise ArgumentError(
            "A dataset to distribute must consist of global batches. Received: elements without a common first axis. "
            "Call batch(global_batch_size) on it."
        )
    return size


def _without_prefetch(plan: Node) -> Node:
    """Returns the last node that changes something about the elements."""
    while isinstance(plan, Prefetch):
        plan = plan.upstream
    return plan


def _file_sources(plan: Node) -> list[Node]:
    """Returns the nodes that hold files, or names of files that are read one by one."""
    if isinstance(plan, Files):
        return [plan]
    sources = [source for node in plan.inputs for source in _file_sources(node)]
    # interleave over file names, tf.data's usual form: the names are sharded instead of the files.
    if not sources and isinstance(plan, Interleave):
        return [n for n in walk(plan.upstream) if isinstance(n, Arrays) and n.spec == TensorSpec((), TEXT)]
    return sources


def _rewrite(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """Returns a plan with some nodes replaced; all others stay as they are where they read the same."""
    changed = change(node)
    if changed is not None:
        return changed
    inputs = [_rewrite(n, change) for n in node.inputs]
    # Kept nodes keep their caches and their compiled functions.
    same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
    return node if same else node.with_inputs(inputs)
