"""`Dataset`: tf.data's transformations, each of which adds a node to a plan."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lockstep._nest import unpack
from lockstep._types import Element, PyTree
from lockstep.data import _check, _structure
from lockstep.data._dataset_base import check_dataset, merge_options
from lockstep.data._dataset_grouping import DatasetGrouping
from lockstep.data._dataset_sources import DatasetSources
from lockstep.data._dataset_storage import DatasetStorage
from lockstep.data._options import AUTOTUNE, INFINITE_CARDINALITY, SHARD_HINT, UNKNOWN_CARDINALITY, Options
from lockstep.data._plan import walk
from lockstep.data._sources import Arrays
from lockstep.data._transforms.batch import Batch, Padding, Rebatch, Unbatch
from lockstep.data._transforms.cache import Cache
from lockstep.data._transforms.errors import IgnoreErrors
from lockstep.data._transforms.interleave import Interleave
from lockstep.data._transforms.map import Filter, Map, Scan, TakeWhile
from lockstep.data._transforms.position import (
    AssertCardinality,
    Enumerate,
    HintedShard,
    Prefetch,
    Shard,
    Skip,
    Take,
    Window,
)
from lockstep.data._transforms.sequence import Concatenate, Repeat
from lockstep.data._transforms.shuffle import Shuffle
from lockstep.errors import ArgumentError, InputError


class OutOfRangeError(ArgumentError, IndexError):
    """A request for an element behind the last one."""


# How many elements `prefetch(AUTOTUNE)` reads ahead, for loops of the program; `fit` reads ahead by itself.
_AUTOTUNED_AHEAD = 8
# TensorFlow chooses the default cycle_length by the machine's cores; a constant gives one order on every machine.
_CYCLE = 16


class Dataset(DatasetSources, DatasetGrouping, DatasetStorage):
    """A plan of where elements come from and how they are transformed. Nothing is read before it is used.

    An element is an array, or a nested structure of tuples, dicts and named tuples of arrays; text is `bytes`. A
    dataset can be iterated over any number of times. Each method returns a new dataset. An argument `name` names an
    operation in TensorFlow's graphs; without a graph it is ignored, where nothing else is said of it.

    Source: tf.data.Dataset, whose methods these are, with its rules: what is not said here is as there.
    """

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Applies a function to each element.

        The function is written for one element: numpy arrays, or JAX's if JAX can trace it; then it runs on many at
        once. It is spread over the values of a tuple. One with side effects, or one that draws random numbers, is
        called for each element, in order. Results have JAX's dtypes if JAX can trace it, numpy's otherwise.

        Args:
            map_func: The function.
            num_parallel_calls: On how many threads a function with side effects is called; one by default. Any other
                one is called on as many threads as `Options.threading` says.
            deterministic: Ignored: the order is always kept.
            synchronous: Must not be True together with `num_parallel_calls`.
            use_unbounded_threadpool: Must be False.
            name: Ignored; accepted for TensorFlow's signature.

        Raises:
            InputError: While iterating, if the function fails; the message names the element and its file.
        """
        workers = _check.parallel_calls(num_parallel_calls)
        # Refused, as their effect on a program's threads could not be honoured.
        if use_unbounded_threadpool or (synchronous and num_parallel_calls is not None):
            raise ArgumentError(
                "map calls functions on a bounded number of threads. Received: use_unbounded_threadpool=True, or "
                "synchronous=True with num_parallel_calls. Leave them out."
            )
        return self._add(Map(self._plan, self._convert_function(map_func), workers))

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """Keeps the elements for which `predicate` returns a true value."""
        return self._add(Filter(self._plan, self._convert_function(predicate)))

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """Keeps the elements before the first for which `predicate` returns a false value."""
        return self._add(TakeWhile(self._plan, self._convert_function(predicate)))

    def scan(self, initial_state: PyTree, scan_func: Callable[..., Any], name: str | None = None) -> Dataset:
        """Returns the outputs of `scan_func(state, element) -> (state, output)`, called in order."""
        return self._add(Scan(self._plan, _structure.normalize(initial_state), self._convert_function(scan_func)))

    def flat_map(self, map_func: Callable[..., Dataset], name: str | None = None) -> Dataset:
        """Concatenates the datasets that a function returns for each element."""
        return self._add(Interleave(self._plan, self._inner_plan(map_func), 1, 1))

    def interleave(
        self,
        map_func: Callable[..., Dataset],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Interleaves the datasets that a function returns for each element.

        Args:
            map_func: Returns a dataset for an element.
            cycle_length: Number of datasets that are open at a time. Default: 16.
            block_length: Number of consecutive elements of one dataset. Default: 1.
            num_parallel_calls: At least 1, or AUTOTUNE; elements are computed on as many threads as
                `Options.threading` says.
            deterministic: Ignored: the order is always kept.
            name: Ignored; accepted for TensorFlow's signature.
        """
        _check.parallel_calls(num_parallel_calls)
        # AUTOTUNE may not choose by the machine: the order of elements depends on it.
        cycle = _CYCLE if cycle_length in (None, AUTOTUNE) else _check.at_least(1, cycle_length, "cycle_length")
        block = 1 if block_length is None else _check.at_least(1, block_length, "block_length")
        return self._add(Interleave(self._plan, self._inner_plan(map_func), cycle, block))

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """Returns `transformation_func(self)`.

        Raises:
            ArgumentError: If it is not a dataset.
        """
        result = transformation_func(self)
        check_dataset(result)
        return result

    def reduce(self, initial_state: PyTree, reduce_func: Callable[..., Any], name: str | None = None) -> PyTree:
        """Returns the last state of `reduce_func(state, element) -> state`."""
        # A reduce function may write into its state; the caller's must not change.
        state = _structure.copy_arrays(_structure.normalize(initial_state))
        for element in self:
            state = _structure.normalize(reduce_func(unpack(state), element))
        return self._convert_element(unpack(state))

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Stacks consecutive elements along a new first axis.

        Args:
            batch_size: Number of elements, at least 1.
            drop_remainder: Drops a last batch with fewer.
            num_parallel_calls: At least 1, or AUTOTUNE; batches are computed on as many threads as
                `Options.threading` says.
            deterministic: Ignored: the order is always kept.
            name: Ignored; accepted for TensorFlow's signature.

        Raises:
            InputError: While iterating, if elements of a batch differ in shape.
        """
        _check.parallel_calls(num_parallel_calls)
        return self._add(Batch(self._plan, _check.at_least(1, batch_size, "batch_size"), bool(drop_remainder)))

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: PyTree = None,
        padding_values: PyTree = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Stacks consecutive elements, each padded to the largest of its batch or to `padded_shapes`.

        Args:
            batch_size: Number of elements, at least 1.
            padded_shapes: A structure of shapes like the elements'; `None` or -1 in one is the largest of the batch.
            padding_values: A value for all, or a structure of values like the elements'. Default: 0, or no text.
            drop_remainder: Drops a last batch with fewer.
            name: Ignored; accepted for TensorFlow's signature.
        """
        # Checked against the elements while iterating: their spec may not be known before.
        padding = Padding(padded_shapes, padding_values)
        size = _check.at_least(1, batch_size, "batch_size")
        return self._add(Batch(self._plan, size, bool(drop_remainder), padding))

    def unbatch(self, name: str | None = None) -> Dataset:
        """Splits batches into their rows."""
        return self._add(Unbatch(self._plan))

    def rebatch(
        self, batch_size: int | Sequence[int], drop_remainder: bool = False, name: str | None = None
    ) -> Dataset:
        """Regroups the rows of batches into batches of another size, or of several sizes in turns."""
        return self._add(Rebatch(self._plan, _check.batch_sizes(batch_size), bool(drop_remainder)))

    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Groups consecutive elements into windows: a dataset for each array of an element.

        Args:
            size: Number of elements of a window.
            shift: Distance between the first elements of two windows. Default: `size`.
            stride: Distance between the elements of a window.
            drop_remainder: Drops windows with fewer elements.
            name: Ignored; accepted for TensorFlow's signature.
        """
        for value, label in ((size, "size"), (size if shift is None else shift, "shift"), (stride, "stride")):
            _check.at_least(1, value, label)
        # Windows are datasets of the same kind as this one, so that `compat` gets its own.
        kind = self._kind
        node = Window(self._plan, size, shift or size, stride, drop_remainder, lambda c: kind._from_plan(Arrays(c)))
        return self._add(node)

    def shuffle(
        self,
        buffer_size: int | None = None,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Shuffles the elements.

        Elements are drawn from a buffer of the next `buffer_size` ones. It holds references, not the elements: a
        buffer for all of them costs little, and gives a uniformly random order.

        Args:
            buffer_size: At least 1; `None` (or UNKNOWN_CARDINALITY) for all elements.
            seed: Makes the orders the same in every run. Without it they follow `keras.utils.set_random_seed`.
            reshuffle_each_iteration: Shuffles each pass anew. Default: True.
            name: Ignored; accepted for TensorFlow's signature.
        """
        # A buffer for all elements costs 24 bytes each: it holds references.
        whole = buffer_size in (None, UNKNOWN_CARDINALITY)
        size = None if whole else _check.at_least(1, buffer_size, "buffer_size")
        return self._add(Shuffle(self._plan, size, _check.seed(seed), reshuffle_each_iteration is not False))

    def repeat(self, count: int | None = None, name: str | None = None) -> Dataset:
        """Repeats the dataset `count` times; without it (or with -1) endlessly."""
        return self._add(Repeat(self._plan, -1 if count is None else _check.integer(count, "count")))

    def take(self, count: int, name: str | None = None) -> Dataset:
        """Keeps the first `count` elements; with -1 all."""
        return self._add(Take(self._plan, _check.integer(count, "count")))

    def skip(self, count: int, name: str | None = None) -> Dataset:
        """Drops the first `count` elements; with -1 all."""
        return self._add(Skip(self._plan, _check.integer(count, "count")))

    def shard(self, num_shards: int, index: int, name: str | None = None) -> Dataset:
        """Keeps every `num_shards`-th element, from element `index` on.

        Raises:
            ArgumentError: Unless 0 <= index < num_shards; both may be `SHARD_HINT`.
        """
        # Both -1: a strategy fills in its own numbers.
        if num_shards == SHARD_HINT and index == SHARD_HINT:
            return self._add(HintedShard(self._plan))
        count, number = _check.at_least(1, num_shards, "num_shards"), _check.integer(index, "index")
        if not 0 <= number < count:
            raise ArgumentError(f"index must be from 0 to num_shards - 1 = {count - 1}. Received: {number}.")
        return self._add(Shard(self._plan, count, number))

    def concatenate(self, dataset: Dataset, name: str | None = None) -> Dataset:
        """Appends the elements of `dataset`.

        Raises:
            InputError: If their structures or dtypes differ; it is a `TypeError`, too. Raised while iterating, if only
                computing elements shows their dtypes.
        """
        plan = Concatenate([self._plan, check_dataset(dataset)])
        return self._kind._from_plan(plan, merge_options(self, dataset))

    def assert_cardinality(self, expected_cardinality: int, name: str | None = None) -> Dataset:
        """Declares the number of elements, and checks it while iterating.

        Args:
            expected_cardinality: The number of elements; `INFINITE_CARDINALITY` if there must be no end.
            name: Ignored; accepted for TensorFlow's signature.

        Raises:
            CardinalityError: While iterating, if there are more or fewer.
            ArgumentError: If it is not a number of elements.

        Source: tf.data.experimental.assert_cardinality.
        """
        count = _check.at_least(INFINITE_CARDINALITY, expected_cardinality, "expected_cardinality")
        return self._add(AssertCardinality(self._plan, count))

    def enumerate(self, start: int = 0, name: str | None = None) -> Dataset:
        """Pairs each element with its number, int64."""
        return self._add(Enumerate(self._plan, _check.integer(start, "start")))

    def cache(self, filename: str | bytes | Path | None = "", name: str | None = None) -> Dataset:
        """Caches the elements of the first pass.

        Args:
            filename: A path to store them at, also for later runs; without one they stay in memory. It becomes a
                directory, which appears when it is complete.
            name: Ignored; accepted for TensorFlow's signature.
        """
        text = _structure.normalize(filename)
        # An empty name means memory, as in tf.data.
        path = Path(text.decode()) if isinstance(text, bytes) and text else None
        return self._add(Cache(self._plan, path))

    def prefetch(self, buffer_size: int | None = None, name: str | None = None) -> Dataset:
        """Computes elements ahead, on a thread of its own.

        Args:
            buffer_size: Number of elements that wait at most; AUTOTUNE, and `None`, is 8.
            name: Ignored; accepted for TensorFlow's signature.
        """
        if buffer_size is None:
            buffer_size = AUTOTUNE
        if buffer_size != AUTOTUNE:
            _check.at_least(0, buffer_size, "buffer_size")
        return self._add(Prefetch(self._plan, _AUTOTUNED_AHEAD if buffer_size == AUTOTUNE else int(buffer_size)))

    def ignore_errors(self, log_warning: bool = False, name: str | None = None) -> Dataset:
        """Drops the elements that fail; `ignored_errors` counts them.

        Args:
            log_warning: Logs each dropped element, by the logger "lockstep".
            name: Ignored; accepted for TensorFlow's signature.
        """
        return self._add(IgnoreErrors(self._plan, bool(log_warning)))

    @property
    def ignored_errors(self) -> int:
        """Returns how many elements `ignore_errors` has dropped in this process, over all passes."""
        # A plan may hold several, such as before and behind a zip.
        return sum(node.count for node in walk(self._plan) if isinstance(node, IgnoreErrors))

    def with_options(self, options: Options, name: str | None = None) -> Dataset:
        """Returns the same dataset with options changed.

        Raises:
            ArgumentError: If `options` is not an `Options`.
        """
        if not isinstance(options, Options):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"with_options needs a lockstep.data.Options. Received: {type(options).__name__}.")
        return self._kind._from_plan(self._plan, self._options.merge(options))

    def at(self, index: int) -> Element:
        """Returns the element with a number, from 0 on, of the first pass. What lies before it is not computed.

        Raises:
            ArgumentError: If there is none of that number; it is an `IndexError`, too.

        Source: tf.data.experimental.at.
        """
        number = _check.integer(index, "index")
        plan = Skip(self._plan, number) if number >= 0 else self._plan
        iterator = self._kind._from_plan(plan, self._options)._iterator(self._convert_element, self._first_run())
        found = [] if number < 0 else list(itertools.islice(iterator, 1))
        if not found:
            raise OutOfRangeError(
                f"index must be from 0 to the number of elements - 1. Received: {number}, for {self._plan.cardinality} "
                "elements (-1: endless, -2: unknown)."
            )
        return found[0]

    def get_single_element(self, name: str | None = None) -> Element:
        """Returns the only element.

        Raises:
            InputError: If there is none, or another.
        """
        # The second one only tells whether there are more.
        elements = list(self.take(2))
        if len(elements) != 1:
            raise InputError(
                f"get_single_element needs a dataset of one element. Received: {'more' if elements else 'none'}."
            )
        return elements[0]


Dataset._kind = Dataset  # pyright: ignore[reportPrivateUsage]
