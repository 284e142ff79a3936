"""Lets any Keras model read datasets: `model.fit(dataset)` without a strategy.

Keras chooses a reader by the type of the data, and knows no others than its own. So the function that chooses is
replaced, when the first dataset is made, by one that knows `Dataset`, and asks Keras' for everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from keras.src.backend import config
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from lockstep._types import Element
from lockstep.data._dataset import Dataset
from lockstep.data._dataset_base import ahead_of, begin_pass, iterator_of
from lockstep.data._options import INFINITE_CARDINALITY
from lockstep.data._plan import Run
from lockstep.errors import InputError, UnsupportedError

# Taken before `install` replaces it.
_theirs = data_adapters.get_data_adapter


class DatasetAdapter(DataAdapter):
    """Keras' data adapter for a dataset: one pass per epoch."""

    def __init__(self, dataset: Dataset, class_weight: Any) -> None:
        self._dataset = dataset
        self._class_weight = class_weight
        self._run: Run | None = None

    def get_numpy_iterator(self) -> Iterator[Any]:
        """Returns the batches of a pass: of the same one again, if only its first batch was looked at."""
        # Keras builds a model from the first batch of an iterator that it then drops: the epoch begins with that batch
        # again.
        self._run = self._run or begin_pass(self._dataset)
        for batch in iterator_of(self._dataset, self._run):
            yield as_keras_batch(batch, self._class_weight)
            self._run = None
        self._run = None

    def get_jax_iterator(self) -> Iterator[Any]:
        """Returns the batches of a pass."""
        return self.get_numpy_iterator()

    def get_torch_dataloader(self) -> Any:
        """Raises an error: lockstep runs Keras on JAX."""
        raise _wrong_backend("torch")

    def get_tf_dataset(self) -> Any:
        """Raises an error: lockstep runs Keras on JAX."""
        raise _wrong_backend("TensorFlow")

    @property
    def builtin_prefetch(self) -> bool:
        """Returns whether batches are computed ahead."""
        return ahead_of(self._dataset) > 0

    @property
    def num_batches(self) -> int | None:
        """Batches of a pass, if known."""
        # A tensor where the dataset is one of a program written for TensorFlow.
        count = int(self._dataset.cardinality())
        return count if count >= 0 else None

    @property
    def batch_size(self) -> int | None:
        """Returns `None`: batches may differ in size."""
        return None

    @property
    def has_partial_batch(self) -> bool | None:
        """Returns `None`, for unknown."""
        return None

    @property
    def partial_batch_size(self) -> int | None:
        """Returns `None`, for unknown."""
        return None


def _wrong_backend(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"A lockstep.data.Dataset needs Keras on JAX. Received: Keras on {name}. Import lockstep before keras."
    )


def as_keras_batch(element: Element, class_weight: Any = None) -> tuple[Any, ...]:
    """Returns an element as (inputs,), (inputs, targets) or (inputs, targets, sample_weights).

    Raises:
        InputError: If it is a tuple of another length, or there are class weights for no targets or beside weights.
    """
    batch = element if type(element) is tuple else (element,)
    # Keras would take further items for nothing, without a word.
    if not 1 <= len(batch) <= 3:
        raise InputError(
            "Elements for Keras must be inputs, (inputs, targets) or (inputs, targets, sample_weights). Received: a "
            f"tuple of {len(batch)}. Put several inputs in a tuple of their own: ((a, b), targets)."
        )
    if class_weight is None:
        return batch
    if len(batch) != 2:
        raise InputError(
            f"class_weight needs elements (inputs, targets). Received: {len(batch)} parts. Drop the sample weights."
        )
    # Keras' own function, so that its rules for one-hot targets hold.
    weights = data_adapter_utils.class_weight_to_sample_weights(batch[1], class_weight)
    return (*batch, np.asarray(weights))


def _get_data_adapter(x: Any, **arguments: Any) -> Any:
    if not isinstance(x, Dataset):
        return _theirs(x, **arguments)
    for name in ("y", "sample_weight"):
        if arguments.get(name) is not None:
            raise InputError(
                f"A dataset holds everything that belongs to a batch. Received: x as a dataset, and {name}. Zip them."
            )
    check_finite(x, arguments.get("steps_per_epoch"))
    return DatasetAdapter(x, arguments.get("class_weight"))


def check_finite(dataset: Dataset, steps: int | None) -> None:
    """Checks that an epoch ends: by the dataset, or by a number of steps.

    Raises:
        InputError: If the dataset repeats endlessly and `steps` is `None`.
    """
    # Keras itself would read on for ever, without a word.
    if steps is None and config.max_steps_per_epoch() is None and dataset.cardinality() == INFINITE_CARDINALITY:
        raise InputError(
            "An epoch must end. Received: a dataset that repeats endlessly, without a number of steps. Give "
            "steps_per_epoch (validation_steps, steps), or repeat(count) it."
        )


def install() -> None:
    """Replaces Keras' choice of a data adapter; once per process."""
    data_adapters.get_data_adapter = _get_data_adapter
