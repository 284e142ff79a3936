"""The dataset: tf.data's interface to a plan."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lockstep._nest import opened
from lockstep.data import _check, _columns, _pool, _structure
from lockstep.data._failures import failure
from lockstep.data._iterator import DatasetIterator
from lockstep.data._options import AUTOTUNE, INFINITE_CARDINALITY, SHARD_HINT, UNKNOWN_CARDINALITY, Options
from lockstep.data._plan import Node, Run, walk
from lockstep.data._signature import as_signature, signature_of
from lockstep.data._sources import Arrays, Generated, RandomNumbers, Range
from lockstep.data._transforms.assert_cardinality import AssertCardinality
from lockstep.data._transforms.batch import Batch, Rebatch, Unbatch
from lockstep.data._transforms.cache import Cache
from lockstep.data._transforms.errors import IgnoreErrors
from lockstep.data._transforms.hint import HintedShard
from lockstep.data._transforms.interleave import Interleave
from lockstep.data._transforms.map import Filter, Map, TakeWhile
from lockstep.data._transforms.padding import Padding
from lockstep.data._transforms.position import Enumerate, Prefetch, Shard, Skip, Take
from lockstep.data._transforms.sample import Choose
from lockstep.data._transforms.scan import Scan
from lockstep.data._transforms.sequence import Concatenate, Repeat, Zip
from lockstep.data._transforms.shuffle import Shuffle
from lockstep.data._transforms.window import Window
from lockstep.errors import ArgumentError, InputError

# How many elements are computed ahead where `prefetch` leaves it open.
_AUTOTUNED_AHEAD = 8
_CYCLE = 16
_before_first: list[Callable[[], None]] = []


class Dataset:
    """Elements, as a plan of where they come from and what is done to them. Nothing is read before it is used.

    An element is an array, or a nested structure of tuples, dicts and named tuples of arrays; text is `bytes`. A
    dataset can be iterated over any number of times. Each method returns a new dataset.

    Source: tf.data.Dataset, whose methods these are, with its rules: what is not said here is as there.
    """

    # What transformations of this class make.
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

    # Sources.

    @classmethod
    def from_tensor_slices(cls, tensors: Any, name: str | None = None) -> Dataset:
        """Returns a dataset of the rows of arrays.

        Args:
            tensors: An array, or a structure of arrays with the same first axis. They are not copied.
            name: For messages.

        Raises:
            InputError: If the number of rows differs.
        """
        return cls._of(Arrays(_columns.spread(tensors), name or ""))

    @classmethod
    def from_tensors(cls, tensors: Any, name: str | None = None) -> Dataset:
        """Returns a dataset of one element."""
        return cls._of(Arrays(_columns.single(tensors), name or ""))

    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Sequence[Any] = (),
        output_signature: Any = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns a dataset of what a generator yields, anew for each pass.

        To continue at a position, a new generator is made and passed over so far; it must yield the same again.

        Args:
            generator: Called with `args`, returns an iterable.
            output_types: The dtypes of an element; the older way to say its signature.
            output_shapes: Their shapes, with `output_types`; unknown by default.
            args: For `generator`.
            output_signature: A structure of `TensorSpec`s. Elements are checked against it. Without one, the first
                element shows what they look like.
            name: For messages.

        Raises:
            ArgumentError: If `generator` cannot be called.
        """
        if not callable(generator):
            raise ArgumentError(
                "from_generator needs a function that returns a new iterable on each call. Received: "
                f"{type(generator).__name__}. Example: Dataset.from_generator(lambda: iter(values), ...)"
            )
        if output_types is None and output_shapes is None:
            signature = output_signature
        else:
            signature = signature_of(output_types, output_shapes, output_signature)
        return cls._of(Generated(lambda: generator(*args), as_signature(signature)))

    @classmethod
    def range(cls, *args: Any, output_type: Any = np.int64, name: str | None = None) -> Dataset:
        """Returns a dataset of whole numbers: `range(stop)`, `range(start, stop)` or `range(start, stop, step)`."""
        numbers = _check.numbers(*args)
        return cls._of(Range(numbers.start, numbers.stop, numbers.step, np.dtype(output_type)))

    @classmethod
    def random(
        cls, seed: int | None = None, rerandomize_each_iteration: bool | None = None, name: str | None = None
    ) -> Dataset:
        """Returns an endless dataset of random numbers from 0 to 2**32 - 1, int64.

        Zip it with another one for map functions that need randomness which a resumed run repeats.
        """
        return cls._of(RandomNumbers(_check.seed(seed), bool(rerandomize_each_iteration)))

    @classmethod
    def counter(cls, start: int = 0, step: int = 1, dtype: Any = np.int64, name: str | None = None) -> Dataset:
        """Returns an endless dataset that counts."""
        first, distance = _check.whole(start, "start"), _check.whole(step, "step")
        return cls._of(Range(first, 0, distance, np.dtype(dtype), endless=True))

    @classmethod
    def list_files(
        cls, file_pattern: Any, shuffle: bool | None = None, seed: int | None = None, name: str | None = None
    ) -> Dataset:
        """Returns a dataset of the names of files, `bytes`.

        Args:
            file_pattern: A pattern such as "data/*.jpg", or several.
            shuffle: Whether each pass has another order; by default yes. Without, they are sorted.
            seed: Of the order.
            name: For messages.

        Raises:
            DataNotFoundError: If no file matches.
        """
        from lockstep.data._files.glob import matching_files

        files = matching_files(texts_of(file_pattern))
        dataset = cls.from_tensor_slices(np.array(files, object))
        return dataset.shuffle(len(files), seed) if shuffle in (None, True) else dataset

    @classmethod
    def zip(cls, *args: Any, datasets: Any = None, name: str | None = None) -> Dataset:
        """Returns a dataset whose elements hold one of each dataset; as many as the shortest has.

        Args:
            *args: The datasets, or one structure of them.
            datasets: The same structure by name.
            name: For messages.
        """
        found, structure = _check.structure_of_datasets(args, datasets)
        return cls._of(Zip([d._plan for d in found], structure))

    @classmethod
    def sample_from_datasets(
        cls,
        datasets: Sequence[Dataset],
        weights: Any = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
    ) -> Dataset:
        """Returns a dataset that takes each element from a random one of several.

        Args:
            datasets: With elements of one structure.
            weights: The probability of each; equal by default.
            seed: Of the choices.
            stop_on_empty_dataset: Whether it ends with the first that ends; otherwise with the last.
            rerandomize_each_iteration: Whether each pass makes other choices.
        """
        plans = [d._plan for d in _check.several(datasets)]
        chances = _check.weights([1.0] * len(plans) if weights is None else weights, len(plans))
        node = Choose(plans, chances, _check.seed(seed), stop_on_empty_dataset, bool(rerandomize_each_iteration))
        return cls._of(node)

    @classmethod
    def choose_from_datasets(
        cls, datasets: Sequence[Dataset], choice_dataset: Dataset, stop_on_empty_dataset: bool = True
    ) -> Dataset:
        """Returns a dataset that takes each element from the one whose number `choice_dataset` gives."""
        plans = [d._plan for d in (*_check.several(datasets), _check.dataset(choice_dataset))]
        return cls._of(Choose(plans, None, None, stop_on_empty_dataset))

    # Functions of elements.

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Returns what a function returns for each element.

        The function is written for one element: numpy arrays, or JAX's if JAX can trace it; then it runs on many at
        once. It is spread over the values of a tuple. One with side effects, or one that draws random numbers, is
        called for each element, in order. Results have JAX's dtypes if JAX can trace it, numpy's otherwise.

        Args:
            map_func: The function.
            num_parallel_calls: On how many threads a function with side effects is called; one by default. Any other
                one is called on as many threads as `Options.threading` says.
            deterministic: Any: the order is kept.
            synchronous: Must not be True together with `num_parallel_calls`.
            use_unbounded_threadpool: Must be False.
            name: For messages.

        Raises:
            InputError: While iterating, if the function fails; the message names the element and its file.
        """
        workers = _check.parallel_calls(num_parallel_calls)
        if use_unbounded_threadpool or (synchronous and num_parallel_calls is not None):
            raise ArgumentError(
                "map calls functions on a bounded number of threads. Received: use_unbounded_threadpool=True, or "
                "synchronous=True with num_parallel_calls. Leave them out."
            )
        return self._then(Map(self._plan, self._called(map_func), workers))

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """Returns the elements for which `predicate` returns a true value."""
        return self._then(Filter(self._plan, self._called(predicate)))

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """Returns the elements before the first for which `predicate` returns a false value."""
        return self._then(TakeWhile(self._plan, self._called(predicate)))

    def scan(self, initial_state: Any, scan_func: Callable[..., Any], name: str | None = None) -> Dataset:
        """Returns outputs of `scan_func(state, element) -> (state, output)`, called in order."""
        return self._then(Scan(self._plan, _structure.normalised(initial_state), self._called(scan_func)))

    def flat_map(self, map_func: Callable[..., Dataset], name: str | None = None) -> Dataset:
        """Returns the elements of the datasets that a function makes of each element, one after another."""
        return self._then(Interleave(self._plan, self._plan_of(map_func), 1, 1))

    def interleave(
        self,
        map_func: Callable[..., Dataset],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns the elements of the datasets that a function makes of each element, several in turns.

        Args:
            map_func: Returns a dataset for an element.
            cycle_length: How many datasets are open at a time. Default: 16.
            block_length: How many elements are taken from one in its turn. Default: 1.
            num_parallel_calls: At least 1, or AUTOTUNE; elements are computed on as many threads as
                `Options.threading` says.
            deterministic: Any: the order is kept.
            name: For messages.
        """
        _check.parallel_calls(num_parallel_calls)
        cycle = _CYCLE if cycle_length in (None, AUTOTUNE) else _check.at_least(1, cycle_length, "cycle_length")
        block = 1 if block_length is None else _check.at_least(1, block_length, "block_length")
        return self._then(Interleave(self._plan, self._plan_of(map_func), cycle, block))

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """Returns `transformation_func(self)`.

        Raises:
            ArgumentError: If that is no dataset.
        """
        return _check.dataset(transformation_func(self))

    def reduce(self, initial_state: Any, reduce_func: Callable[..., Any], name: str | None = None) -> Any:
        """Returns the last state of `reduce_func(state, element) -> state`."""
        state = _structure.copied(_structure.normalised(initial_state))
        for element in self:
            state = _structure.normalised(reduce_func(opened(state), element))
        return self._shown(opened(state))

    # Batches.

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns elements stacked along a new first axis.

        Args:
            batch_size: How many, at least 1.
            drop_remainder: Whether a last batch with fewer is left out.
            num_parallel_calls: At least 1, or AUTOTUNE; batches are computed on as many threads as
                `Options.threading` says.
            deterministic: Any: the order is kept.
            name: For messages.

        Raises:
            InputError: While iterating, if elements of a batch differ in shape.
        """
        _check.parallel_calls(num_parallel_calls)
        return self._then(Batch(self._plan, _check.at_least(1, batch_size, "batch_size"), bool(drop_remainder)))

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Returns elements stacked, each made as large as the largest of its batch, or as `padded_shapes` says.

        Args:
            batch_size: How many, at least 1.
            padded_shapes: A structure of shapes like the elements'; `None` or -1 in one is the largest of the batch.
            padding_values: A value for all, or a structure of values like the elements'. Default: 0, or no text.
            drop_remainder: Whether a last batch with fewer is left out.
            name: For messages.
        """
        padding = Padding(padded_shapes, padding_values)
        size = _check.at_least(1, batch_size, "batch_size")
        return self._then(Batch(self._plan, size, bool(drop_remainder), padding))

    def unbatch(self, name: str | None = None) -> Dataset:
        """Returns the rows of the elements' arrays, each an element."""
        return self._then(Unbatch(self._plan))

    def rebatch(self, batch_size: Any, drop_remainder: bool = False, name: str | None = None) -> Dataset:
        """Returns the same rows in batches of another size, or of several sizes in turns."""
        return self._then(Rebatch(self._plan, _check.sizes(batch_size), bool(drop_remainder)))

    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Returns, instead of each array of the elements, datasets of `size` neighbours.

        Args:
            size: How many elements of a window.
            shift: How far a window is from the one before. Default: `size`.
            stride: How far its elements are from each other.
            drop_remainder: Whether windows with fewer elements are left out.
            name: For messages.
        """
        for value, label in ((size, "size"), (size if shift is None else shift, "shift"), (stride, "stride")):
            _check.at_least(1, value, label)
        kind = self._kind
        node = Window(self._plan, size, shift or size, stride, drop_remainder, lambda c: kind._of(Arrays(c)))
        return self._then(node)

    # Order and number.

    def shuffle(
        self,
        buffer_size: int | None = None,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns the elements in random order.

        Elements are drawn from a buffer of the next `buffer_size` ones. It holds references, not the elements: a
        buffer for all of them costs little, and gives a uniformly random order.

        Args:
            buffer_size: At least 1; `None` (or UNKNOWN_CARDINALITY) for all elements.
            seed: Makes the orders the same in every run. Without, they follow `keras.utils.set_random_seed`.
            reshuffle_each_iteration: Whether each pass has another order. Default: True.
            name: For messages.
        """
        whole = buffer_size in (None, UNKNOWN_CARDINALITY)
        size = None if whole else _check.at_least(1, buffer_size, "buffer_size")
        return self._then(Shuffle(self._plan, size, _check.seed(seed), reshuffle_each_iteration is not False))

    def repeat(self, count: int | None = None, name: str | None = None) -> Dataset:
        """Returns the elements `count` times over; without it (or with -1) endlessly."""
        return self._then(Repeat(self._plan, -1 if count is None else _check.whole(count, "count")))

    def take(self, count: int, name: str | None = None) -> Dataset:
        """Returns the first `count` elements; with -1 all."""
        return self._then(Take(self._plan, _check.whole(count, "count")))

    def skip(self, count: int, name: str | None = None) -> Dataset:
        """Returns all but the first `count` elements; with -1 none."""
        return self._then(Skip(self._plan, _check.whole(count, "count")))

    def shard(self, num_shards: int, index: int, name: str | None = None) -> Dataset:
        """Returns every `num_shards`-th element, the first with number `index`.

        Raises:
            ArgumentError: Unless 0 <= index < num_shards; both may be `SHARD_HINT`.
        """
        if num_shards == SHARD_HINT and index == SHARD_HINT:
            return self._then(HintedShard(self._plan))
        count, number = _check.at_least(1, num_shards, "num_shards"), _check.whole(index, "index")
        if not 0 <= number < count:
            raise ArgumentError(f"index must be from 0 to num_shards - 1 = {count - 1}. Received: {number}.")
        return self._then(Shard(self._plan, count, number))

    def concatenate(self, dataset: Dataset, name: str | None = None) -> Dataset:
        """Returns these elements and then those of `dataset`.

        Raises:
            InputError: If their structures or dtypes differ; it is a `TypeError`, too. Raised while iterating, if only
                computing elements shows what they look like.
        """
        return self._then(Concatenate([self._plan, _check.dataset(dataset)._plan]))

    def assert_cardinality(self, expected_cardinality: int, name: str | None = None) -> Dataset:
        """Returns the same elements, and says how many they are.

        Args:
            expected_cardinality: How many there must be; `INFINITE_CARDINALITY` if there must be no end.
            name: For messages.

        Raises:
            CardinalityError: While iterating, if there are more or fewer.
            ArgumentError: If it is no number of elements.

        Source: tf.data.experimental.assert_cardinality.
        """
        count = _check.at_least(INFINITE_CARDINALITY, expected_cardinality, "expected_cardinality")
        return self._then(AssertCardinality(self._plan, count))

    def enumerate(self, start: int = 0, name: str | None = None) -> Dataset:
        """Returns pairs of an element's number, int64, and the element."""
        return self._then(Enumerate(self._plan, _check.whole(start, "start")))

    def cache(self, filename: Any = "", name: str | None = None) -> Dataset:
        """Returns the elements of the first pass, computed once and kept.

        Args:
            filename: A path under which they are kept, also for later runs; without one they are kept in memory. It
                becomes a directory, which is there when it is complete.
            name: For messages.
        """
        text = _structure.normalised(filename)
        path = Path(text.decode()) if isinstance(text, bytes) and text else None
        return self._then(Cache(self._plan, path))

    def prefetch(self, buffer_size: int, name: str | None = None) -> Dataset:
        """Returns the same elements, computed on a thread before they are asked for.

        Args:
            buffer_size: How many wait at most; AUTOTUNE leaves it open.
            name: For messages.
        """
        if buffer_size != AUTOTUNE:
            _check.at_least(0, buffer_size, "buffer_size")
        return self._then(Prefetch(self._plan, _AUTOTUNED_AHEAD if buffer_size == AUTOTUNE else int(buffer_size)))

    def ignore_errors(self, log_warning: bool = False, name: str | None = None) -> Dataset:
        """Returns the elements that can be computed; `ignored_errors` counts the others.

        Args:
            log_warning: Whether each one that is left out is logged, by the logger "lockstep".
            name: For messages.
        """
        return self._then(IgnoreErrors(self._plan, bool(log_warning)))

    @property
    def ignored_errors(self) -> int:
        """How many elements `ignore_errors` has left out in this process, over all passes."""
        return sum(node.count for node in walk(self._plan) if isinstance(node, IgnoreErrors))

    # What it is.

    @property
    def element_spec(self) -> Any:
        """What the elements look like: a structure of `TensorSpec`s. Some plans compute elements to find out."""
        return opened(self._plan.spec)

    def cardinality(self) -> int:
        """Returns the number of elements, `INFINITE_CARDINALITY` (-1) or `UNKNOWN_CARDINALITY` (-2)."""
        return self._plan.cardinality

    def options(self) -> Options:
        """Returns the options."""
        return self._options

    def with_options(self, options: Options, name: str | None = None) -> Dataset:
        """Returns the same elements, with options changed.

        Raises:
            ArgumentError: If `options` is not an `Options`.
        """
        if not isinstance(options, Options):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"with_options needs a lockstep.data.Options. Received: {type(options).__name__}.")
        return self._kind._of(self._plan, self._options.merge(options))

    def __len__(self) -> int:
        count = self.cardinality()
        if count < 0:
            kind = "infinite" if count == INFINITE_CARDINALITY else "unknown"
            raise TypeError(f"The number of elements of this dataset is {kind}. Use cardinality() instead of len().")
        return count

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        try:
            spec = self.element_spec
        except InputError:
            spec = "unknown"
        return f"<{type(self).__name__} element_spec={spec}>"

    # Reading it.

    def __iter__(self) -> Iterator[Any]:
        return self._iterator(self._shown, self._next_run())

    def as_numpy_iterator(self) -> DatasetIterator:
        """Returns an iterator over elements of numpy arrays and `bytes`."""
        return self._iterator(lambda element: element, self._next_run())

    def get_single_element(self, name: str | None = None) -> Any:
        """Returns the only element.

        Raises:
            InputError: If there is none, or another.
        """
        elements = list(self.take(2))
        if len(elements) != 1:
            raise InputError(
                f"get_single_element needs a dataset of one element. Received: {'more' if elements else 'none'}."
            )
        return elements[0]

    def _iterator(self, shown: Callable[[Any], Any], run: Run) -> DatasetIterator:
        return DatasetIterator(self._plan, run, shown, self._threads, self._ahead, self._continue_after)

    def _next_run(self) -> Run:
        """The next pass over this dataset."""
        if self._entropy is None:
            # Of Python's generator, which `keras.utils.set_random_seed` seeds.
            self._entropy = random.getrandbits(62)
        self._passes += 1
        return Run(self._entropy, (self._passes - 1,))

    def _continue_after(self, position: dict[str, Any]) -> None:
        """Makes the next pass the one that follows a position's."""
        self._entropy, self._passes = position["entropy"], position["iteration"][0] + 1

    @property
    def _threads(self) -> int:
        return self._options.threading.private_threadpool_size or _pool.cores()

    @property
    def _ahead(self) -> int:
        return max([node.size for node in walk(self._plan) if isinstance(node, Prefetch)], default=0)

    # Making others.

    @classmethod
    def _of(cls, plan: Node, options: Options | None = None) -> Dataset:
        """Returns a dataset of a plan."""
        result = object.__new__(cls._kind)
        result._begin(plan, options)
        return result

    def _begin(self, plan: Node, options: Options | None = None) -> None:
        while _before_first:
            _before_first.pop()()
        self._plan = plan
        self._options = options or Options()
        self._passes = 0
        self._entropy = None

    def _then(self, plan: Node) -> Dataset:
        """Returns this dataset with one more transformation."""
        return self._kind._of(plan, self._options)

    def _called(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a user's function as it is to be called with an element; for other interfaces to this one."""
        return function

    def _shown(self, element: Any) -> Any:
        """Returns an element as it is to be handed out; for other interfaces to this one."""
        return element

    def _plan_of(self, function: Callable[..., Dataset]) -> Callable[[Any], Node]:
        """Returns the function that gives the plan of the dataset that a user's function makes of an element."""
        called = self._called(_check.function(function))

        # As wraps tells, the function's own code shows its side effects.
        @functools.wraps(function)
        def plan(element: Any) -> Node:
            try:
                made = _structure.call(called, _structure.copied(element))
            except Exception as error:
                name = _structure.name_of(function)
                raise failure(error, f"The function {name} of flat_map or interleave failed") from error
            if not isinstance(made, Dataset):
                raise InputError(
                    f"The function {_structure.name_of(function)} of flat_map or interleave must return a dataset. "
                    f"Received: {type(made).__name__}. Use map for a function that returns values."
                )
            return made._plan

        return plan


Dataset._kind = Dataset  # pyright: ignore[reportPrivateUsage]


def before_first_dataset(call: Callable[[], None]) -> None:
    """Calls `call` when the first dataset is made: the import of this package changes nothing outside of it."""
    _before_first.append(call)


def texts_of(value: Any) -> list[str]:
    """Returns names as `str`: of one, several, or a dataset of them."""
    if isinstance(value, Dataset):
        return [v.decode() for v in value.as_numpy_iterator()]
    found = np.atleast_1d(_structure.as_array(value)).ravel()
    return [v.decode() for v in found]
