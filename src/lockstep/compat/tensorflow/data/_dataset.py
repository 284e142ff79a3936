"""lockstep.data.Dataset, whose elements and map functions have tensors with TensorFlow's methods."""

from __future__ import annotations

import functools
from collections.abc import Callable
from collections.abc import Iterator as _PlainIterator
from typing import Any

import numpy as np

import lockstep.data as _data
from lockstep._nest import map_structure
from lockstep._types import PyTree, Tensor
from lockstep.compat.tensorflow import errors
from lockstep.compat.tensorflow._spec import as_specs
from lockstep.compat.tensorflow._tensor import HostTensor, as_host
from lockstep.compat.tensorflow._types import DTypeLike, ShapeLike
from lockstep.compat.tensorflow.data._iterator import Iterator, Optional, demand_uncompiled
from lockstep.compat.tensorflow.data._options import Options
from lockstep.compat.tensorflow.data._ragged_row import as_numpy, as_value
from lockstep.data.internal import Run, batch_plan, declared_sizes


class Dataset(_data.Dataset):
    """Elements, as a plan of where they come from and what is done to them: `lockstep.data.Dataset`.

    What it yields, and what its functions are called with, are tensors that have `numpy()`.

    Source: tf.data.Dataset.
    """

    def __iter__(self) -> _PlainIterator[Any]:
        """Reads it; not in a function that is compiled, which would hold the elements of its first call for ever."""
        demand_uncompiled()
        return super().__iter__()

    @property
    def element_spec(self) -> Any:
        """Returns the structure of `tf.TensorSpec`s of the elements."""
        # Sizes of batches are those that TensorFlow shows: another one may be compiled for, but is not told.
        with declared_sizes():
            return as_specs(super().element_spec)

    def cardinality(self) -> Any:
        """Returns the number of elements, -1 if there is no end, -2 if it is unknown; as a tensor of int64."""
        return as_host(np.int64(super().cardinality()))

    def __len__(self) -> int:
        return int(super().__len__())

    def at(self, index: int) -> Any:
        """Returns the element with a number; raises `tf.errors.OutOfRangeError` if there is none."""
        try:
            return super().at(index)
        except IndexError as error:
            raise errors.OutOfRangeError(str(error)) from None

    def options(self) -> Options:
        """Returns the options."""
        return Options().merge(super().options())  # pyright: ignore[reportReturnType]

    def _iterator(self, convert: Callable[[Any], Any], run: Run) -> Iterator:
        return Iterator(self._plan, run, convert, self._threads, self._ahead, self._continue_after)

    def _convert_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            return function

        # As wraps tells, the function's own code decides whether it may be called for many elements at once.
        @functools.wraps(function)
        def call(*values: Tensor) -> Any:
            result = function(*[map_structure(as_value, v) for v in values])
            # Arrays leave as numpy's, so that nothing of this package reaches lockstep.
            return map_structure(lambda leaf: leaf.view(np.ndarray) if isinstance(leaf, HostTensor) else leaf, result)

        return call

    def _optional_of_next(self, iterator: Any) -> Optional:
        try:
            return Optional(next(iterator), element_spec=self.element_spec)
        except StopIteration:
            return Optional.empty(self.element_spec)

    def _convert_element(self, element: PyTree) -> Any:
        return map_structure(as_value, element)

    def as_numpy_iterator(self) -> Iterator:
        """Returns an iterator over elements of numpy arrays and `bytes`."""
        return self._iterator(lambda element: map_structure(as_numpy, element), self._next_run())

    def ragged_batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        row_splits_dtype: DTypeLike = "int64",
        name: str | None = None,
    ) -> Dataset:
        """Batches elements that differ in shape into ragged tensors. Source: tf.data.Dataset.ragged_batch.

        Raises:
            ArgumentError: If `row_splits_dtype` is not tf.int32 or tf.int64.
            InputError: While iterating, if the number of axes of elements is not known.
        """
        # Imported when it is used: few programs have ragged tensors.
        from lockstep.compat.tensorflow.data._collate import RaggedCollate

        collate = RaggedCollate(lambda: self._plan.spec, row_splits_dtype)
        return self._add_batches(batch_size, drop_remainder, collate)

    def sparse_batch(self, batch_size: int, row_shape: ShapeLike, name: str | None = None) -> Dataset:
        """Batches arrays that are no larger than `row_shape` into sparse tensors. Source: tf.data.Dataset.sparse_batch.

        Raises:
            InputError: While iterating, if an element does not fit.
        """
        from lockstep.compat.tensorflow.data._collate import SparseCollate

        return self._add_batches(batch_size, False, SparseCollate(row_shape))

    def _add_batches(self, batch_size: int, drop_remainder: bool, collate: Any) -> Dataset:
        return self._add(batch_plan(self._plan, batch_size, drop_remainder, collate))  # pyright: ignore[reportReturnType]


# Transformations of lockstep.data make datasets of this class, so that a chain of them stays here.
Dataset._kind = Dataset  # pyright: ignore[reportPrivateUsage]


def from_lockstep(dataset: _data.Dataset) -> Dataset:
    """Returns a dataset of `lockstep.data` as one of this package."""
    return Dataset._from_plan(dataset._plan, dataset._options)  # pyright: ignore[reportPrivateUsage, reportReturnType]


@functools.cache
def find_dataset_class(name: str) -> Any:
    """Returns the class of `lockstep.data` of that name as a kind of `Dataset`, or `None` if there is no such class."""
    base = getattr(_data, name, None)
    if base is None:
        return None
    # `Dataset` first: its __iter__ and its hooks go before those of lockstep.data's class.
    return type(name, (Dataset, base), {"__doc__": base.__doc__, "__module__": "lockstep.compat.tensorflow.data"})
