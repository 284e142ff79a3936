"""The threads that compute elements: one pool for the process."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from lockstep.data._blocks import Block, array_block
from lockstep.data._columns import concatenate

_Result = TypeVar("_Result")
_here = threading.local()


def cores() -> int:
    """Returns how many threads can run at once."""
    # Not os.cpu_count: containers and batch systems pin a job to some of the machine's cores.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def submit(function: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
    """Submits a call to the pool; a thread of the pool calls the function itself, at once."""
    # A thread of the pool that waited for another one could wait for ever: all of them may be waiting.
    if getattr(_here, "inside", False):
        future: Future[_Result] = Future()
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)
        return future
    return _pool().submit(function, *arguments)


def map_parallel(
    function: Callable[[Any], _Result], values: Sequence[Any], workers: int | None = None
) -> list[_Result]:
    """Calls a function for each value, on up to `workers` threads; returns the results in order."""
    # Contiguous parts, one per thread: a future for each value would cost more than a small function.
    limit = min(workers or cores(), len(values))
    if limit <= 1:
        return [function(v) for v in values]
    parts = [values[i * len(values) // limit : (i + 1) * len(values) // limit] for i in range(limit)]
    futures = [submit(lambda part: [function(v) for v in part], part) for part in parts]
    return [result for future in futures for result in future.result()]


def compute_block(block: Block) -> Block:
    """Returns a block of computed elements, computed on all threads if that helps."""
    # A compiled function is one call for the whole block, and XLA spreads it over the cores itself.
    if block.store.is_vectorized or len(block) < 2:
        return array_block(block.take())
    parts = min(cores(), len(block))
    cuts = [slice(i * len(block) // parts, (i + 1) * len(block) // parts) for i in range(parts)]
    return array_block(concatenate(map_parallel(lambda cut: block[cut].take(), cuts)))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    # Marks the pool's threads, for `submit`.
    def mark() -> None:
        _here.inside = True

    return ThreadPoolExecutor(cores(), thread_name_prefix="lockstep-data", initializer=mark)
