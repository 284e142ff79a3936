"""The input of a step program: an input_fn's result as a dataset, and the batches of this process.

Source: tensorflow_estimator/python/estimator/util.py, parse_input_fn_result; tf.compat.v1.data.Iterator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import numpy as np

from lockstep._engine.input.distributed import DistributedSource, Distribution, of_function
from lockstep._engine.step.replicas import Replicas
from lockstep._nest import flatten, map_structure
from lockstep._types import Array, Element, PyTree
from lockstep.data import Dataset, InputContext
from lockstep.data.internal import inside
from lockstep.errors import InputError, UnsupportedError
from lockstep.estimator._arguments import argument_names, call_input_fn
from lockstep.estimator._model_fn.function import Data

if TYPE_CHECKING:
    from lockstep.estimator._run_config import RunConfig

_log = logging.getLogger("lockstep")
_EXAMPLE = "Example: lockstep.data.Dataset.from_tensor_slices((features, labels)).batch(32)"


class Input:
    """The batches of an input_fn for this process.

    Each replica gets batches of its own, as in TensorFlow, where the global batch is as many times as large. With a
    strategy (`is_distributed`) the function gets an input_context, if it has an argument for it. With `on_host` batches
    are whole and stay on the host; `shares` says for how many replicas, if tasks of other processes are these.
    """

    def __init__(
        self,
        input_fn: Callable[..., Any],
        mode: str,
        replicas: Replicas,
        is_distributed: bool,
        params: Mapping[str, Any] | None,
        config: RunConfig,
        on_host: bool = False,
        shares: int | None = None,
    ) -> None:
        self._nothing: tuple[Any, Any] | None = None
        runtime = replicas.runtime
        is_sharded = runtime.is_alone or "input_context" in argument_names(input_fn)
        if is_distributed and mode == "train" and runtime.is_chief and not is_sharded:
            _log.warning(
                "Each of %d workers reads all of the data: the input_fn has no argument input_context, by which it "
                "could shard them: dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id).",
                len(runtime.tasks),
            )

        # Called with the input context of each pipeline of this process.
        def make_dataset(context: InputContext) -> Dataset:
            returned = call_input_fn(input_fn, mode, params, config, context if is_distributed else None)
            # Features of nothing, for a model_fn that computes from its variables alone.
            self._nothing = _as_nothing(returned)
            if self._nothing is not None:
                returned = np.zeros(1, np.float32)
            # Tensors of TensorFlow's input_fns yield the same batch in each step, until `steps` are done.
            return dataset_of(returned, repeat=mode == "train")

        self.distribution: Distribution = of_function(make_dataset, replicas, num_replicas=shares)
        if config.tf_random_seed is not None:  # Also for a shuffle that was given no seed.
            inside.follow(self.distribution.dataset, config.tf_random_seed % 2**62)
        make_data = features_only if mode == "infer" else with_labels
        finish = make_data if self._nothing is None else self._with_nothing
        self.source = DistributedSource(self.distribution, finish, divides=not on_host, stays=not on_host)

    def _with_nothing(self, element: Element) -> Data:
        features, labels = self._nothing or ({}, None)
        return Data(features, labels, rows=element)


def _as_nothing(returned: PyTree) -> tuple[Any, Any] | None:
    """Returns (features, labels) that hold no array, such as ({}, None); `None` if there is one, or no structure."""
    if isinstance(returned, dict) and not returned:
        return {}, None
    is_pair = isinstance(returned, (tuple, list)) and len(returned) == 2 and not hasattr(returned, "_fields")
    return tuple(returned) if is_pair and not jax.tree.leaves(returned) else None


def with_labels(element: Element) -> Data:
    """Splits an element of a dataset; raises `InputError` for a tuple of anything but (features, labels)."""
    if not isinstance(element, tuple) or hasattr(element, "_fields"):
        return Data(element)
    if len(element) != 2:
        raise InputError(
            f"An input_fn must yield (features, labels), or features alone. Received: a tuple of {len(element)}. Put "
            "several features into a dict."
        )
    return Data(element[0], element[1])


def features_only(element: Element) -> Data:
    """Returns the features of an element; predictions need no labels."""
    # Labels are dropped here, not refused: TensorFlow lets the input_fn of an evaluation predict.
    return Data(with_labels(element).features)


class OneShotIterator:
    """TensorFlow 1's iterator: `get_next` returns symbols for a dataset's elements.

    An input_fn returns the symbols in any structure, from which `dataset_of` rebuilds a dataset.

    Attributes:
        initializer: `None`: the iterator needs no initialization.

    Source: tf.compat.v1.data.Iterator.
    """

    initializer = None

    def __init__(self, dataset: Dataset) -> None:
        """Creates the iterator of a dataset; raises `InputError` for anything else."""
        if not isinstance(dataset, Dataset):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"An iterator needs a dataset. Received: {type(dataset).__name__}. {_EXAMPLE}")
        self.dataset = dataset
        leaves, self._structure = flatten(dataset.element_spec)
        # The same symbols in each call: there is one next element in a step.
        self._leaves = [Pending(self, number, spec) for number, spec in enumerate(leaves)]

    @property
    def element_spec(self) -> Any:
        """Returns the spec of the elements."""
        return self.dataset.element_spec

    def get_next(self, name: str | None = None) -> Any:
        """Returns a symbol for each array of an element, in the element's structure."""
        return self._structure.unflatten(self._leaves)


