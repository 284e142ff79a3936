"""MNIST, as `load_mnist` finds it."""

from __future__ import annotations

import numpy as np

from lockstep.datasets import _mnist
from lockstep.datasets._data_set import DataSet, LoadedDataSet, Table
from lockstep.datasets._features import ClassLabel, FeaturesDict, Image
from lockstep.datasets._mnist import Bytes
from lockstep.datasets._place import DataLocation


def _load(location: DataLocation) -> LoadedDataSet:
    mnist = _mnist.load_from(location)
    tables = {
        "train": _table(mnist.train_images, mnist.train_labels),
        "test": _table(mnist.test_images, mnist.test_labels),
    }
    return LoadedDataSet(tables, mnist.source, substitute=_mnist.is_sample(mnist))


def _table(images: Bytes, labels: Bytes) -> Table:
    return Table({"image": images[..., np.newaxis], "label": labels.astype(np.int64)})


DATA_SET = DataSet(
    name="mnist",
    description="70,000 handwritten digits, from 0 (paper) to 255 (ink).",
    homepage="http://yann.lecun.com/exdb/mnist/",
    features=FeaturesDict({"image": Image((28, 28, 1)), "label": ClassLabel(10)}),
    supervised_keys=("image", "label"),
    sizes={"train": 60_000, "test": 10_000},
    load=_load,
)
