"""CIFAR-10."""

from __future__ import annotations

from lockstep.datasets._data_set import DataSet
from lockstep.datasets._features import ClassLabel, FeaturesDict, Image
from lockstep.datasets._keras_cache import PublishedFile
from lockstep.datasets._sets._cifar import Cifar

_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
# The binary version; the one that Keras downloads is a pickle, which nothing here reads.
_CIFAR = Cifar(
    name="cifar10",
    archive=PublishedFile(
        name="cifar-10-binary.tar.gz",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        patience=10,
    ),
    directory="cifar-10-batches-bin",
    files={"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]},
    labels={"label": len(_NAMES)},
)

DATA_SET = DataSet(
    name="cifar10",
    description="60,000 colour pictures of 32 x 32 pixels in ten classes.",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    features=FeaturesDict({"image": Image((32, 32, 3)), "label": ClassLabel(names=_NAMES)}),
    supervised_keys=("image", "label"),
    sizes={"train": 50_000, "test": 10_000},
    load=_CIFAR.load,
)
