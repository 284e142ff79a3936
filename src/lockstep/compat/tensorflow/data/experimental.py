"""tf.data.experimental: older names for what datasets do, and what they do beside their methods."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from collections.abc import Callable as _Callable
from collections.abc import Mapping as _Mapping
from collections.abc import Sequence as _Sequence
from typing import Any as _Any

import numpy as _np

from lockstep._nest import map_structure as _map_structure
from lockstep._types import PyTree as _PyTree
from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow._forward import find_in_data as _find_in_data
from lockstep.compat.tensorflow._types import Argument as _Argument
from lockstep.compat.tensorflow._types import Dataset as _DatasetLike
from lockstep.compat.tensorflow._types import DTypeLike as _DTypeLike
from lockstep.compat.tensorflow._types import PathLike as _PathLike
from lockstep.compat.tensorflow.data import _dataset
from lockstep.compat.tensorflow.data._dataset import Dataset as _Dataset
from lockstep.compat.tensorflow.data._iterator import Optional as Optional
from lockstep.compat.tensorflow.data._options import AutotuneAlgorithm as AutotuneAlgorithm
from lockstep.compat.tensorflow.data._options import AutotuneOptions as AutotuneOptions
from lockstep.compat.tensorflow.data._options import DistributeOptions as DistributeOptions
from lockstep.compat.tensorflow.data._options import ExternalStatePolicy as ExternalStatePolicy
from lockstep.compat.tensorflow.data._options import OptimizationOptions as OptimizationOptions
from lockstep.compat.tensorflow.data._options import ThreadingOptions as ThreadingOptions
from lockstep.compat.tensorflow.data._readers import SqlDataset as SqlDataset
from lockstep.compat.tensorflow.data._readers import TFRecordWriter as TFRecordWriter
from lockstep.compat.tensorflow.data._readers import make_batched_features_dataset as make_batched_features_dataset
from lockstep.compat.tensorflow.data._readers import make_csv_dataset as make_csv_dataset
from lockstep.data import AUTOTUNE as AUTOTUNE
from lockstep.data import INFINITE_CARDINALITY as INFINITE_CARDINALITY
from lockstep.data import SHARD_HINT as SHARD_HINT
from lockstep.data import UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY
from lockstep.data import AutoShardPolicy as AutoShardPolicy
from lockstep.errors import ArgumentError as _ArgumentError

# Classes that are made when they are used.
_LATE = ("CsvDataset",)

__all__ = ["AUTOTUNE", "AutoShardPolicy", "AutotuneAlgorithm", "AutotuneOptions", "Counter", *_LATE]
__all__ += ["DistributeOptions", "ExternalStatePolicy", "INFINITE_CARDINALITY", "OptimizationOptions", "Optional"]
__all__ += ["RandomDataset", "Reducer", "SHARD_HINT", "SqlDataset", "TFRecordWriter", "ThreadingOptions"]
__all__ += ["UNKNOWN_CARDINALITY", "assert_cardinality", "at", "bucket_by_sequence_length", "cardinality"]
__all__ += ["choose_from_datasets", "copy_to_device", "enable_debug_mode", "enumerate_dataset", "from_list"]
__all__ += ["get_next_as_optional", "get_single_element", "get_structure", "group_by_reducer", "group_by_window"]
__all__ += ["ignore_errors", "load", "make_batched_features_dataset", "make_csv_dataset", "map_and_batch"]
__all__ += ["pad_to_cardinality", "parallel_interleave", "parse_example_dataset", "prefetch_to_device"]
__all__ += ["rejection_resample", "sample_from_datasets", "save", "scan", "shuffle_and_repeat", "snapshot"]
__all__ += ["take_while", "unbatch", "unique"]

# What Dataset.apply takes.
_Transformation = _Callable[[_Any], _Any]


class Reducer:
    """The functions of `group_by_reducer`. Source: tf.data.experimental.Reducer."""

    def __init__(
        self, init_func: _Callable[..., _Any], reduce_func: _Callable[..., _Any], finalize_func: _Callable[..., _Any]
    ) -> None:
        """Keeps the functions: the first state of a key, the state after an element, and the result of a state."""
        self.init_func = init_func
        self.reduce_func = reduce_func
        self.finalize_func = finalize_func


def Counter(start: int = 0, step: int = 1, dtype: _DTypeLike = "int64") -> _Any:
    """Returns a dataset that counts without end. Source: tf.data.experimental.Counter."""
    return _Dataset.counter(start, step, dtype)


def RandomDataset(
    seed: int | None = None, rerandomize_each_iteration: bool | None = None, name: str | None = None
) -> _Any:
    """Returns an endless dataset of random numbers. Source: tf.data.experimental.RandomDataset."""
    return _Dataset.random(seed, rerandomize_each_iteration)


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


def pad_to_cardinality(cardinality: int, mask_key: str = "valid") -> _Transformation:
    """Adds elements of zeros up to a number of elements, dicts, and says of each whether it is a real one; for `apply`.

    Source: tf.data.experimental.pad_to_cardinality.
    """

    def apply(dataset: _Any) -> _Any:
        count = int(dataset.cardinality())
        if count < 0:
            raise _ArgumentError(
                "The dataset passed into `pad_to_cardinality` must have a known cardinalty, but has cardinality "
                f"{count}. Use assert_cardinality to say how many elements it has."
            )
        if count > int(cardinality):
            raise _ArgumentError(
                "The dataset passed into `pad_to_cardinality` must have a cardinalty less than the target cardinality "
                f"({int(cardinality)}), but has cardinality {count}."
            )
        spec = dataset.element_spec
        if not isinstance(spec, _Mapping):
            raise _ArgumentError("`pad_to_cardinality` requires its input dataset to be a dictionary.")
        zeros = {key: _map_structure(_zeros, value) for key, value in spec.items()}
        filler = _Dataset.from_tensors({**zeros, mask_key: False}).repeat(int(cardinality) - count)
        return dataset.map(lambda element: {**element, mask_key: _np.bool_(True)}).concatenate(filler)

    return apply


def _zeros(spec: _Any) -> _Any:
    if spec.shape is None or None in tuple(spec.shape):
        raise _ArgumentError(f"`pad_to_cardinality` needs elements of known shapes. Received: {spec}. Pad them first.")
    dtype = _np.dtype(getattr(spec.dtype, "dtype", spec.dtype))
    return _np.full(tuple(spec.shape), b"" if dtype.kind == "O" else 0, dtype)


def at(dataset: _DatasetLike, index: int) -> _Any:
    """Returns the element of a number. Source: tf.data.experimental.at."""
    return dataset.at(index)


def bucket_by_sequence_length(
    element_length_func: _Callable[..., _Any],
    bucket_boundaries: _Sequence[int],
    bucket_batch_sizes: _Sequence[int],
    padded_shapes: _PyTree = None,
    padding_values: _PyTree = None,
    pad_to_bucket_boundary: bool = False,
    no_padding: bool = False,
    drop_remainder: bool = False,
) -> _Transformation:
    """Batches elements of similar length, for `apply`. Source: tf.data.experimental.bucket_by_sequence_length."""
    return lambda dataset: dataset.bucket_by_sequence_length(
        element_length_func,
        bucket_boundaries,
        bucket_batch_sizes,
        padded_shapes,
        padding_values,
        pad_to_bucket_boundary,
        no_padding,
        drop_remainder,
    )


def choose_from_datasets(
    datasets: _Argument, choice_dataset: _DatasetLike, stop_on_empty_dataset: bool = False
) -> _Any:
    """Takes elements of datasets as another says. Source: tf.data.experimental.choose_from_datasets."""
    return _Dataset.choose_from_datasets(datasets, choice_dataset, stop_on_empty_dataset)


def copy_to_device(target_device: str, source_device: str = "/cpu:0") -> _Transformation:
    """Returns a dataset as it is, for `apply`: steps copy their batches.

    Source: tf.data.experimental.copy_to_device.
    """
    return lambda dataset: dataset


def prefetch_to_device(device: str, buffer_size: int | None = None) -> _Transformation:
    """Computes elements ahead, for `apply`; steps copy them to devices.

    Source: tf.data.experimental.prefetch_to_device.
    """
    return lambda dataset: dataset.prefetch(AUTOTUNE if buffer_size is None else buffer_size)


def enable_debug_mode() -> None:
    """Does nothing: functions can be debugged where they are not compiled; see `tf.py_function`.

    Source: tf.data.experimental.enable_debug_mode.
    """


def from_list(elements: _Sequence[_PyTree], name: str | None = None) -> _Any:
    """Returns a dataset of the items of a list. Source: tf.data.experimental.from_list."""
    return _Dataset.from_list(elements, name)


def get_next_as_optional(iterator: _Any) -> Optional:
    """Returns the next element, or its absence. Source: tf.data.experimental.get_next_as_optional."""
    return iterator.get_next_as_optional()


def get_structure(dataset_or_iterator: _DatasetLike) -> _Any:
    """Returns the spec of the elements. Source: tf.data.experimental.get_structure."""
    if not hasattr(dataset_or_iterator, "element_spec"):
        raise TypeError(
            f"A dataset or an iterator is needed. Received: {type(dataset_or_iterator).__name__}. Example: "
            "tf.data.Dataset.range(3)"
        )
    return dataset_or_iterator.element_spec


def group_by_reducer(key_func: _Callable[..., _Any], reducer: Reducer) -> _Transformation:
    """Reduces elements by key, for `apply`. Source: tf.data.experimental.group_by_reducer."""
    return lambda dataset: dataset.group_by_reducer(
        key_func, reducer.init_func, reducer.reduce_func, reducer.finalize_func
    )


def group_by_window(
    key_func: _Callable[..., _Any],
    reduce_func: _Callable[..., _Any],
    window_size: int | None = None,
    window_size_func: _Callable[..., _Any] | None = None,
) -> _Transformation:
    """Groups elements by key into windows, for `apply`. Source: tf.data.experimental.group_by_window."""
    if (window_size is None) == (window_size_func is None):
        raise _ArgumentError("Must pass either window_size or window_size_func. Received: both, or neither.")
    return lambda dataset: dataset.group_by_window(key_func, reduce_func, window_size, window_size_func)


def sample_from_datasets(
    datasets: _Argument, weights: _Tensor = None, seed: int | None = None, stop_on_empty_dataset: bool = False
) -> _Any:
    """Takes elements of datasets at random. Source: tf.data.experimental.sample_from_datasets."""
    return _Dataset.sample_from_datasets(datasets, weights, seed, stop_on_empty_dataset)


def save(
    dataset: _DatasetLike,
    path: _PathLike,
    compression: str | None = None,
    shard_func: _Callable[..., _Any] | None = None,
    checkpoint_args: _Mapping[str, _Any] | None = None,
) -> None:
    """Writes a dataset to a directory. Source: tf.data.experimental.save."""
    dataset.save(path, compression, shard_func, checkpoint_args)


def load(
    path: _PathLike,
    element_spec: _PyTree = None,
    compression: str | None = None,
    reader_func: _Callable[..., _Any] | None = None,
) -> _Any:
    """Returns a dataset that `save` wrote. Source: tf.data.experimental.load."""
    return _Dataset.load(path, element_spec, compression, reader_func)


def snapshot(
    path: _PathLike,
    compression: str | None = "AUTO",
    reader_func: _Callable[..., _Any] | None = None,
    shard_func: _Callable[..., _Any] | None = None,
) -> _Transformation:
    """Writes the elements of the first pass, and reads them in later ones, for `apply`.

    Source: tf.data.experimental.snapshot.
    """
    return lambda dataset: dataset.snapshot(path, compression, reader_func, shard_func)


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
    if num_parallel_batches is not None and num_parallel_calls is not None:
        raise _ArgumentError(
            "`map_and_batch` allows only one of `num_parallel_batches` and `num_parallel_calls` to be set, but "
            f"`num_parallel_batches` was set to {num_parallel_batches} and `num_parallel_calls` was set to "
            f"{num_parallel_calls}."
        )
    # The older argument counted batches; both only say how much is computed at once.
    calls = num_parallel_calls if num_parallel_batches is None else num_parallel_batches
    return lambda dataset: dataset.map(map_func, num_parallel_calls=calls).batch(batch_size, drop_remainder)


def parallel_interleave(
    map_func: _Callable[..., _Any],
    cycle_length: int,
    block_length: int = 1,
    sloppy: bool | None = False,
    buffer_output_elements: int | None = None,
    prefetch_input_elements: int | None = None,
) -> _Transformation:
    """Interleaves datasets made of elements, for `apply`; the order is kept, which `sloppy` does not ask for.

    The last two arguments tune TensorFlow's buffers, and change no element.

    Source: tf.data.experimental.parallel_interleave.
    """
    # Results in their order are allowed where sloppy permits another one; not the other way round.
    return lambda dataset: dataset.interleave(map_func, cycle_length, block_length, deterministic=not sloppy)


def parse_example_dataset(
    features: _Mapping[str, _Any], num_parallel_calls: int | None = 1, deterministic: bool | None = None
) -> _Transformation:
    """Parses batches of serialised examples, for `apply`. Source: tf.data.experimental.parse_example_dataset."""
    if not features:
        raise _ArgumentError("Argument `features` cannot be None or empty. Received: none. Describe a feature.")
    return lambda dataset: dataset.map(
        lambda serialized: _find_in_data("parse_example")(serialized, features), num_parallel_calls=num_parallel_calls
    )


def rejection_resample(
    class_func: _Callable[..., _Any], target_dist: _Tensor, initial_dist: _Tensor = None, seed: int | None = None
) -> _Transformation:
    """Drops elements, so that classes come as often as they should, for `apply`.

    Source: tf.data.experimental.rejection_resample.
    """
    return lambda dataset: dataset.rejection_resample(class_func, target_dist, initial_dist, seed)


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


def unique() -> _Transformation:
    """Keeps the first of equal elements, for `apply`. Source: tf.data.experimental.unique."""
    return lambda dataset: dataset.unique()


_other = _missing.getter(__name__)


def __getattr__(name: str) -> _Any:
    return _dataset.find_dataset_class(name) if name in _LATE else _other(name)


__dir__ = _missing.lister(globals(), dict.fromkeys(_LATE, ""))
