"""tf.data.experimental: older names for what datasets do."""

from __future__ import annotations

from collections.abc import Callable as _Callable
from typing import Any as _Any

from lockstep._types import PyTree as _PyTree
from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.compat.tensorflow._types import Argument as _Argument
from lockstep.compat.tensorflow._types import Dataset as _DatasetLike
from lockstep.compat.tensorflow._types import DTypeLike as _DTypeLike
from lockstep.compat.tensorflow.data._dataset import Dataset as _Dataset
from lockstep.data import AUTOTUNE as AUTOTUNE
from lockstep.data import INFINITE_CARDINALITY as INFINITE_CARDINALITY
from lockstep.data import SHARD_HINT as SHARD_HINT
from lockstep.data import UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY
from lockstep.data import AutoShardPolicy as AutoShardPolicy
from lockstep.data import DistributeOptions as DistributeOptions
from lockstep.data import ThreadingOptions as ThreadingOptions

__all__ = ["AUTOTUNE", "AutoShardPolicy", "Counter", "DistributeOptions", "INFINITE_CARDINALITY", "SHARD_HINT"]
__all__ += ["ThreadingOptions", "UNKNOWN_CARDINALITY", "assert_cardinality", "cardinality", "choose_from_datasets"]
__all__ += ["enumerate_dataset", "get_single_element", "ignore_errors", "map_and_batch", "parallel_interleave"]
__all__ += ["sample_from_datasets", "scan", "shuffle_and_repeat", "take_while", "unbatch"]

# What Dataset.apply takes.
_Transformation = _Callable[[_Any], _Any]


def Counter(start: int = 0, step: int = 1, dtype: _DTypeLike = "int64") -> _Any:
    """Returns a dataset that counts without end. Source: tf.data.experimental.Counter."""
    from lockstep.compat.tensorflow._dtypes import as_dtype

    return _Dataset.counter(start, step, as_dtype(dtype).dtype)


def cardinality(dataset: _DatasetLike) -> _Any:
    """Returns the number of elements, -1 if there is no end, -2 if it is unknown.

    Source: tf.data.experimental.cardinality.
    """
    return dataset.cardinality()


def assert_cardinality(expected_cardinality: int) -> _Transformation:
    """Raises `tf.errors.FailedPreconditionError` while iterating, if a dataset has more or fewer elements; for `apply`.

    Source: tf.data.experimental.assert_cardinality.
    """
    return lambda dataset: dataset.assert_cardinality(expected_cardinality)


def choose_from_datasets(
    datasets: _Argument, choice_dataset: _DatasetLike, stop_on_empty_dataset: bool = False
) -> _Any:
    """Takes elements of datasets as another says. Source: tf.data.experimental.choose_from_datasets."""
    return _Dataset.choose_from_datasets(datasets, choice_dataset, stop_on_empty_dataset)


def sample_from_datasets(
    datasets: _Argument, weights: _Tensor = None, seed: int | None = None, stop_on_empty_dataset: bool = False
) -> _Any:
    """Takes elements of datasets at random. Source: tf.data.experimental.sample_from_datasets."""
    return _Dataset.sample_from_datasets(datasets, weights, seed, stop_on_empty_dataset)


def get_single_element(dataset: _DatasetLike) -> _Any:
    """Returns the only element. Source: tf.data.experimental.get_single_element."""
    return dataset.get_single_element()


def enumerate_dataset(start: int = 0) -> _Transformation:
    """Numbers elements, for `apply`. Source: tf.data.experimental.enumerate_dataset."""
    return lambda dataset: dataset.enumerate(start)


def ignore_errors(log_warning: bool = False) -> _Transformation:
    """Leaves elements out that cannot be read, for `apply`. Source: tf.data.experimental.ignore_errors."""
    return lambda dataset: dataset.ignore_errors(log_warning)


def map_and_batch(
    map_func: _Callable[..., _Any],
    batch_size: int,
    num_parallel_batches: int | None = None,
    drop_remainder: bool = False,
    num_parallel_calls: int | None = None,
) -> _Transformation:
    """Maps and batches, for `apply`; `num_parallel_batches` is the older `num_parallel_calls`.

    Source: tf.data.experimental.map_and_batch.
    """
    # The older argument counted batches; both only say how much is computed at once.
    calls = num_parallel_calls if num_parallel_batches is None else num_parallel_batches
    return lambda dataset: dataset.map(map_func, num_parallel_calls=calls).batch(batch_size, drop_remainder)


def parallel_interleave(
    map_func: _Callable[..., _Any], cycle_length: int, block_length: int = 1, sloppy: bool | None = False
) -> _Transformation:
    """Interleaves datasets made of elements, for `apply`; the order is kept, which `sloppy` does not ask for.

    Source: tf.data.experimental.parallel_interleave.
    """
    # Results in their order are allowed where sloppy permits another one; not the other way round.
    return lambda dataset: dataset.interleave(map_func, cycle_length, block_length, deterministic=not sloppy)


def scan(initial_state: _PyTree, scan_func: _Callable[..., _Any]) -> _Transformation:
    """Maps with a state, for `apply`. Source: tf.data.experimental.scan."""
    return lambda dataset: dataset.scan(initial_state, scan_func)


def shuffle_and_repeat(buffer_size: int, count: int | None = None, seed: int | None = None) -> _Transformation:
    """Shuffles and repeats, for `apply`. Source: tf.data.experimental.shuffle_and_repeat."""
    # TensorFlow shuffles each pass by itself, then repeats.
    return lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)


def take_while(predicate: _Callable[..., _Any]) -> _Transformation:
    """Ends a dataset where a condition does not hold, for `apply`. Source: tf.data.experimental.take_while."""
    return lambda dataset: dataset.take_while(predicate)


def unbatch() -> _Transformation:
    """Takes batches apart, for `apply`. Source: tf.data.experimental.unbatch."""
    return lambda dataset: dataset.unbatch()


__getattr__ = _getter(__name__)
