"""The methods of `Dataset` that gather elements by what a function says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep._types import ArrayLike, PyTree
from lockstep.data import _check, _structure
from lockstep.data._dataset_base import DatasetBase
from lockstep.data._map_program import wrap_error
from lockstep.data._transforms.buckets import bucket_of, open_shapes, upper_size
from lockstep.data._transforms.groups import GroupByReducer, GroupByWindow
from lockstep.data._transforms.resample import resample
from lockstep.data._transforms.unique import Unique
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep.data._dataset import Dataset


class DatasetGrouping(DatasetBase):
    """A dataset with the methods that gather elements."""

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Any], Dataset],
        window_size: int | None = None,
        window_size_func: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Groups consecutive elements with the same key into windows, and joins the datasets made of the windows.

        Args:
            key_func: Returns the key of an element, a whole number of shape ().
            reduce_func: Returns a dataset for a key and the dataset of a window, such as `window.batch(32)`.
            window_size: Number of elements of a window, at least 1; the last one of a key may have fewer. They come
                in the order of the keys, after all others.
            window_size_func: Returns the window size for a key, instead of `window_size`; called once for each.
            name: Ignored; accepted for TensorFlow's signature.

        Raises:
            ArgumentError: If both sizes are given, or neither.
            InputError: While iterating, if a function returns something else, or fails.
        """
        if (window_size is None) == (window_size_func is None):
            raise ArgumentError(
                "Either the `window_size` argument or the `window_size_func` argument must be specified. Received: "
                f"window_size={window_size}, window_size_func={window_size_func}."
            )
        fixed = None if window_size is None else _check.integer(window_size, "window_size")
        sizes = None if window_size_func is None else self._convert_function(window_size_func)

        def size_of(key: int) -> int:
            try:
                size = fixed if sizes is None else _structure.normalize(sizes(np.int64(key)))
                number = _check.integer(size, "Window size")
            except Exception as error:
                raise wrap_error(error, f"The window size for the key {key} is not known") from error
            if number < 1:
                raise ArgumentError(f"Window size must be greater than zero, but got {number}.")
            return number

        return self._add(
            GroupByWindow(
                self._plan,
                self._convert_function(key_func),
                self._inner_plan(reduce_func, "reduce_func"),
                size_of,
                self._kind._from_plan,
            )
        )

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: PyTree = None,
        padding_values: PyTree = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Batches elements of similar length, each batch padded to its longest element.

        Args:
            element_length_func: Returns the length of an element, a whole number of shape ().
            bucket_boundaries: Upper bounds of the lengths of the buckets, each exclusive; the last has none.
            bucket_batch_sizes: The batch size of each bucket, one more than boundaries.
            padded_shapes: As for `padded_batch`; by default each open size is the largest of the batch.
            padding_values: As for `padded_batch`.
            pad_to_bucket_boundary: Pads open sizes to one less than the bucket's upper bound instead; elements must
                be shorter than the last boundary.
            no_padding: Batches without padding: elements of a bucket have one shape.
            drop_remainder: Drops last batches of a bucket with fewer elements.
            name: Ignored; accepted for TensorFlow's signature.

        Raises:
            ArgumentError: If the numbers of boundaries and sizes do not fit.
        """
        boundaries = [_check.integer(b, "Each bucket boundary") for b in bucket_boundaries]
        sizes = [_check.at_least(1, size, "Each batch size") for size in bucket_batch_sizes]
        if len(sizes) != len(boundaries) + 1:
            raise ArgumentError(
                "`len(bucket_batch_sizes)` must equal `len(bucket_boundaries) + 1` but "
                f"`len(bucket_batch_sizes)={len(sizes)}` and `len(bucket_boundaries)={len(boundaries)}`."
            )

        def batch(bucket: Any, window: Any) -> Dataset:
            size = sizes[int(bucket)]
            if no_padding:
                return window.batch(size, drop_remainder)
            filled = None
            if pad_to_bucket_boundary:
                filled = upper_size(int(bucket), boundaries)
            shapes = open_shapes(window.element_spec, padded_shapes, filled)
            return window.padded_batch(size, shapes, padding_values, drop_remainder)

        return self._add(
            GroupByWindow(
                self._plan,
                bucket_of(self._convert_function(element_length_func), boundaries),
                self._inner_plan(batch, "bucket_by_sequence_length"),
                lambda bucket: sizes[bucket],
                self._kind._from_plan,
            )
        )

    def group_by_reducer(
        self,
        key_func: Callable[..., Any],
        init_func: Callable[[Any], Any],
        reduce_func: Callable[..., Any],
        finalize_func: Callable[..., Any],
    ) -> Dataset:
        """Reduces all elements with the same key to one; the results come in the order of the keys.

        Args:
            key_func: Returns the key of an element, a whole number of shape ().
            init_func: Returns the state of a key before its first element.
            reduce_func: Returns the state after an element, `reduce_func(state, element)`.
            finalize_func: Returns the result for a last state.

        Source: tf.data.experimental.group_by_reducer.
        """
        functions = [self._convert_function(f) for f in (init_func, reduce_func, finalize_func)]
        return self._add(GroupByReducer(self._plan, self._convert_function(key_func), *functions))

    def unique(self, name: str | None = None) -> Dataset:
        """Keeps of equal elements the first: whole numbers or text, alone or in a structure.

        Raises:
            ArgumentError: If elements are of another dtype; it is a `TypeError`, too. Raised while iterating, if only
                computing elements shows their dtypes.
        """
        return self._add(Unique(self._plan))

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: ArrayLike,
        initial_dist: ArrayLike | None = None,
        seed: int | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Drops elements at random, so that the rest has another distribution of classes.

        Args:
            class_func: Returns the class of an element, a whole number from 0 on.
            target_dist: The probability of each class, float (classes,).
            initial_dist: Their probabilities in this dataset; estimated while it is read by default.
            seed: Seed of the choices.
            name: Ignored; accepted for TensorFlow's signature.

        Returns:
            A dataset of pairs of a class and an element.
        """
        functions = self._convert_function(class_func)
        return self._add(resample(self._plan, functions, target_dist, initial_dist, _check.seed(seed)))
