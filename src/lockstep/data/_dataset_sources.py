"""The functions of `Dataset` that make one: of arrays, generators, numbers, names of files, or other datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lockstep._nest import canonical
from lockstep._types import ArrayLike, DType, PyTree
from lockstep.data import _check, _columns, _structure
from lockstep.data._dataset_base import DatasetBase, check_dataset, merge_options
from lockstep.data._files.stream import matching_files
from lockstep.data._peek import spec_without_looking
from lockstep.data._plan import Node
from lockstep.data._sources import Arrays, Generated, RandomNumbers, Range
from lockstep.data._spec import as_signature, signature_of
from lockstep.data._transforms.choose import Choose
from lockstep.data._transforms.sequence import Zip
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep.data._dataset import Dataset


class StructureError(ArgumentError, TypeError):
    """An attempt to make one dataset of elements of several structures."""


class DatasetSources(DatasetBase):
    """A dataset with the class methods that make one."""

    @classmethod
    def from_tensor_slices(cls, tensors: PyTree, name: str | None = None) -> Dataset:
        """Returns a dataset of the rows of arrays.

        Args:
            tensors: An array, or a structure of arrays with the same first axis. They are not copied.
            name: Names the data in errors that say which element failed.

        Raises:
            InputError: If the number of rows differs.
        """
        return cls._from_plan(Arrays(_columns.from_arrays(tensors), name or ""))

    @classmethod
    def from_tensors(cls, tensors: PyTree, name: str | None = None) -> Dataset:
        """Returns a dataset of one element; `name` names the data in errors."""
        return cls._from_plan(Arrays(_columns.from_element(tensors), name or ""))

    @classmethod
    def from_list(cls, elements: Sequence[PyTree], name: str | None = None) -> Dataset:
        """Returns a dataset of the items of a list, which may differ in shape.

        Args:
            elements: The elements, at least one.
            name: Names the data in errors that say which element failed.

        Raises:
            ArgumentError: If there is none, or they differ in structure.

        Source: tf.data.experimental.from_list.
        """
        if not isinstance(elements, list) or not elements:
            raise ArgumentError(
                f"elements must be a list of at least one element. Received: {elements!r:.200}. Use "
                "from_tensor_slices for arrays, and range(0) for a dataset without elements."
            )
        try:
            columns = _columns.stack([_structure.normalize(element) for element in elements])
        except ValueError as error:
            raise StructureError(f"All elements of a list must have one structure. {error}.") from error
        return cls._from_plan(Arrays(columns, name or ""))

    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Iterable[Any]],
        output_types: PyTree = None,
        output_shapes: PyTree = None,
        args: Sequence[Any] = (),
        output_signature: PyTree = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns a dataset of the values that a generator yields; each pass calls `generator` again.

        To continue at a position, a new generator is made and its first values are dropped; it must yield the same.

        Args:
            generator: Called with `args`, returns an iterable.
            output_types: The dtypes of an element; TensorFlow's older form of `output_signature`.
            output_shapes: Their shapes, with `output_types`; unknown by default.
            args: Arguments of `generator`.
            output_signature: A structure of `TensorSpec`s. Elements are checked against it. Without one, the first
                element shows their structure, shapes and dtypes.
            name: Ignored; accepted for TensorFlow's signature.

        Raises:
            ArgumentError: If `generator` cannot be called.
        """
        # Now, not at the first element: the line that made the mistake is in the traceback.
        if not callable(generator):
            raise ArgumentError(
                "from_generator needs a function that returns a new iterable on each call. Received: "
                f"{type(generator).__name__}. Example: Dataset.from_generator(lambda: iter(values), ...)"
            )
        # Elements of any structure, where nothing is declared.
        if output_types is None and output_shapes is None:
            signature = output_signature
        else:
            signature = signature_of(output_types, output_shapes, output_signature)
        return cls._from_plan(Generated(lambda: generator(*args), as_signature(signature)))

    @classmethod
    def range(cls, *args: ArrayLike, output_type: DType = np.int64, name: str | None = None) -> Dataset:
        """Returns a dataset of integers: `range(stop)`, `range(start, stop)` or `range(start, stop, step)`."""
        numbers = _check.integer_range(*args)
        return cls._from_plan(Range(numbers.start, numbers.stop, numbers.step, np.dtype(output_type)))

    @classmethod
    def random(
        cls, seed: int | None = None, rerandomize_each_iteration: bool | None = None, name: str | None = None
    ) -> Dataset:
        """Returns an endless dataset of random numbers from 0 to 2**32 - 1, int64.

        Zip it with another one for map functions that need randomness which a resumed run repeats.
        """
        return cls._from_plan(RandomNumbers(_check.seed(seed), bool(rerandomize_each_iteration)))

    @classmethod
    def counter(cls, start: int = 0, step: int = 1, dtype: DType = np.int64, name: str | None = None) -> Dataset:
        """Returns an endless dataset of integers from `start` on, `step` apart."""
        first, distance = _check.integer(start, "start"), _check.integer(step, "step")
        return cls._from_plan(Range(first, 0, distance, np.dtype(dtype), endless=True))

    @classmethod
    def list_files(
        cls, file_pattern: PyTree, shuffle: bool | None = None, seed: int | None = None, name: str | None = None
    ) -> Dataset:
        """Returns a dataset of the names of files, `bytes`.

        Args:
            file_pattern: A pattern such as "data/*.jpg", or several.
            shuffle: True (the default) for another order in each pass; False for sorted names.
            seed: Seed of the order.
            name: Ignored; accepted for TensorFlow's signature.

        Raises:
            DataNotFoundError: If no file matches.
        """
        files = matching_files(file_names(file_pattern))
        dataset = cls.from_tensor_slices(np.array(files, object))
        # TensorFlow shuffles file names by default.
        return dataset.shuffle(len(files), seed) if shuffle in (None, True) else dataset

    @classmethod
    def zip(cls, *args: PyTree, datasets: PyTree = None, name: str | None = None) -> Dataset:
        """Returns a dataset whose elements combine one element of each dataset; it ends with the shortest.

        Args:
            *args: The datasets, or one structure of them.
            datasets: The same structure by name.
            name: Ignored; accepted for TensorFlow's signature.
        """
        if bool(args) == (datasets is not None):
            raise ArgumentError("zip needs datasets, as arguments or as datasets=. Received: both, or neither.")
        tree = datasets if not args else (args[0] if len(args) == 1 else args)
        # A list is a leaf, and so is refused as tf.data does: in elements, lists are arrays.
        leaves, structure = jax.tree.flatten(canonical(tree), is_leaf=lambda v: isinstance(v, list))
        if not leaves:
            raise ArgumentError(f"zip needs at least one dataset. Received: {tree!r}.")
        return cls._from_plan(Zip([check_dataset(leaf) for leaf in leaves], structure), merge_options(*leaves))

    @classmethod
    def sample_from_datasets(
        cls,
        datasets: Sequence[Dataset],
        weights: ArrayLike | None = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
    ) -> Dataset:
        """Returns a dataset that takes each element from a random one of several.

        Args:
            datasets: With elements of one structure.
            weights: The probability of each; equal by default.
            seed: Seed of the choices.
            stop_on_empty_dataset: Ends with the first dataset that ends; otherwise with the last.
            rerandomize_each_iteration: Makes other choices in each pass.
        """
        plans = _check_datasets(datasets)
        probabilities = _check.weights([1.0] * len(plans) if weights is None else weights, len(plans))
        node = Choose(plans, probabilities, _check.seed(seed), stop_on_empty_dataset, bool(rerandomize_each_iteration))
        return cls._from_plan(node, merge_options(*datasets))

    @classmethod
    def choose_from_datasets(
        cls, datasets: Sequence[Dataset], choice_dataset: Dataset, stop_on_empty_dataset: bool = True
    ) -> Dataset:
        """Returns a dataset that takes each element from the dataset whose index `choice_dataset` yields."""
        plans = _check_datasets(datasets)
        _check_choices(spec_without_looking(check_dataset(choice_dataset)))
        node = Choose([*plans, check_dataset(choice_dataset)], None, None, stop_on_empty_dataset)
        return cls._from_plan(node, merge_options(*datasets, choice_dataset))


def _check_datasets(datasets: Sequence[object]) -> list[Node]:
    if not len(datasets):
        raise ArgumentError("datasets must hold at least one dataset. Received: none.")
    return [check_dataset(d) for d in datasets]


def _check_choices(spec: PyTree) -> None:
    """Raises `ChoiceTypeError` if elements of a known spec are no choices."""
    leaves = [] if spec is None else jax.tree.leaves(spec)
    if spec is not None and (len(leaves) != 1 or leaves[0].dtype.kind not in "iu" or leaves[0].shape not in ((), None)):
        raise ChoiceTypeError(
            "choice_dataset must be a dataset of scalar whole numbers, as tf.int64, the numbers of datasets. Received: "
            f"{spec}. Cast them with map."
        )


class ChoiceTypeError(ArgumentError, TypeError):
    """Choices of another type than whole numbers."""


def file_names(value: object) -> list[str]:
    """Returns names of files as `str`: of one name, several, or a dataset of names."""
    if isinstance(value, DatasetBase):
        return [v.decode() for v in value.as_numpy_iterator()]
    return [v.decode() for v in np.atleast_1d(_structure.as_array(value)).ravel()]


# pyright: reportPrivateUsage=false
