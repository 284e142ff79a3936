"""The base of `Dataset`: a plan, its options, and passes over it; access to them for the other packages of lockstep."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep._nest import unpack
from lockstep._types import Element, PyTree
from lockstep.data import _blocks, _structure
from lockstep.data._iterator import DatasetIterator, Optional
from lockstep.data._map_program import wrap_error
from lockstep.data._options import INFINITE_CARDINALITY, Options
from lockstep.data._plan import Node, Run, walk
from lockstep.data._transforms.position import Prefetch
from lockstep.errors import ArgumentError, InputError

if TYPE_CHECKING:
    from lockstep.data._dataset import Dataset

_before_first: list[Callable[[], None]] = []


def before_first_dataset(call: Callable[[], None]) -> None:
    """Calls `call` when the first dataset is made: the import of this package changes nothing outside of it."""
    _before_first.append(call)


class DatasetBase:
    """A plan, the options it is read with, and the number of passes over it so far."""

    # The class of what transformations return: `compat` derives another one, whose elements are tensors.
    _kind: ClassVar[type[Dataset]]
    _plan: Node
    _options: Options
    _passes: int
    _entropy: int | None

    def __init__(self) -> None:
        raise ArgumentError(
            "A Dataset is made by a function such as Dataset.from_tensor_slices, from_generator or range, or by one of "
            "the classes for files such as TFRecordDataset. Received: Dataset()."
        )

    @classmethod
    def _from_plan(cls, plan: Node, options: Options | None = None) -> Dataset:
        """Returns a dataset of a plan."""
        result = object.__new__(cls._kind)  # Past __init__, which refuses users' calls.
        result._set_plan(plan, options)
        return result

    def _add(self, plan: Node) -> Dataset:
        """Returns this dataset with one more transformation, and the same options."""
        return self._kind._from_plan(plan, self._options)

    def _set_plan(self, plan: Node, options: Options | None = None) -> None:
        while _before_first:
            _before_first.pop()()
        self._plan = plan
        self._options = options or Options()
        self._passes = 0
        self._entropy = None

    @property
    def element_spec(self) -> PyTree:
        """Returns the structure of `TensorSpec`s of the elements. Some plans compute elements to find out."""
        return unpack(self._plan.spec)

    def cardinality(self) -> int:
        """Returns the number of elements, `INFINITE_CARDINALITY` (-1) or `UNKNOWN_CARDINALITY` (-2)."""
        return self._plan.cardinality

    def options(self) -> Options:
        """Returns the options."""
        return self._options

    def __len__(self) -> int:
        count = self.cardinality()
        if count < 0:
            kind = "infinite" if count == INFINITE_CARDINALITY else "unknown"
            raise TypeError(f"The number of elements of this dataset is {kind}. Use cardinality() instead of len().")
        return count

    def __bool__(self) -> bool:
        # Without this, `if dataset:` would call __len__, which raises where the cardinality is unknown.
        return True

    def __repr__(self) -> str:
        try:
            spec = self.element_spec
        except InputError:
            spec = "unknown"
        return f"<{type(self).__name__} element_spec={spec}>"

    def __iter__(self) -> Iterator[Element]:
        return self._iterator(self._convert_element, self._next_run())

    def as_numpy_iterator(self) -> DatasetIterator:
        """Returns an iterator over elements of numpy arrays and `bytes`."""
        return self._iterator(lambda element: element, self._next_run())

    def _iterator(self, convert: Callable[[Element], Element], run: Run) -> DatasetIterator:
        return DatasetIterator(self._plan, run, convert, self._threads, self._ahead, self._continue_after)

    def _next_run(self) -> Run:
        """Returns the next pass over this dataset."""
        self._passes += 1
        return replace(self._first_run(), iteration=(self._passes - 1,))

    def _first_run(self) -> Run:
        """Returns the first pass over this dataset."""
        if self._entropy is None:
            # Of Python's generator, because `keras.utils.set_random_seed` seeds it: unseeded shuffles repeat with it.
            self._entropy = random.getrandbits(62)
        return Run(self._entropy)

    def _continue_after(self, position: dict[str, Any]) -> None:
        """Makes the next pass the one that follows a position's."""
        self._entropy, self._passes = position["entropy"], position["iteration"][0] + 1

    @property
    def _threads(self) -> int:
        return self._options.threading.private_threadpool_size or _blocks.cores()

    @property
    def _ahead(self) -> int:
        return max([node.size for node in walk(self._plan) if isinstance(node, Prefetch)], default=0)

    # `compat` overrides these two: its functions and its loops get tensors.

    def _convert_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a user's function as it is called with elements."""
        return function

    def _convert_element(self, element: Element) -> Element:
        """Returns an element as iteration hands it out."""
        return element

    def _optional_of_next(self, iterator: Any) -> Optional:
        """Returns the next element of an iterator over this dataset, or its absence."""
        return Optional.of_next(iterator)

    def _inner_plan(
        self, function: Callable[..., Any], user: str = "flat_map or interleave"
    ) -> Callable[[Element], Node]:
        """Returns a function from an element to the plan of the dataset that `function` returns for it.

        `user` names in errors the method whose argument it is.
        """
        if not callable(function):
            raise ArgumentError(f"A function of an element is needed. Received: {function!r}. Example: lambda x: x + 1")
        converted, name = self._convert_function(function), _structure.name_of(function)

        # `has_side_effects` follows __wrapped__ to the user's own code, which decides whether elements are read ahead.
        @functools.wraps(function)
        def plan(element: Element) -> Node:
            try:
                # A copy, because the function may write into its argument, and elements are views of the source.
                dataset = _structure.call(converted, _structure.copy_arrays(element))
            except Exception as error:
                raise wrap_error(error, f"The function {name} of {user} failed") from error
            if not isinstance(dataset, DatasetBase):
                raise InputError(
                    f"The function {name} of {user} must return a dataset. "
                    f"Received: {type(dataset).__name__}. Use map for a function that returns values."
                )
            return dataset._plan

        return plan


