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
from lockstep.compat.tensorflow._ops.named import is_of_replica
from lockstep.compat.tensorflow._spec import as_specs
from lockstep.compat.tensorflow._tensor import HostTensor, as_host, as_tensor
from lockstep.compat.tensorflow.data._iterator import Iterator
from lockstep.compat.tensorflow.data._options import Options
from lockstep.data.internal import Run
from lockstep.errors import UnsupportedError


class Dataset(_data.Dataset):
    """Elements, as a plan of where they come from and what is done to them: `lockstep.data.Dataset`.

    What it yields, and what its functions are called with, are tensors that have `numpy()`.

    Source: tf.data.Dataset.
    """

    def __iter__(self) -> _PlainIterator[Any]:
        """Reads it; not in a function that is compiled, which would hold the elements of its first call for ever."""
        # The trace would unroll the loop over the elements of its first call.
        if is_of_replica():
            raise UnsupportedError(
                "A dataset is read outside of what is compiled. Received: a loop over one in a function of run, "
                "or in a tf.function that takes derivatives. Let the function do one step, and call it with each batch."
            )
        return super().__iter__()

    @property
    def element_spec(self) -> Any:
        """Returns the structure of `tf.TensorSpec`s of the elements."""
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
