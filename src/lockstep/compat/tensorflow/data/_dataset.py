"""lockstep.data.Dataset, whose elements and map functions have tensors with TensorFlow's methods."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import lockstep.data as _data
from lockstep._nest import map_structure
from lockstep._types import PyTree, Tensor
from lockstep.compat.tensorflow._ops.named import is_of_replica
from lockstep.compat.tensorflow._tensor import HostTensor, as_host, as_tensor
from lockstep.data.internal import DatasetIterator
from lockstep.errors import UnsupportedError


class _Iterator(DatasetIterator):
    """Iterator that is not read in code that is being compiled."""

    def __next__(self) -> Any:
        _demand_uncompiled()
        return super().__next__()


def _demand_uncompiled() -> None:
    # The trace would unroll the loop over the elements of its first call.
    if is_of_replica():
        raise UnsupportedError(
            "A dataset is read outside of what is compiled. Received: a loop over one in a function of run, or in a "
            "function that is compiled. Let the function do one step, and call it with each batch."
        )


class Dataset(_data.Dataset):
    """Elements, as a plan of where they come from and what is done to them: `lockstep.data.Dataset`.

    What it yields, and what its functions are called with, are tensors that have `numpy()`.

    Source: tf.data.Dataset.
    """

    def __iter__(self) -> Iterator[Any]:
        """Reads it; not in a function that is compiled, which would hold the elements of its first call for ever."""
        _demand_uncompiled()
        found = super().__iter__()
        if type(found) is DatasetIterator:
            # An iterator that knows where it is read; all its state is that of the class.
            found.__class__ = _Iterator
        return found

    def cardinality(self) -> Any:
        """Returns the number of elements, -1 if there is no end, -2 if it is unknown; as a tensor of int64."""
        return as_host(np.int64(super().cardinality()))

    def __len__(self) -> int:
        return int(super().__len__())

    def _convert_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            return function

        # As wraps tells, the function's own code decides whether it may be called for many elements at once.
        @functools.wraps(function)
        def call(*values: Tensor) -> Any:
            result = function(*[map_structure(as_tensor, v) for v in values])
            # Arrays leave as numpy's, so that nothing of this package reaches lockstep.
            return map_structure(lambda leaf: leaf.view(np.ndarray) if isinstance(leaf, HostTensor) else leaf, result)

        return call

    def _convert_element(self, element: PyTree) -> Any:
        return map_structure(as_tensor, element)


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
