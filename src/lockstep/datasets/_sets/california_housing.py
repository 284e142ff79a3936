"""House prices in California, 1990."""

from __future__ import annotations

from lockstep.datasets._data_set import DataSet, LoadedDataSet
from lockstep.datasets._keras_cache import PublishedFile
from lockstep.datasets._place import DataLocation
from lockstep.datasets._sets import _housing

_COLUMNS = 8
_PUBLISHED = PublishedFile(
    name="california_housing.npz",
    url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/california_housing.npz",
    sha256="1a2e3a52e0398de6463aebe6f4a8da34fb21fbb6b934cf88c3425e766f2a1a6f",
)


def _load(location: DataLocation) -> LoadedDataSet:
    return _housing.load("california_housing", _PUBLISHED, _COLUMNS, location)


DATA_SET = DataSet(
    name="california_housing",
    description=(
        "The median house value, in dollars, of 20,640 districts of California in the census of 1990, and for each "
        "median income, age of houses, rooms, bedrooms, population, occupants, latitude and longitude."
    ),
    homepage="https://www.dcc.fc.up.pt/~ltorgo/Regression/cal_housing.html",
    features=_housing.features(_COLUMNS),
    supervised_keys=("features", "target"),
    sizes={"train": 16_512, "test": 4_128},
    load=_load,
)
