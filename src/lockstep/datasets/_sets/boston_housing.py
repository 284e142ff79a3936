"""House prices in Boston, 1978."""

from __future__ import annotations

from lockstep.datasets._data_set import DataSet, LoadedDataSet
from lockstep.datasets._keras_cache import PublishedFile
from lockstep.datasets._place import DataLocation
from lockstep.datasets._sets import _housing

_COLUMNS = 13
_PUBLISHED = PublishedFile(
    name="boston_housing.npz",
    url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/boston_housing.npz",
    sha256="f553886a1f8d56431e820c5b82552d9d95cfcb96d1e678153f8839538947dff5",
)


def _load(location: DataLocation) -> LoadedDataSet:
    return _housing.load("boston_housing", _PUBLISHED, _COLUMNS, location)


DATA_SET = DataSet(
    name="boston_housing",
    description=(
        "The median house value, in thousands of dollars, of 506 districts of Boston in the late 1970s, and 13 "
        "attributes of each. One of them, B, assumes that racial segregation sets prices; use california_housing "
        "unless that is the subject."
    ),
    homepage="http://lib.stat.cmu.edu/datasets/boston",
    features=_housing.features(_COLUMNS),
    supervised_keys=("features", "target"),
    sizes={"train": 404, "test": 102},
    load=_load,
)
