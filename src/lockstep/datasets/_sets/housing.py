"""Prices of houses, as keras.datasets publishes and divides them."""

from __future__ import annotations

import io
import zipfile

import numpy as np
from numpy.typing import NDArray

from lockstep.datasets._data_set import DataSet, LoadedDataSet, Table
from lockstep.datasets._download import PublishedFile
from lockstep.datasets._info import FeaturesDict, Tensor
from lockstep.datasets._location import DataLocation, File
from lockstep.errors import InputError

# The seed and the share of keras.datasets.boston_housing and california_housing: the same rows are for testing.
_SEED = 113
_TRAINING = 0.8
_BASE = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
PUBLISHED = {
    name: PublishedFile(f"{name}.npz", f"{_BASE}{name}.npz", sha256)
    for name, sha256 in {
        "boston_housing": "f553886a1f8d56431e820c5b82552d9d95cfcb96d1e678153f8839538947dff5",
        "california_housing": "1a2e3a52e0398de6463aebe6f4a8da34fb21fbb6b934cf88c3425e766f2a1a6f",
    }.items()
}


def _data_set(name: str, columns: int, rows: tuple[int, int], homepage: str, description: str) -> DataSet:
    """Returns a data set of `columns` float32 features and a float32 target."""

    def load(location: DataLocation) -> LoadedDataSet:
        (file,) = location.files(name, [PUBLISHED[name]])
        x, y = _arrays(file, columns)
        order = np.arange(len(x))
        # Keras' generator: a newer one would give another order.
        np.random.RandomState(_SEED).shuffle(order)
        training = int(len(x) * _TRAINING)
        splits = {"train": order[:training], "test": order[training:]}
        tables = {split: Table({"features": x[chosen], "target": y[chosen]}) for split, chosen in splits.items()}
        return LoadedDataSet(tables, f"{name} from {file.path}")

    float32 = np.dtype(np.float32)
    return DataSet(
        name=name,
        description=description,
        homepage=homepage,
        features=FeaturesDict({"features": Tensor((columns,), float32), "target": Tensor((), float32)}),
        supervised_keys=("features", "target"),
        sizes=dict(zip(("train", "test"), rows, strict=True)),
        load=load,
    )


def _arrays(file: File, columns: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
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


DATA_SETS = [
    _data_set(
        "boston_housing",
        13,
        (404, 102),
        "http://lib.stat.cmu.edu/datasets/boston",
        "The median house value, in thousands of dollars, of 506 districts of Boston in the late 1970s, and 13 "
        "attributes of each. One of them, B, assumes that racial segregation sets prices; use california_housing "
        "unless that is the subject.",
    ),
    _data_set(
        "california_housing",
        8,
        (16_512, 4_128),
        "https://www.dcc.fc.up.pt/~ltorgo/Regression/cal_housing.html",
        "The median house value, in dollars, of 20,640 districts of California in the census of 1990, and for each "
        "median income, age of houses, rooms, bedrooms, population, occupants, latitude and longitude.",
    ),
]