class DatasetTypeError(ArgumentError, TypeError):
    """A value where a dataset is needed."""


def check_dataset(value: object) -> Node:
    """Returns the plan of a dataset; raises `ArgumentError` if `value` is none."""
    if isinstance(value, DatasetBase):
        return value._plan
    raise DatasetTypeError(
        f"A lockstep.data.Dataset is needed. Received: {type(value).__name__}. Make one with "
        "Dataset.from_tensor_slices or Dataset.from_generator."
    )


def merge_options(*datasets: object) -> Options:
    """Returns the options of several datasets as those of one; where they differ, those of the last."""
    return functools.reduce(
        lambda a, b: a.merge(b._options), (d for d in datasets if isinstance(d, DatasetBase)), Options()
    )


def plan_of(dataset: DatasetBase) -> Node:
    """Returns the plan."""
    return dataset._plan


def threads_of(dataset: DatasetBase) -> int:
    """Returns the largest number of threads that compute its elements."""
    return dataset._threads


def ahead_of(dataset: DatasetBase) -> int:
    """Returns the number of elements to prefetch."""
    return dataset._ahead


def begin_pass(dataset: DatasetBase) -> Run:
    """Begins the next pass."""
    return dataset._next_run()


def iterator_of(dataset: DatasetBase, run: Run) -> DatasetIterator:
    """Returns an iterator over the host elements of a pass."""
    return dataset._iterator(lambda element: element, run)


def follow(dataset: DatasetBase, entropy: int) -> None:
    """Sets the entropy that unseeded random choices use, such as the chief's."""
    dataset._entropy = entropy


def continue_after(dataset: DatasetBase, position: dict[str, Any]) -> None:
    """Makes the next pass the one that follows a position's."""
    dataset._continue_after(position)
