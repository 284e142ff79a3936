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
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def submit(function: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
    """Calls a function on one of the threads; on one of them already, at once, so that they never wait for another."""
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
    limit = min(workers or cores(), len(values))
    if limit <= 1:
        return [function(v) for v in values]
    parts = [values[i * len(values) // limit : (i + 1) * len(values) // limit] for i in range(limit)]
    futures = [submit(lambda part: [function(v) for v in part], part) for part in parts]
    return [result for future in futures for result in future.result()]


def compute_block(block: Block) -> Block:
    """Returns a block whose elements are there, computed on all threads if that helps."""
    if block.store.is_vectorized or len(block) < 2:
        return array_block(block.take())
    parts = min(cores(), len(block))
    cuts = [slice(i * len(block) // parts, (i + 1) * len(block) // parts) for i in range(parts)]
    return array_block(concatenate(map_parallel(lambda cut: block[cut].take(), cuts)))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    def mark() -> None:
        _here.inside = True

    return ThreadPoolExecutor(cores(), thread_name_prefix="lockstep-data", initializer=mark)
