"""tf.compat.v1.data: tf.data, and TensorFlow 1's iterators."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from lockstep._nest import map_structure as _map_structure
from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow._dtypes import as_dtype as _as_dtype
from lockstep.compat.tensorflow._shape import TensorShape as _TensorShape
from lockstep.compat.tensorflow._types import Dataset as _Dataset

_ROOT = "lockstep.compat.tensorflow.data"

__all__ = ["get_output_shapes", "get_output_types", "make_initializable_iterator", "make_one_shot_iterator"]


def make_one_shot_iterator(dataset: _Dataset) -> _Any:
    """Returns an iterator; what its `get_next()` returns stands for the elements, and an input_fn returns it.

    Source: tf.compat.v1.data.make_one_shot_iterator.
    """
    from lockstep.estimator.internal import OneShotIterator

    # Estimator takes the dataset out of it: nothing is read while the input_fn runs.
    return OneShotIterator(dataset)


def make_initializable_iterator(dataset: _Dataset, shared_name: str | None = None) -> _Any:
    """Returns an iterator whose `initializer` does nothing; `shared_name` must be `None`.

    Source: tf.compat.v1.data.make_initializable_iterator.
    """
    from lockstep.errors import ArgumentError

    if shared_name is not None:
        raise ArgumentError(f"Iterators are not shared. Received: shared_name={shared_name!r}. Leave it out.")
    return make_one_shot_iterator(dataset)


def get_output_types(dataset_or_iterator: _Dataset) -> _Any:
    """Returns the types of an element's arrays, in its structure. Source: tf.compat.v1.data.get_output_types."""
    return _map_structure(lambda spec: _as_dtype(spec.dtype), dataset_or_iterator.element_spec)


def get_output_shapes(dataset_or_iterator: _Dataset) -> _Any:
    """Returns the shapes of an element's arrays, in its structure. Source: tf.compat.v1.data.get_output_shapes."""
    return _map_structure(lambda spec: _TensorShape(spec.shape), dataset_or_iterator.element_spec)


_other = _missing.getter(__name__)


def __getattr__(name: str) -> _Any:
    """Returns a name of tf.data."""
    data = _importlib.import_module(_ROOT)
    return getattr(data, name) if name in data.__all__ else _other(name)
