"""House prices as Keras publishes them: one table, shuffled and divided as `keras.datasets` does."""

from __future__ import annotations

import io
import zipfile

import numpy as np
from numpy.typing import NDArray

from lockstep.datasets._data_set import LoadedDataSet, Table
from lockstep.datasets._features import FeaturesDict, Tensor
from lockstep.datasets._keras_cache import PublishedFile
from lockstep.datasets._place import DataLocation, File
from lockstep.errors import InputError

# The seed and the share of keras.datasets.boston_housing and california_housing: the same rows are for testing.
_SEED = 113
_TRAINING = 0.8

Floats = NDArray[np.float32]


def features(columns: int) -> FeaturesDict:
    """Returns the features of a table with so many columns."""
    float32 = np.dtype(np.float32)
    return FeaturesDict({"features": Tensor((columns,), float32), "target": Tensor((), float32)})


def load(name: str, published: PublishedFile, columns: int, location: DataLocation) -> LoadedDataSet:
    """Returns a data set of house prices."""
    (file,) = location.files(name, [published])
    x, y = _arrays(file, columns)
    order = np.arange(len(x))
    # Keras' generator: a newer one would give another order.
    np.random.RandomState(_SEED).shuffle(order)
    training = int(len(x) * _TRAINING)
    tables = {
        split: Table({"features": x[rows], "target": y[rows]})
        for split, rows in (("train", order[:training]), ("test", order[training:]))
    }
    return LoadedDataSet(tables, f"{name} from {file.path}")


def _arrays(file: File, columns: int) -> tuple[Floats, Floats]:
    try:
        with np.load(io.BytesIO(file.content), allow_pickle=False) as arrays:
            x, y = np.asarray(arrays["x"], np.float32), np.asarray(arrays["y"], np.float32)
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{file.path} must be a .npz file of the arrays x and y. Received: {error}. Replace it with a fresh copy."
        ) from error
    if x.ndim != 2 or x.shape[1] != columns or y.shape != (len(x),) or not len(x):
        raise InputError(
            f"{file.path} must hold x(n, {columns}) and y(n,), at least one row. Received: x{x.shape} and y{y.shape}. "
            "Replace it with a fresh copy."
        )
    return x, y