class Pending:
    """A symbol for an array of future elements; no operation accepts it.

    Attributes:
        number: Index of the array in an element.
    """

    # Without this, numpy would compute `array + symbol` element by element, with objects.
    __array_ufunc__ = None

    def __init__(self, iterator: OneShotIterator, number: int, spec: PyTree) -> None:
        self.iterator = iterator
        self.number = number
        self.shape = spec.shape
        self.dtype = spec.dtype

    def __repr__(self) -> str:
        return f"<stands for an array of a dataset's elements, shape={self.shape}, dtype={self.dtype}>"


def _refuse(self: Any, *args: object, **kwargs: Any) -> NoReturn:
    raise UnsupportedError(
        "What get_next() returns stands for elements to come: an input_fn returns it as it is. Received: an operation "
        "on it. Put the operation into Dataset.map, before the iterator is made."
    )


for _name in (
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "pow"),
    *("matmul", "rmatmul", "neg", "abs", "lt", "le", "gt", "ge", "getitem", "iter", "len", "bool", "float", "int"),
    "array",
):
    setattr(Pending, f"__{_name}__", _refuse)


def dataset_of(returned: PyTree, repeat: bool = False) -> Dataset:
    """Returns the dataset that an input_fn's result stands for; its elements are (features, labels) or features.

    The result is a dataset; or features, or (features, labels): structures of arrays, which are one batch (again and
    again with `repeat`), or of symbols of an iterator's `get_next`. For anything else it raises `InputError`.
    """
    if isinstance(returned, Dataset):
        return returned
    result: Any = returned
    is_pair = isinstance(returned, (tuple, list)) and not hasattr(returned, "_fields")
    if is_pair:
        if len(returned) != 2:
            raise InputError(
                "input_fn should return (features, labels) as a len 2 tuple. Received: a "
                f"{type(returned).__name__} of {len(returned)}. Put several features into a dict."
            )
        result = tuple(returned)
    elif returned is None or isinstance(returned, Iterator) or not jax.tree.leaves(returned):
        raise InputError(f"input_fn must return a dataset, or features. Received: {returned!r}. {_EXAMPLE}")
    if any(isinstance(leaf, Pending) for leaf in jax.tree.leaves(result)):
        return _rearrange(result)
    # A pair stays one, whatever its parts are.
    parts: Any = tuple(map(_without_lists, result)) if is_pair else _without_lists(result)
    batch = Dataset.from_tensors(map_structure(_check_array, parts))
    return batch.repeat() if repeat else batch


def _without_lists(value: PyTree) -> Any:
    """Returns a structure in which lists of arrays are tuples, and tuples of numbers or text lists.

    A dataset makes one array of a list, as feature columns and heads do in TensorFlow of lists and tuples alike.
    """
    if _is_plain(value):
        return _as_lists(value)
    if isinstance(value, dict):
        return type(value)((key, _without_lists(part)) for key, part in value.items())
    if isinstance(value, tuple):
        parts = [_without_lists(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list) and any(isinstance(v, (dict, list, tuple, np.ndarray, jax.Array)) for v in value):
        return tuple(_without_lists(part) for part in value)
    return value


def _is_plain(value: PyTree) -> bool:
    """Returns whether this is a list or tuple of numbers or text, or a rectangle of such."""
    if not isinstance(value, (list, tuple)) or hasattr(value, "_fields") or not value:
        return False
    first = value[0]
    if isinstance(first, (list, tuple)):
        return all(isinstance(v, (list, tuple)) and len(v) == len(first) and _is_plain(v) for v in value)
    return all(isinstance(v, (bool, int, float, str, bytes)) for v in value)


def _as_lists(value: PyTree) -> Any:
    return [_as_lists(part) for part in value] if isinstance(value, (list, tuple)) else value


def _check_array(leaf: Array) -> Any:
    if isinstance(leaf, (np.ndarray, np.generic, jax.Array, bytes, str, int, float)):
        return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf
    raise InputError(
        f"input_fn must return a dataset, or arrays. Received: {leaf!r}, a {type(leaf).__name__}. {_EXAMPLE}"
    )


def _rearrange(result: PyTree) -> Dataset:
    """Returns the dataset of an iterator whose symbols an input_fn has put into another structure."""
    leaves, structure = flatten(result)
    iterators = {id(leaf.iterator) if isinstance(leaf, Pending) else None for leaf in leaves}
    if len(iterators) != 1 or None in iterators:
        raise InputError(
            "An input_fn may return what one iterator gives, and nothing else beside it. Received: "
            f"{structure.unflatten(leaves)!r}. Put datasets together with Dataset.zip, and constants with "
            "Dataset.map."
        )
    iterator: OneShotIterator = leaves[0].iterator
    # No map, which would cost a copy of each element, for what almost all programs return.
    own_leaves, own_structure = flatten(iterator.get_next())
    if structure == own_structure and all(a is b for a, b in zip(leaves, own_leaves, strict=True)):
        return iterator.dataset
    numbers = [leaf.number for leaf in leaves]

    def arrange(*element: Element) -> Any:
        leaves = jax.tree.leaves(element)
        return structure.unflatten([leaves[number] for number in numbers])

    return iterator.dataset.map(arrange)
